"""Packages that not everybody has."""

from importlib import import_module
from typing import Any

from noisegate.errors import Unsupported


def extra(package: str, what: str, name: str | None = None) -> Any:  # noqa: ANN401 - a module
    """A package that may be missing; ``name`` is noisegate's extra that brings it."""
    try:
        return import_module(package)
    except ImportError:
        pass
    wanted = f"noisegate-dp[{name}]" if name else package
    raise Unsupported(
        f"{what} need the package {package.partition('.')[0]}.",
        fix=f"pip install '{wanted}'",
        about="package",
    )
