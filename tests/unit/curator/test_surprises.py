"""The session of many questions: charged first, read once, given back, never resumed."""

import copy
import os
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from door import Watched, count_query, curator, domain
from noisegate.curator import surprises as room
from noisegate.curator.surprises import SurpriseSpec, open_surprises
from noisegate.errors import OverBudget, RequestConflict, SourceError, SpecError, Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.privacy.event import AboveThresholdEvent, NothingEvent, Sequential
from noisegate.transforms.strategy import Groups, Matrix
from refusals import about

WHOLE = Groups(np.zeros(3, np.int32), 1)  # 100 rows: 75 north, 25 south, 0 west
EACH = Groups(np.arange(3, dtype=np.int32), 3)


def spec(epsilon=40, most=2, threshold=10, *, restarts=False, number=None, **more):
    """Half for comparisons and half for numbers; at ε = 40 hardly any noise."""
    times = 1 if restarts else most
    band = OutsideBand.for_epsilon(
        Fraction(epsilon, 2 * most // times), threshold=threshold, sensitivity=1, cutoff=times
    )
    number = number or Geometric(scale=Fraction(2 * most, epsilon))
    terms = {"cells": count_query(by="ward"), "reach": 1, "most": most, "restarts": restarts}
    return SurpriseSpec(**({"band": band, "number": number} | terms | more))


def begin(door, wanted=None, request_id="1"):
    return open_surprises(door, wanted or spec(), name="test", request_id=request_id)


def whole(*numbers):
    return np.array(numbers, np.int64)


def spent(door):
    return str(door.ledger.balance("clinic").spent)


def test_a_surprise_is_answered_and_the_rest_is_near():
    """At ε = 40 comparisons have scales 0.2: a wrong one has a chance below e^-30."""
    with begin(curator(budget=100)) as session:
        told = session.ask(EACH, whole(75, 60, 0))
        assert (told.near, told.side) == (1, -1)
        assert abs(told.number - 25) <= 5  # scale 1/10
        assert session.ask(WHOLE, whole(100)) == room.Told(1, 0, None)
        assert session.ask(WHOLE, whole(50)).side == 1
        assert session.left == 0
        with pytest.raises(RequestConflict, check=about("last-surprise")):
            session.ask(WHOLE, whole(100))


def test_all_of_it_is_charged_first_and_read_once():
    source = Watched()
    door = curator(source=source, budget=100)
    with begin(door) as session:
        assert (spent(door), source.reads) == ("ε = 40", 0)
        session.ask(WHOLE, whole(100))
        session.ask(WHOLE, whole(60))
        assert source.reads == 1
    assert source.reads == 1
    with pytest.raises(OverBudget), begin(curator(source=source, budget=39)):
        pass
    assert source.reads == 1


def test_what_was_never_asked_costs_nothing():
    door = curator(budget=100)
    with begin(door) as session:
        assert session.used() == NothingEvent()
    assert spent(door) == "ε = 0"


def require_tries_paid(wanted):
    """Whether rows can be read may tell of them: a session that asks in vain pays for its run."""
    source = Watched()
    source.broken = SourceError("The rows find no room.", fix="Ask again.")
    door = curator(source=source, budget=100)
    begun = wanted.used(runs=1, yeses=0)
    with begin(door, wanted) as session:
        for _ in range(3):  # under one charge, like any request that is run again
            with pytest.raises(SourceError):
                session.ask(WHOLE, whole(100))
        assert session.used() == begun
    charges = door.ledger.quote(begun, account="clinic").charges
    assert door.ledger.balance("clinic").charge == charges["clinic"]
    assert charges["clinic"].amount > 0
    assert door.ledger.verify().ok


@pytest.mark.parametrize("restarts", [False, True])
def test_a_try_to_read_that_fails_is_not_free(restarts):
    require_tries_paid(spec(restarts=restarts))


def test_a_session_that_reads_before_it_has_begun_is_caught(monkeypatch):
    begun = room.Surprises._begun
    monkeypatch.setattr(room.Surprises, "_begun", lambda self: (self._read(), begun(self))[1])
    with pytest.raises(AssertionError):
        require_tries_paid(spec())


@pytest.mark.parametrize("yeses", [0, 1, 2])
def test_unused_surprises_are_given_back_where_losses_are_pure(yeses):
    door = curator(budget=100)
    wanted = spec(most=2)
    with begin(door, wanted) as session:
        session.ask(WHOLE, whole(100))
        for _ in range(yeses):
            session.ask(WHOLE, whole(0))
    run = wanted.band.event(Fraction(1))
    number = Fraction(10)  # ε of each
    used = run.epsilon_threshold + yeses * (run.epsilon_queries / 2 + number)
    assert 0 <= door.ledger.balance("clinic").spent.epsilon - used < Fraction(1, 10**23)  # a grain
    assert door.ledger.verify().ok


def test_runs_with_one_yes_each_compose_like_runs():
    """Three runs of ε = 1/10 are (3/2) 1/100 in ρ, and only begun ones are charged."""
    door = curator(budget=3, accountant="zcdp", delta="1e-6")
    wanted = spec(Fraction(6, 10), 3, 1000, restarts=True, number=DiscreteGaussian(variance=100))
    event = wanted.event()
    assert door.ledger.quote(event, account="clinic").charges["clinic"].as_fractions()[
        0
    ] == Fraction(3, 200) + Fraction(3, 200)
    with begin(door, wanted) as session:
        session.ask(WHOLE, whole(100))
        used = session.used()
    assert isinstance(used, AboveThresholdEvent)
    assert used.epsilon_threshold + used.epsilon_queries == Fraction(1, 10)
    with begin(door, wanted, "2") as session:
        session.ask(WHOLE, whole(9000))  # scales are 20
        assert isinstance(session.used(), Sequential)
        assert door.ledger.quote(session.used(), account="clinic").charges["clinic"].as_fractions()[
            0
        ] == Fraction(1, 100)


def test_one_run_for_all_is_refused_where_losses_are_not_pure():
    door = curator(budget=100, accountant="zcdp", delta="1e-6")
    with pytest.raises(Unsupported, check=about("accountant")), begin(door):
        pass
    assert spent(door).startswith("ε = 0")


def test_the_noise_of_ends_is_drawn_anew_for_each_run(monkeypatch):
    started = []
    start = OutsideBand.start

    def watched(self, **more):
        started.append(start(self, **more))
        return started[-1]

    monkeypatch.setattr(OutsideBand, "start", watched)
    with begin(curator(budget=100), spec(most=3, restarts=True)) as session:
        for guess in (0, 100, 0):
            session.ask(WHOLE, whole(guess))
    assert len(started) == len(set(map(id, started))) == 2
    assert started[0].is_over


def test_a_session_that_a_crash_left_open_is_spent(tmp_path):
    door = curator(tmp_path / "ledger", budget=100)
    manager = begin(door)
    manager.__enter__().ask(WHOLE, whole(100))  # and never left
    again = curator(tmp_path / "ledger", budget=100)
    with pytest.raises(RequestConflict, check=about("begun")), begin(again):
        pass
    assert spent(again) == "ε = 40"


def test_a_session_that_is_over_stays_over():
    door = curator(budget=100)
    with begin(door) as session:
        session.finish(b"model")
    with pytest.raises(RequestConflict):
        session.ask(WHOLE, whole(1))
    with pytest.raises(RequestConflict, check=about("over")), begin(door):
        pass


def test_a_failing_user_pays_for_what_was_asked():
    door = curator(budget=100)
    with pytest.raises(ZeroDivisionError), begin(door) as session:
        session.ask(WHOLE, whole(100))
        raise ZeroDivisionError
    assert 0 < door.ledger.balance("clinic").spent.epsilon < 40


def test_a_forked_child_cannot_ask():
    with begin(curator(budget=100)) as session:
        session.ask(WHOLE, whole(100))
        child = os.fork()
        if child == 0:
            try:
                session.ask(WHOLE, whole(100))
            except RequestConflict:
                os._exit(session._cells is not None)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_session_is_not_copied():
    with begin(curator(budget=100)) as session:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(RequestConflict):
                copied(session)


def test_threads_share_the_surprises():
    with begin(curator(budget=1000), spec(400, most=5)) as session:
        found = []

        def ask():
            while True:
                try:
                    found.append(session.ask(WHOLE, whole(0)).side)
                except RequestConflict:
                    return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1] * 5


@pytest.mark.parametrize(
    "block",
    [
        Matrix(csr_array(np.array([[1, 2, 0]]))),
        Matrix(csr_array(np.array([[1, -1, 0]]))),
        Groups(np.zeros(4, np.int32), 1),
    ],
)
def test_coefficients_beyond_the_reach_are_refused_and_draw_nothing(block):
    with begin(curator(budget=100)) as session:
        with pytest.raises(Unsupported):
            session.ask(block, whole(0))
        assert session.used() == NothingEvent()


@pytest.mark.parametrize("guesses", [whole(1, 2), np.array([1.0]), whole(1 << 61), [1]])
def test_bad_guesses_are_refused(guesses):
    with begin(curator(budget=100)) as session:
        with pytest.raises(SpecError):
            session.ask(WHOLE, guesses)
        assert session.used() == NothingEvent()


def test_a_wider_reach_costs_as_much_more():
    one, three = spec(), spec(reach=3)
    door = curator(budget=1000)
    prices = [door.loss_of(each.event()).epsilon for each in (one, three)]
    assert prices[1] == 3 * prices[0]


@pytest.mark.parametrize(
    "more",
    [
        {"cells": count_query(by="ward", table=domain(name="other"))},
        {"band": OutsideBand(threshold=1, threshold_scale=1, query_scale=1, cutoff=3)},
        {"number": OutsideBand(threshold=1, threshold_scale=1, query_scale=1, cutoff=2)},
        {"reach": 0},
    ],
)
def test_what_has_no_rule_is_refused(more):
    with pytest.raises((SpecError, Unsupported)), begin(curator(budget=100), spec(**more)):
        pass
