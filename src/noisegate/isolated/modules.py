"""Which modules programs may import.

A module is loaded before its program is locked in, with the rights of whoever opened the gate, and
before anything is paid. So an analyst names only what is allowed: modules of Python that compute,
and the packages that the policy lists (``[programs] modules``).
"""

from collections.abc import Collection, Iterable
from typing import Final

from noisegate.errors import Unsupported

PACKAGES: Final = ("numpy", "scipy", "sklearn")  # unless a policy says otherwise
_OF_PYTHON: Final = frozenset(
    """
    __future__ abc array bisect builtins calendar cmath collections colorsys contextlib copy
    dataclasses datetime decimal difflib enum fractions functools gc graphlib hashlib heapq io
    itertools json keyword math numbers operator os random re secrets statistics string struct sys
    textwrap time timeit traceback types typing unicodedata uuid warnings weakref zlib
    """.split()  # noqa: SIM905 - a list of this length is easier to read as words
)
_NOT_TO_COMPUTE: Final = frozenset({"__main__", "conftest", "distutils", "f2py", "tests"})


def require_allowed(imports: Iterable[str], packages: Collection[str]) -> None:
    """Refuse modules that are neither Python's own for computing nor in one of these packages.

    What packages have for building and testing them runs programs and starts threads: refused, too.

    >>> require_allowed(["math", "sklearn.cluster"], PACKAGES)
    >>> require_allowed(["sklearn.__main__"], PACKAGES)
    Traceback (most recent call last):
    noisegate.errors.Unsupported: Programs may not import 'sklearn.__main__'. Use numpy, scipy, \
sklearn or a computing module of Python; a policy can allow more: [programs] modules = [...].
    """
    for name in imports:
        first, *others = name.split(".")
        known = first in _OF_PYTHON or first in packages
        if not known or not _NOT_TO_COMPUTE.isdisjoint(others):
            raise Unsupported(
                f"Programs may not import {name!r}.",
                fix=f"Use {', '.join(sorted(packages))} or a computing module of Python; a policy "
                "can allow more: [programs] modules = [...].",
                about="import",
            )
