"""A release is found by its question, or begun as the next attempt at it."""

import pyarrow as pa
import pytest

import noisegate
from noisegate.curator.measurement import digest
from noisegate.desk.job import Attempts
from noisegate.errors import RequestConflict
from noisegate.privacy.event import DeclaredEvent
from refusals import about

ROWS = pa.table({"ward": ["north", "south"] * 50})
EVENT = DeclaredEvent(epsilon=1)


def gate_of(ledger=":memory:", **more):
    columns = {"ward": {"in": ["north", "south"]}}
    return noisegate.open(
        ROWS, epsilon=20, columns=columns, table="people", ledger=ledger, snapshot="1", **more
    )


def test_the_next_attempt_follows_one_that_left_nothing():
    attempts = Attempts(gate_of()._curator, "what")
    with attempts.begin(EVENT):
        pass
    assert attempts.found() is None
    with attempts.begin(EVENT) as allowed:
        allowed.finish(b"made")
    assert attempts.found() == (allowed.request_id, b"made")


def test_an_attempt_that_has_not_ended_is_passed_by_only_when_told():
    attempts = Attempts(gate_of()._curator, "what")
    with attempts.begin(EVENT):
        with pytest.raises(RequestConflict, match="fresh=True"), attempts.begin(EVENT):
            pass
        with attempts.begin(EVENT, fresh=True) as allowed:
            allowed.finish(b"second")
        assert attempts.found() == (allowed.request_id, b"second")


def test_a_release_that_was_made_since_one_looked_is_not_paid_for_again():
    attempts = Attempts(gate_of()._curator, "what")
    assert attempts.found() is None
    with attempts.begin(EVENT) as allowed:  # by another thread or process
        allowed.finish(b"made")
    with pytest.raises(RequestConflict, check=about("made")), attempts.begin(EVENT):
        pass
    assert attempts.curator.ledger.balance("people").reservations == 1


def test_a_name_that_was_taken_for_something_else_is_passed_by():
    curator = gate_of()._curator
    for number in range(2):
        name = f"release {digest('what')} {number}"
        with curator.allowance(EVENT, question="other", request_id=name) as allowed:
            allowed.finish(b"other")
    attempts = Attempts(curator, "what")
    with attempts.begin(EVENT) as allowed:
        allowed.finish(b"mine")
    assert attempts.found() == (allowed.request_id, b"mine")


def test_a_conflict_inside_an_attempt_is_its_own():
    attempts = Attempts(gate_of()._curator, "what")
    with pytest.raises(RequestConflict, match="inside"), attempts.begin(EVENT):
        raise RequestConflict("It is inside.", fix="Look there.")
    assert attempts.curator.ledger.attempts("what", account=attempts.curator.account) == (1, 0)


def test_the_card_of_a_release_that_another_analyst_made_names_its_entry(tmp_path):
    sql = "SELECT COUNT(*) FROM people GROUP BY ward"
    with_ann = gate_of(tmp_path / "book", analyst="ann")
    made = with_ann.release("histogram", sql, epsilon=1)
    again = gate_of(tmp_path / "book", analyst="bob").release("histogram", sql, epsilon=1)
    assert again.free
    assert again.request_id == made.request_id
    assert len(made.card().record["ledger"]) == 2  # begun, closed
    assert again.card().record["ledger"] == made.card().record["ledger"]
