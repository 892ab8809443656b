import copy
import os
import threading

import pytest

from door import WARDS, Watched, counting, curator, domain
from noisegate.curator.allowance import Scope
from noisegate.errors import OverBudget, RequestConflict, Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.privacy.event import DeclaredEvent, NothingEvent, Parallel, Sequential
from refusals import about


def spent(door):
    return str(door.ledger.balance("clinic").spent)


def allow(door, epsilon="0.6", request_id="tree", question="tree/1"):
    return door.allowance(DeclaredEvent(epsilon=epsilon), question=question, request_id=request_id)


def test_an_allowance_is_charged_up_front_and_gives_back_what_it_did_not_use():
    door = curator()
    with allow(door) as recipe:
        assert spent(door) == "ε = 0.6"
        recipe.whole.measure(counting("0.25"))
        recipe.finish(b"result")
    assert spent(door) == "ε = 0.25"


def test_questions_along_a_line_add_up_and_the_last_that_does_not_fit_is_refused():
    source = Watched()
    door = curator(source=source)
    with allow(door) as recipe:
        recipe.whole.measure(counting("0.3"))
        recipe.whole.measure(counting("0.3"))  # the same question again is drawn and charged again
        with pytest.raises(OverBudget, check=about("allowance")):
            recipe.whole.measure(counting("0.01"))
    assert spent(door) == "ε = 0.6"
    assert source.reads == 1  # the cells stay inside the door while it is open


def test_what_is_no_measurement_is_refused_before_it_is_noted_down():
    door = curator()
    with allow(door) as recipe:
        with pytest.raises(Unsupported, check=about("measurement")):
            recipe.whole.measure(object())
        assert recipe.used() == NothingEvent()


def test_disjoint_parts_cost_like_one():
    door = curator()
    with allow(door) as recipe:
        recipe.whole.measure(counting("0.1"))
        for part in recipe.whole.cut("ward", WARDS):
            assert part.measure(counting("0.5")).values.shape == (1, 1)
    assert spent(door) == "ε = 0.6"


def test_parts_are_really_disjoint():
    door = curator(budget=1000)
    with allow(door, epsilon=100) as recipe:
        north, south, west = (
            int(part.measure(counting("50")).values[0, 0])
            for part in recipe.whole.cut("ward", WARDS)
        )
    # at ε = 50 an answer is off with probability below 4 e^-50
    assert (north, south, west) == (75, 25, 0)


def test_two_cuts_add_up():
    door = curator()
    with allow(door) as recipe:
        recipe.whole.cut("ward", WARDS)[0].measure(counting("0.3"))
        recipe.whole.cut("ward", WARDS)[1].measure(counting("0.3"))
        with pytest.raises(OverBudget):
            recipe.whole.cut("ward", WARDS)[2].measure(counting("0.01"))
        events = recipe.used()
    assert isinstance(events, Sequential)
    assert all(isinstance(event, Parallel) for event in events.events)
    assert spent(door) == "ε = 0.6"


def test_parts_are_not_parallel_where_a_person_may_be_in_several():
    table = domain(unit="id")
    door = curator(table=table)
    with allow(door) as recipe, pytest.raises(Unsupported, check=about("parallel")):
        recipe.whole.cut("ward", WARDS)[0].measure(counting("0.1", table, cap=5))


@pytest.mark.parametrize("keys", [("north", "north"), ("north", "nowhere")])
def test_parts_must_be_declared_and_listed_once(keys):
    door = curator()
    with allow(door) as recipe, pytest.raises(Unsupported):
        for part in recipe.whole.cut("ward", keys):
            part.measure(counting("0.1"))


def test_a_part_is_not_cut_by_the_same_column_again():
    with allow(curator()) as recipe, pytest.raises(Unsupported, check=about("part")):
        recipe.whole.cut("ward", WARDS)[0].cut("ward", WARDS)


def test_a_recipe_that_fails_keeps_what_was_drawn_charged():
    door = curator()

    def fail():
        with allow(door) as recipe:
            recipe.whole.measure(counting("0.25"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert spent(door) == "ε = 0.25"
    assert door.ledger.verify().ok


def test_a_finished_recipe_is_answered_from_the_ledger(tmp_path):
    source = Watched()
    door = curator(tmp_path / "l", source=source)
    with allow(door) as recipe:
        assert recipe.answer is None
        recipe.whole.measure(counting("0.25"))
        recipe.finish(b"result")
    with allow(curator(tmp_path / "l", source=source)) as again:
        assert again.answer == b"result"
        with pytest.raises(RequestConflict):
            again.whole.measure(counting("0.25"))
        with pytest.raises(RequestConflict):
            again.finish(b"another")
    assert spent(door) == "ε = 0.25"
    assert source.reads == 1


def test_a_closed_allowance_answers_nothing_more():
    door = curator()
    with allow(door) as recipe:
        scope = recipe.whole
    with pytest.raises(RequestConflict):
        scope.measure(counting("0.1"))
    assert spent(door) == "ε = 0"


def test_an_allowance_left_open_by_a_crash_stays_spent_and_cannot_be_run_again(tmp_path):
    door = curator(tmp_path / "l")
    door.ledger.reserve(
        "clinic: recipe tree",
        question="tree/1",
        event=DeclaredEvent(epsilon="0.6"),
        account="clinic",
        kind="allowance",
    )
    with pytest.raises(RequestConflict, check=about("begun")), allow(curator(tmp_path / "l")):
        raise AssertionError
    assert spent(door) == "ε = 0.6"


def test_noise_that_the_account_cannot_price_is_refused_and_not_recorded():
    door = curator()
    with allow(door) as recipe:
        measurement = counting("0.1")
        gaussian = type(measurement)(
            query=measurement.query, mechanisms=(DiscreteGaussian(variance=9),)
        )
        with pytest.raises(Unsupported):
            recipe.whole.measure(gaussian)
    assert spent(door) == "ε = 0"


def test_racing_threads_never_draw_more_than_the_allowance():
    door = curator()
    told, refused = [], []

    def ask(scope):
        try:
            told.append(scope.measure(counting("0.1")))
        except OverBudget:
            refused.append(1)

    with allow(door) as recipe:
        threads = [threading.Thread(target=ask, args=(recipe.whole,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(told), len(refused)) == (6, 10)
    assert spent(door) == "ε = 0.6"


def test_a_forked_child_can_neither_draw_on_an_allowance_nor_close_it():
    source = Watched()
    door = curator(source=source)
    with allow(door) as recipe:
        recipe.whole.measure(counting("0.25"))
        child = os.fork()
        if child == 0:
            try:
                recipe.whole.measure(counting("0.25"))
            except RequestConflict:
                recipe.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert spent(door) == "ε = 0.6"
    assert spent(door) == "ε = 0.25"


def test_a_part_made_by_hand_is_refused():
    door = curator()
    with allow(door) as recipe:
        stranger = Scope(recipe, type(recipe._whole)((), recipe._nothing))
        with pytest.raises(Unsupported, check=about("part")):
            stranger.measure(counting("0.1"))
        with pytest.raises(Unsupported, check=about("part")):
            stranger.cut("ward", WARDS)
    assert spent(door) == "ε = 0"


def test_an_allowance_cannot_be_copied():
    door = curator()
    with allow(door) as recipe, pytest.raises(RequestConflict, check=about("copy")):
        copy.copy(recipe)


def test_a_twin_made_by_hand_closes_with_it():
    door = curator()
    with allow(door) as recipe:
        twin = object.__new__(type(recipe))
        twin.__dict__.update(recipe.__dict__)
    with pytest.raises(RequestConflict):
        twin.whole.measure(counting("0.25"))
    assert spent(door) == "ε = 0"
