"""Pictures of releases, and whatever else is done in a process of its own.

A child has neither rows nor keys nor our environment. Whoever draws is code of others, and gets
released numbers alone: no rows, no ledger, no tokens.
Everybody may look at what is public, so each picture is drawn once, few at a time, by threads that
do nothing else.
"""

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final, final

from noisegate.desk.release import Held
from noisegate.errors import OperatorError, Unsupported

AT_ONCE: Final = 2
_KEPT: Final = 200
_SECONDS: Final = 60
_CHILD: Final = """
import resource, sys
from importlib import import_module
resource.setrlimit(resource.RLIMIT_CPU, (50, 50))
resource.setrlimit(resource.RLIMIT_DATA, (1 << 31, 1 << 31))  # it reserves addresses by the 64 GB
module, name, file, picture = sys.argv[1:]
getattr(import_module(module), name).load(file).plot().save(picture)
"""


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


@final
class Pictures:
    """Pictures by the names of runs: drawn once, also those that cannot be."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="noisegate-picture")
        self._drawn: OrderedDict[str, Future[bytes]] = OrderedDict()
        self._lock = Lock()

    def of(self, run: str, release: Held) -> "Future[bytes]":
        """The picture of a run's release, once it is drawn."""
        with self._lock:
            if run not in self._drawn:
                self._drawn[run] = self._pool.submit(svg_of, release)
                if len(self._drawn) > _KEPT:
                    self._drawn.popitem(last=False)
            return self._drawn[run]

    def close(self) -> None:
        """Draw nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def svg_of(release: Held) -> bytes:
    """The picture of a release as SVG; refuses one that has none."""
    with TemporaryDirectory(prefix="noisegate-") as folder:
        file, picture = Path(folder) / "release.parquet", Path(folder) / "picture.svg"
        release.save(file)
        kind = type(release)
        names = (kind.__module__, kind.__qualname__, str(file), str(picture))
        try:
            child(["-c", _CHILD, *names], seconds=_SECONDS)
            return picture.read_bytes()
        except (OSError, OperatorError):
            raise Unsupported(
                "This release has no picture.", fix="Look at its numbers.", about="picture"
            ) from None
