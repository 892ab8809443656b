"""Engines that hold the same rows; generators are shared with tests/property."""

import sys
from pathlib import Path

import pytest

from engines import Database, OnDataFusion, OnPostgres, OnSpark

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


@pytest.fixture(scope="session")
def sail():
    found = OnSpark()
    yield found
    found.close()


@pytest.fixture(scope="session")
def fusion():
    found = OnDataFusion()
    yield found
    found.close()


@pytest.fixture(scope="module", params=["postgres", "spark", "datafusion"])
def engine(request):
    """How to show rows to an engine that is not the embedded one."""
    if request.param == "postgres":
        return OnPostgres(request.getfixturevalue("shared_database"))
    return request.getfixturevalue({"spark": "sail", "datafusion": "fusion"}[request.param])
