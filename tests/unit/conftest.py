"""The bench's scripts, for tests of them."""

import importlib
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """The scripts as they see each other: by plain names, forgotten again after the test."""
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module
    for script in BENCH.glob("*.py"):
        sys.modules.pop(script.stem, None)
