"""The bench's scripts, for tests of them; scripts of pages, which take seconds to pack; engines."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest
from kept_engines import KeptEngines, connect

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
def kept_engines():
    """One engine for all frames of the same columns."""
    kept = KeptEngines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBSource, "_connect", lambda source: kept.connect(source))  # noqa: PLW0108 - a method
        yield


@pytest.fixture
def own_engine(monkeypatch):
    """An engine for each source, as everywhere but in tests."""
    monkeypatch.setattr(DuckDBSource, "_connect", connect)


@pytest.fixture
def bench(monkeypatch):
    """The scripts as they see each other: by plain names, forgotten again after the test."""
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module
    for script in BENCH.glob("*.py"):
        sys.modules.pop(script.stem, None)
