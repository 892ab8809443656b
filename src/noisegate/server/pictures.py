"""Pictures of releases, drawn in a process of their own.

Whoever draws is code of others, and gets released numbers alone: no rows, no ledger, no tokens.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from noisegate.desk.release import Held
from noisegate.errors import Unsupported

_SECONDS: Final = 60
_CHILD: Final = """
import resource, sys
from importlib import import_module
resource.setrlimit(resource.RLIMIT_CPU, (50, 50))
module, name, file, picture = sys.argv[1:]
getattr(import_module(module), name).load(file).plot().save(picture)
"""


def svg_of(release: Held) -> bytes:
    """The picture of a release as SVG; refuses one that has none."""
    with TemporaryDirectory(prefix="noisegate-") as folder:
        file, picture = Path(folder) / "release.parquet", Path(folder) / "picture.svg"
        release.save(file)
        kind = type(release)
        command = [sys.executable, "-I", "-c", _CHILD, kind.__module__, kind.__qualname__]
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [*command, str(file), str(picture)], cwd=folder, env={"HOME": folder},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode or not picture.is_file():
            raise Unsupported(
                "This release has no picture.", fix="Look at its numbers.", about="picture"
            )
        return picture.read_bytes()
