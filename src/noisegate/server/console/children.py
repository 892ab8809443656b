"""Work in a process of its own, which has neither rows nor keys nor our environment."""

import os
import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from noisegate.errors import OperatorError


def child(arguments: Sequence[str], *, sent: str = "", seconds: float) -> bytes:
    """What a child of this Python writes, given ``sent``; it is alone in an empty folder."""
    with TemporaryDirectory(prefix="noisegate-") as folder:
        known = {"PATH": os.defpath, "HOME": folder, "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments
                [sys.executable, "-I", *arguments], input=sent.encode(), capture_output=True,
                timeout=seconds, env=known, cwd=folder, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            raise OperatorError(
                "A helper process failed, or took too long.",
                fix="Check that the extra 'plot' is installed, and that there is memory.",
                about="child",
            ) from None
    return done.stdout
