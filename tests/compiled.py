"""Compile all tests as pytest does, once and on all cores: else each of its processes does so.

    python tests/compiled.py

Where this cannot be done, pytest does it.
"""

import compileall
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, get_cache_dir

HERE = Path(__file__).resolve().parent
SILENT = SimpleNamespace(trace=lambda _: None)


def compiled(file: Path) -> None:
    """Tests with asserts that explain themselves; what they import, as Python does."""
    if not file.name.startswith("test_") and file.name != "conftest.py":
        compileall.compile_file(file, quiet=2)
        return
    folder = get_cache_dir(file)
    folder.mkdir(parents=True, exist_ok=True)
    if _read_pyc(file, pyc := folder / (file.name[:-3] + PYC_TAIL)) is None:
        source, code = _rewrite_test(file, None)
        _write_pyc(SILENT, code, source, pyc)


if __name__ == "__main__":
    sys.dont_write_bytecode = False
    with ProcessPoolExecutor() as pool:
        list(pool.map(compiled, sorted(HERE.rglob("*.py")), chunksize=8))
