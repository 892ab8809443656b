"""Engines that hold the same rows; generators are shared with tests/property."""

import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

from engines import Database, OnDataFusion, OnPostgres, OnSpark
from noisegate.sources.spark.server import _at_home

sys.path.append(str(Path(__file__).parents[1] / "property"))


@pytest.fixture(scope="session", autouse=True)
def _spark_client():
    """Load it as noisegate does: a test that loads it by itself would be taken for one of its own."""
    with warnings.catch_warnings(), _at_home():
        warnings.simplefilter("ignore")
        import_module("pyspark.sql.connect.session")


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
