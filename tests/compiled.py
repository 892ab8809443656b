"""Compile all tests as pytest does, once and on all cores: else each of its processes does so.

    python tests/compiled.py

So with the constants in the package's own source, which Hypothesis tries beside its random examples
and keeps in a folder. Where this cannot be done, pytest and Hypothesis do it.
"""

import compileall
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, get_cache_dir
from hypothesis.internal.constants_ast import constants_from_module

HERE = Path(__file__).resolve().parent
SRC = HERE.parent / "src"
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


def looked_through(file: Path) -> None:
    """The constants of one source, found and kept by Hypothesis itself."""
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    constants_from_module(module)


if __name__ == "__main__":
    sys.dont_write_bytecode = False
    with ProcessPoolExecutor() as pool:
        made = pool.map(compiled, sorted(HERE.rglob("*.py")), chunksize=8)
        found = pool.map(looked_through, sorted(SRC.rglob("*.py")), chunksize=16)
        list(made), list(found)
