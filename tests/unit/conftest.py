"""The bench's scripts, for tests of them; and scripts of pages, which take seconds to pack."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest
from kept_engines import MADE_BY, kept, kept_source

from noisegate.sources.duckdb.source import DuckDBSource

BENCH = Path(__file__).parents[2] / "bench"
sys.path.append(str(BENCH))  # for `trials`


@pytest.fixture(autouse=True, scope="session")
def packed():
    """Words in place of the scripts that pages with charts hold; gives what packs the real ones."""
    with pytest.MonkeyPatch.context() as patch:
        real = None
        if importlib.util.find_spec("vl_convert") is not None:
            real = importlib.import_module("vl_convert").javascript_bundle
            patch.setattr("vl_convert.javascript_bundle", lambda **_: "/* scripts */")
        yield real


@pytest.fixture(autouse=True, scope="session")
def engines():
    """Gates in front of the same rows have one engine: `kept_engines.py`."""
    with pytest.MonkeyPatch.context() as patch:
        for room in MADE_BY:
            patch.setattr(f"noisegate.{room}.DuckDBSource", kept_source)
        yield
    kept.clear()


@pytest.fixture
def own_engine(monkeypatch):
    """An engine for each source, as everywhere but in unit tests."""
    for room in MADE_BY:
        monkeypatch.setattr(f"noisegate.{room}.DuckDBSource", DuckDBSource)


@pytest.fixture
def bench(monkeypatch):
    """The scripts as they see each other: by plain names, forgotten again after the test."""
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module
    for script in BENCH.glob("*.py"):
        sys.modules.pop(script.stem, None)
