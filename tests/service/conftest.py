"""The clinic behind a service, in a folder of its own for each test; people and their tokens."""

from functools import partial

import argon2
import pytest
from clinics import clinic_in, opened_once
from served import PEOPLE, QUICK, serving

from noisegate.server.service import Service


@pytest.fixture(autouse=True, scope="session")
def passwords_of_little_work():
    """Argon2 with its least memory and time: what is tried here is not how hard it is to guess."""
    little = partial(argon2.PasswordHasher, time_cost=1, memory_cost=64, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argon2, "PasswordHasher", little)
        yield


@pytest.fixture(autouse=True, scope="session")
def rows_opened_once():
    with opened_once():
        yield


@pytest.fixture
def clinic(tmp_path):
    """A copy of the example policy, beside its rows."""
    return clinic_in(tmp_path)


@pytest.fixture
def service(clinic):
    """A service with a steward, two analysts and an auditor; closed after the test."""
    made = Service([clinic], settings=QUICK)
    for name, role in PEOPLE.items():
        made.people.add(name, role)
    yield made
    made.close()


@pytest.fixture
def callers(service):
    """Everybody, as recognised by a token of theirs."""
    people = service.people
    return {each.name: people.by_token(people.new_token(each.name)) for each in people.everybody()}


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The clinic over HTTP, with a budget for a whole session of tests."""
    policy = clinic_in(tmp_path_factory.mktemp("served"))
    text = policy.read_text().replace("epsilon = 4", "epsilon = 100000")
    text = text.replace("ana = 2", "ana = 90000").replace(
        "ben = { epsilon = 1,", "ben = { epsilon = 3,"
    )
    policy.write_text(text)
    made = Service([policy], settings=QUICK)
    for name, role in PEOPLE.items():
        made.people.add(name, role)
    with serving(made) as found:
        yield found
    made.close()


@pytest.fixture(scope="session")
def wire():
    """A server for Postgres clients, one for all tests."""
    from wires import Wire

    made = Wire()
    yield made
    made.stop()
