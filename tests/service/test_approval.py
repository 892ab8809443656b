"""What a steward approves: it is queued once that is written down, and its time begins then."""

from contextlib import closing
from fractions import Fraction
from threading import Thread

import pytest

from noisegate.errors import OperatorError, SpecError
from noisegate.orders import order_from
from noisegate.server.service import Service
from noisegate.server.settings import Settings
from refusals import about

COUNT = order_from({"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1"})


@pytest.fixture
def careful(clinic):
    """A service where everything has to be approved."""
    settings = Settings(quantum=0.1, approve_above=Fraction(1, 1000))
    with closing(Service([clinic], settings=settings)) as made:
        for name, role in (("ana", "analyst"), ("sam", "steward")):
            made.people.add(name, role)
        yield made


@pytest.fixture
def waiting(careful):
    """A run that waits since long ago."""
    run = careful.view(careful.people.caller_of("ana"), "clinic").start(COUNT)
    assert run.state == "waiting"
    run.begun_at -= 1000
    return run


def test_the_ladder_of_times_begins_with_the_approval(careful, waiting):
    careful.approve(careful.people.caller_of("sam"), waiting.id)
    assert waiting.wait(20), "not at a rung of the time that it waited"
    assert waiting.result().answer.table.num_rows == 1


def test_an_approval_that_cannot_be_written_down_is_none(careful, waiting, monkeypatch):
    sam = careful.people.caller_of("sam")

    def full(*args, **said):
        raise OperatorError("The disk is full.", fix="Make room.")

    with monkeypatch.context() as patch:
        patch.setattr(careful.log, "add", full)
        with pytest.raises(OperatorError):
            careful.approve(sam, waiting.id)
    assert waiting.state == "waiting"
    assert careful.approve(sam, waiting.id).wait(20)


def test_an_approval_does_not_undo_a_cancel(careful, waiting, monkeypatch):
    """Also of whoever cancels while it is written down."""
    sam, written = careful.people.caller_of("sam"), careful.log.add
    cancels = Thread(target=waiting.cancel)

    def slow(*args, **said):
        cancels.start()
        cancels.join(0.2)
        written(*args, **said)

    monkeypatch.setattr(careful.log, "add", slow)
    careful.approve(sam, waiting.id)
    cancels.join()
    assert waiting.state == "cancelled"
    with pytest.raises(SpecError, check=about("state")):
        careful.approve(sam, waiting.id)
