"""n = kb / (γε) with its true confidence, solved for whatever is left out."""

import json
import math

import pytest
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.errors import SpecError
from noisegate.planning.enough import enough
from refusals import about

GIVEN = {
    "queries": 10, "bound": 2, "tolerance": "0.05", "epsilon": "0.5", "rows": 4239,
    "confidence": "0.95",
}  # fmt: skip


def failure(found):
    """The chance that some noise is too large, by the law itself."""
    factor = 1 if found.what == "histogram" else found.queries
    rows = found.rows or 1
    exponent = rows * found.tolerance * found.epsilon / (factor * found.bound)
    return found.queries * math.exp(-exponent)


@pytest.mark.parametrize("name", list(GIVEN))
def test_all_but_one_give_the_last(name):
    found = enough("mean", **(GIVEN | {name: None}))
    assert found.solved == name
    assert failure(found) <= float(1 - found.confidence) * (1 + 1e-9)
    assert float(getattr(found, name)) == pytest.approx(float(GIVEN[name]), rel=2e-3)


@pytest.mark.parametrize("what", ["sum", "count", "histogram"])
@pytest.mark.parametrize("name", ["queries", "tolerance", "epsilon", "confidence"])
def test_sums_counts_and_cells_need_no_rows(what, name):
    wide = 20 if what == "histogram" else 400
    given = {"queries": 20, "bound": 3, "tolerance": wide, "epsilon": 1, "confidence": "0.9"}
    found = enough(what, **(given | {name: None}))
    assert failure(found) <= float(1 - found.confidence) * (1 + 1e-9)
    more = enough(what, **(given | {name: None, "bound": 4}))
    assert (
        (more.queries < found.queries)
        or more.tolerance > found.tolerance
        or (more.epsilon > found.epsilon or more.confidence < found.confidence)
    )


def test_the_factor_k_is_for_an_epsilon_of_all_questions():
    one, ten = (enough("sum", queries=k, bound=1, epsilon=1).tolerance for k in (1, 10))
    cells = enough("histogram", queries=10, epsilon=1)
    assert float(ten / one) == pytest.approx(10 * math.log(200) / math.log(20))
    assert float(cells.tolerance / one) == pytest.approx(math.log(200) / math.log(20))
    assert cells.epsilon_each == 1


def test_the_textbook_number_of_rows_holds_for_one_question_in_63_of_100():
    found = enough("mean", queries=4, bound=1, tolerance="0.01", epsilon=1)
    assert found.textbook_rows == 400
    one, together = found.textbook_confidence
    assert float(one) == pytest.approx(1 - math.exp(-1))
    assert float(together) == pytest.approx((1 - math.exp(-1)) ** 4)


@pytest.mark.parametrize(
    ("what", "terms", "subject"),
    [
        ("median", GIVEN, "what"),
        ("mean", GIVEN, "missing"),
        ("mean", {"queries": 3}, "missing"),
        ("count", {"queries": 3, "epsilon": 1, "rows": 5}, "missing"),
        ("mean", GIVEN | {"rows": None, "confidence": 1}, "confidence"),
        ("mean", GIVEN | {"queries": None, "rows": 1}, "queries"),
        ("mean", GIVEN | {"confidence": None, "rows": 1}, "confidence"),
    ],
)
def test_what_cannot_be_solved_is_refused(what, terms, subject):
    with pytest.raises(SpecError, check=about(subject)):
        enough(what, **terms)


def test_the_command_solves_it():
    words = "what-if --queries 10 --bound 1 --tolerance 0.01 --epsilon 1 --json"
    found = json.loads(CliRunner().invoke(app, words.split()).stdout)
    assert (found["solved"], found["rows"], found["textbook_rows"]) == ("rows", 5299, 1000)
    assert CliRunner().invoke(app, ["what-if", "--epsilon", "1"]).exit_code != 0
