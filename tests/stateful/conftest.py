"""Ledgers of each kind, on a real Postgres too."""

import shutil

import pytest

from noisegate.ledger.open import open_ledger
from servers import Server, quick_directory


@pytest.fixture(scope="module")
def fragile_server():
    """One that may crash, as long as it is started again."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def own_server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def quick_path():
    directory = quick_directory()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request, tmp_path):
    """Where a new durable ledger may be made; other processes can open it too."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("server").fresh()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request, tmp_path):
    """A new ledger of each kind."""
    where = {
        "memory": lambda: ":memory:",
        "sqlite": lambda: str(tmp_path / "ledger.db"),
        "postgres": lambda: request.getfixturevalue("server").fresh(),
    }[request.param]()
    with open_ledger(where) as opened:
        yield opened
