"""The command line for tests: as a process of its own, or in this one."""

import gc
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from noisegate.cli import main

NOISEGATE = Path(sys.executable).with_name("noisegate")


def process(*words, code=0, cwd=None, typed=None):
    """The installed command, as a process of its own."""
    done = subprocess.run(
        [NOISEGATE, *words], capture_output=True, text=True, cwd=cwd, check=False, input=typed
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def run(*words, code=0, cwd="."):
    """The same in this process, without the second that a start takes."""
    out, err, left, collected = StringIO(), StringIO(), 0, gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["noisegate", *words])
        try:
            main()
        except SystemExit as end:
            left = end.code or 0
        finally:
            gc.set_threshold(*collected)
    assert left == code, err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
