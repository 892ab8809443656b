"""Crowds in SQL under a policy, and beside other ways of protecting a table."""

from fractions import Fraction

import numpy as np
import pytest

import noisegate as ng
from noisegate.crowd.having import crowd_of
from noisegate.desk.terms.rules import Rules
from noisegate.errors import PolicyError, SpecError
from noisegate.lab.crowds import compare, made_up
from refusals import about

ASKED = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward HAVING COUNT(*) >= 40"
POLICY = """
name = "town"
[budget]
epsilon = 4
delta = 1e-4
[questions]
default_epsilon = 0.1
max_epsilon = 1
crowd = { probability = 0.5, delta = 1e-5 }
[tables.people]
source = "people.csv"
every_row_is_one_person = true
[tables.people.columns]
ward = { in = ["north", "south", "west"] }
"""


@pytest.fixture
def town(tmp_path):
    rows = ["ward", *["north"] * 600, *["south"] * 300, *["west"] * 5]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")

    def opened(policy=POLICY):
        (tmp_path / "town.toml").write_text(policy)
        return ng.open(tmp_path / "town.toml", ledger=":memory:")

    return opened


def test_having_a_crowd_is_answered_by_a_sample(town):
    """False alarm: six standard deviations of two binomial counts, once in 10⁸ runs."""
    gate = town()
    plan = gate.plan(ASKED)
    answer = gate.sql(ASKED)
    assert [row[0] for row in answer.rows] == ["north", "south"]
    for (_, n), exact in zip(answer.rows, (600, 300), strict=True):
        assert abs(n - exact) < 6 * exact**0.5
        assert n % 2 == 0  # counted, then scaled up: no noise
    assert float(gate.spent.epsilon) == pytest.approx(float(plan.price.epsilon), rel=1e-12)
    assert gate.spent.delta <= Fraction(1, 10**5)
    assert [bars is None for bars in answer.margins().values()] == [True, False]
    assert gate.sql(ASKED).cost.epsilon == 0
    assert "crowd" in plan.to_dict()
    assert any(name == "crowd" for name, _ in plan.facts())


def test_with_a_price_it_is_answered_by_noise(town):
    gate = town()
    gate.sql(ASKED, epsilon="0.2")
    assert gate.spent.epsilon == Fraction(1, 5)
    assert gate.spent.delta == 0


def test_a_policy_that_does_not_allow_crowds_has_none(town):
    gate = town(POLICY.replace("crowd =", "# crowd ="))
    gate.sql(ASKED)
    assert gate.spent.epsilon == Fraction(1, 10)


def test_crowds_keep_to_the_limits_of_the_policy(town):
    small = ASKED.replace("40", "12")
    with pytest.raises(SpecError):  # it would cost more than one question may
        town().sql(small)
    with pytest.raises(PolicyError, check=about("delta")):
        town(POLICY.replace("delta = 1e-5", "delta = 1e-3"))
    with pytest.raises(PolicyError):
        town(POLICY.replace("probability = 0.5", "probability = 1.5"))


RULES = Rules(crowd=(Fraction(1, 2), Fraction(1, 10**6)))


@pytest.mark.parametrize(
    ("sql", "crowd"),
    [
        ("SELECT ward, COUNT(*) FROM people GROUP BY ward HAVING COUNT(*) >= 20", 20),
        ("SELECT ward, COUNT(*) FROM people GROUP BY ward having count( * ) > 20 ; ", 21),
        (
            "SELECT ward, COUNT(*) FROM people GROUP BY ward HAVING COUNT(*) >= 20 ORDER BY ward",
            None,
        ),
        ("SELECT ward, COUNT(*) FROM people GROUP BY ward HAVING COUNT(*) < 20", None),
        ("SELECT ward, COUNT(*) FROM people GROUP BY ward HAVING COUNT(ward) >= 20", None),
        (
            "SELECT ward, COUNT(*), COUNT(ward) FROM people GROUP BY ward HAVING COUNT(*) >= 20",
            None,
        ),
        ("SELECT ward FROM people GROUP BY ward HAVING COUNT(*) >= 20", None),
        ("SELECT ward, COUNT(*) FROM people GROUP BY ward -- HAVING COUNT(*) >= 20", None),
        ("SELECT COUNT(*) FROM people WHERE ward = ' HAVING COUNT(*) >= 20'", None),
    ],
)
def test_only_the_plain_form_asks_for_a_crowd(town, sql, crowd):
    tables = town().tables
    found = crowd_of(sql, RULES, tables)
    assert (found and found[0].crowd) == crowd
    assert crowd_of(sql, Rules(), tables) is None


def test_what_is_no_plain_count_is_answered_by_noise(town):
    gate = town()
    gate.sql(ASKED.replace("COUNT(*) AS n", "COUNT(*) AS n, COUNT(ward) AS m"))
    assert gate.spent.epsilon == Fraction(1, 10)
    assert gate.spent.delta == 0


@pytest.mark.long
def test_ways_of_protecting_a_table_compared():
    """False alarm: errors over 200 trials and 20 cells differ by half once in 10⁹ runs."""
    counts = made_up(200_000, 40)
    ways = {
        way.name: way
        for way in compare(counts, probability="1/2", crowd=50, delta="1e-6", trials=200)
    }
    crowd, noise = ways["crowd-blending on a secret sample"], ways["noise on a secret sample"]
    everything = ways["noise on all rows"]
    assert ways["k-anonymity"].promise == "none"
    assert crowd.of_sample == 0 < noise.of_sample
    assert crowd.of_people == pytest.approx(np.sqrt(counts[counts > 156].mean()), rel=0.25)
    assert everything.of_people < crowd.of_people / 5  # where all rows may be used
    few = compare([10, 60, 100_000], probability="1/2", crowd=50, delta="1e-6", trials=20)
    assert few[2].hidden >= 1
    assert few[2].small > few[4].small
    for wrong in ([], [-1]):
        with pytest.raises(SpecError):
            compare(wrong, probability="1/2", crowd=50, delta="1e-6")
    with pytest.raises(SpecError):
        made_up(0, 5)
