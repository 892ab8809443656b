"""The bench's scripts, for tests of them; and scripts of pages, which take seconds to pack."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True, scope="session")
def packed():
    """Words in place of the scripts that pages with charts hold."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("vl_convert") is not None:
            patch.setattr("vl_convert.javascript_bundle", lambda **_: "/* scripts */")
        yield


@pytest.fixture
def bench(monkeypatch):
    """The scripts as they see each other: by plain names, forgotten again after the test."""
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module
    for script in BENCH.glob("*.py"):
        sys.modules.pop(script.stem, None)
