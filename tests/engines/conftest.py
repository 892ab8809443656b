"""Engines that hold the same rows; generators are shared with tests/property."""

import sys
from pathlib import Path

import pytest

from engines import Database

sys.path.append(str(Path(__file__).parents[1] / "property"))


@pytest.fixture
def database(server):
    found = Database(server)
    yield found
    found.close()


@pytest.fixture(scope="module")
def shared_database(server):
    found = Database(server)
    yield found
    found.close()
