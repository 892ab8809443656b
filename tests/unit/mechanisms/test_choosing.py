"""Private choices as analysts make them: candidates from SQL, the price, the promise, the ledger."""

import json
from fractions import Fraction
from math import exp, log

import numpy as np
import pyarrow as pa
import pytest
from command_line import run

import noisegate as ng
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.top_k import TopK
from refusals import about

WARDS = ("north", "south", "west")
FACTS = {
    "ward": {"in": list(WARDS)},
    "bid": {"between": [0, 10]},
    "town": {},
    "age": {"type": "integer", "between": [0, 99]},
}
BY_WARD = "SELECT ward, COUNT(*) AS n FROM data GROUP BY ward"


def rows():
    """100 people in the north, 60 in the south, 10 in the west; bids 1, 2, …"""
    ward = ["north"] * 100 + ["south"] * 60 + ["west"] * 10
    count = len(ward)
    return pa.table(
        {
            "ward": ward,
            "bid": np.arange(count) % 9 + 1.0,
            "town": ["a"] * count,
            "age": np.arange(count) % 90,
            "who": np.arange(count) // 2,
        }
    )


def gate(epsilon=200, **more):
    return ng.open(rows(), epsilon=epsilon, columns=FACTS, **more)


def prices(unit="bid", steps=range(1, 10)):
    cases = (f'SUM(CASE WHEN {unit} >= {p} THEN {p} ELSE 0 END) AS "{p}"' for p in steps)
    return f"SELECT {', '.join(cases)} FROM data"


# what is chosen


def test_the_largest_group_is_chosen_and_how_far_it_leads():
    choice = gate().choose(BY_WARD, epsilon=20, gap=True)
    assert choice.winner == "north"  # another one with e^-800
    assert abs(choice.gap - 40) <= 3  # missed with e^-40
    assert choice.expected.method == "noisy-max"


def test_the_smallest_group_is_chosen_on_request():
    assert gate().choose(BY_WARD, epsilon=20, least=True).winner == "west"


def test_the_best_of_a_sample_is_chosen_at_its_amplified_price():
    """For p = 1/2, ε = 1 buys ln(1 + 2 (e - 1)) for those who are in it; leads are scaled up."""
    held = gate()
    choosing = held.sample("1/2")
    plan = choosing.choose_plan(BY_WARD, epsilon=1)
    assert float(plan.expected.selection.factor) == pytest.approx(
        log(1 + 2 * (exp(1) - 1)), rel=1e-6
    )
    assert plan.expected.grain == 2
    choice = choosing.choose(BY_WARD, epsilon=1)
    assert float(choice.cost.epsilon) == pytest.approx(1, rel=1e-6)
    assert choice.cost.epsilon <= 1
    assert float(held.spent.epsilon) == pytest.approx(1, rel=1e-6)
    assert "best of a secret sample" in str(choice)


def test_several_are_chosen_best_first():
    choice = gate().choose(BY_WARD, epsilon=40, k=2)
    assert choice.winners == ("north", "south")
    assert len(choice.gaps) == 2
    everyone = gate().choose(BY_WARD, epsilon=60, k=3)
    assert (everyone.winners, everyone.gaps) == (WARDS, None)
    assert everyone.expected.method == "exponential"


def test_each_aggregate_is_a_candidate_under_its_name():
    revenue = [p * int((np.array(rows()["bid"]) >= p).sum()) for p in range(1, 10)]
    best = str(1 + int(np.argmax(revenue)))
    second = sorted(revenue)[-2]
    choice = gate().choose(prices(), epsilon=180)
    assert max(revenue) - second >= 4
    assert choice.winner == best  # lacks 4 of reach 9: another with e^-80


def test_groups_of_two_columns_are_pairs():
    sql = "SELECT ward, age >= 45, COUNT(*) FROM data GROUP BY 1, 2"
    choice = gate().choose("SELECT ward, BIN(age, 50) AS half, COUNT(*) FROM data GROUP BY 1, 2",
                           epsilon=50)  # fmt: skip
    assert choice.winner[0] == "north"
    with pytest.raises(NoisegateError):
        gate().choose(sql, epsilon=1, k=99)


def test_filters_and_null_values_count_nothing():
    sql = (
        "SELECT COUNT(*) FILTER (WHERE ward = 'west') AS west, COUNT(bid) AS bids, "
        "SUM(age) FILTER (WHERE age > 98) AS old FROM data"
    )
    found = gate().choose(sql, epsilon=190, k=2, method="exponential")
    assert found.winners[0] == "bids"


# what it costs


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        ({}, PermuteAndFlip),
        ({"k": 2}, NoisyMax),
        ({"gap": True}, NoisyMax),
        ({"method": "noisy-max"}, NoisyMax),
        ({"method": "exponential"}, Exponential),
        ({"method": "exponential", "k": 2}, TopK),
        ({"method": "permute-and-flip"}, PermuteAndFlip),
    ],
)
def test_counts_are_monotone_so_that_all_of_epsilon_is_the_weight_of_a_row(asked, terms, kind):
    plan = asked.choose_plan(BY_WARD, epsilon=1, **terms)
    assert type(plan.expected.selection) is kind
    assert plan.expected.selection.monotone
    assert plan.expected.selection.factor == Fraction(1, terms.get("k", 1))
    assert plan.price.epsilon == 1


def test_sums_of_both_signs_pay_twice():
    sql = "SELECT SUM(age - 50) AS a, SUM(age - 10) AS b FROM data"
    plan = gate().choose_plan(sql, epsilon=1)
    assert not plan.expected.selection.monotone
    assert plan.expected.selection.factor == Fraction(1, 2 * 89)


def test_the_density_of_a_price_is_e_to_its_revenue():
    """The auction of McSherry and Talwar: weight e^(ε · revenue / highest price), ε in all."""
    plan = gate().choose_plan(prices(), epsilon=2, method="exponential")
    assert plan.expected.selection.factor / plan.expected.grain == Fraction(2, 9)
    counts = dict.fromkeys(range(1, 10), 9) | {1: 999}  # the lowest price earns most
    for bid in (0, 4, 9):  # with one more bidder, at most e^2 and nearly that
        more = {p: count + (bid >= p) for p, count in counts.items()}
        laws = []
        for table in (counts, more):
            weights = np.array([2 / 9 * p * count for p, count in table.items()])
            laws.append(weights - np.logaddexp.reduce(weights))
        assert np.abs(laws[0] - laws[1]).max() <= 2 + 1e-12
    assert np.abs(laws[0] - laws[1]).max() > 1.7


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2])
@pytest.mark.parametrize("bids", ["uniform", "beta", "lumps"])
def test_the_auction_earns_what_the_theorem_says(epsilon, bids):
    """Exactly: the expected revenue of e^(ε q) on a fine grid is at least OPT - 3 ln(…) / ε."""
    chance = np.random.default_rng(4)
    for count in (30, 300, 3000):
        drawn = {
            "uniform": chance.random(count),
            "beta": chance.beta(2, 8, count),
            "lumps": chance.choice([0.1, 0.5, 0.9], count),
        }[bids]
        grid = np.arange(1, 2001) / 2000
        sold = (drawn[None] >= grid[:, None]).sum(axis=1)
        revenue = grid * sold
        best = int(np.argmax(revenue))
        weights = np.exp(epsilon * (revenue - revenue.max()))
        expected = float(weights @ revenue / weights.sum())
        bound = 3 * log(np.e + epsilon**2 * revenue[best] * sold[best]) / epsilon
        assert expected >= revenue[best] - bound


def test_no_lie_gains_more_than_the_factor_of_a_change():
    chance = np.random.default_rng(6)
    bids, grid = chance.random(12), np.arange(1, 101) / 100
    value, epsilon = bids[0], 0.3
    gain = np.maximum(0, value - grid)
    truth = None
    for bid in [value, *np.arange(0, 1.05, 0.1)]:
        said = np.append(bids[1:], bid)
        weights = np.exp(epsilon * grid * (said[None] >= grid[:, None]).sum(axis=1))
        found = float((weights / weights.sum()) @ (gain * (grid <= bid)))
        truth = found if truth is None else truth
        assert found <= exp(2 * epsilon) * truth + 1e-12


def test_people_with_many_rows_move_a_count_by_their_cap():
    capped = gate(unit="who", rows_per_unit=4)
    assert capped.choose_plan(BY_WARD, epsilon=1).expected.selection.factor * 4 == Fraction(
        1, 1 << 18
    )
    people = "SELECT ward, COUNT(DISTINCT who) AS n FROM data GROUP BY ward"
    plan = capped.choose_plan(people, epsilon=1)
    assert (
        plan.expected.selection.factor == plan.expected.grain
    )  # one person moves each by one, in all groups
    assert dict(plan.facts())["because"].endswith("one person changes each score by at most 1")
    assert plan.notes == ()
    rows_count = dict(capped.choose_plan(BY_WARD, epsilon=1).facts())["because"]
    assert rows_count.endswith("by at most 4")
    assert capped.choose(people, epsilon=30).winner == "north"


def test_zcdp_buys_twice_the_epsilon_for_an_exponential_choice():
    careful = gate(epsilon=8, delta="1e-6", accountant="zcdp")
    price = careful._desk.asked(Fraction(1, 2))  # buys ρ = 1/8
    plan = careful.choose_plan(BY_WARD, epsilon=price)
    assert type(plan.expected.selection) is Exponential
    assert float(plan.expected.selection.factor) == pytest.approx(1, rel=1e-9)
    four = careful.choose_plan(BY_WARD, epsilon=price, k=3)
    assert 0.999 < float(four.expected.selection.factor) ** 2 * 3 <= 1
    careful.choose(BY_WARD, epsilon=price)
    reserved = next(e for e in careful.ledger.history() if e.kind == "reserve")
    rho, delta = map(int, reserved.body["charges"]["data"])
    assert (rho / (720720 * 10**24), delta) == (pytest.approx(1 / 8, rel=1e-9), 0)
    gap = careful.choose_plan(BY_WARD, epsilon=price, gap=True)
    assert float(gap.expected.selection.factor) == pytest.approx(1 / 2, rel=1e-9)


def test_a_plan_is_free_and_says_how_good_the_choice_will_be():
    asked = gate()
    plan = asked.choose_plan(BY_WARD, epsilon=1, gap=True)
    assert asked.spent.epsilon == 0
    assert (
        2 * exp(-(plan.expected.shortfall(0.95) + 1))
        <= 0.05
        < 2 * exp(-plan.expected.shortfall(0.95))
    )
    assert log(3 / 0.05) <= plan.expected.gap_error(0.95) <= log(3 / 0.05) + 2
    words = dict(plan.facts())
    assert words["candidates"] == "3, of which 1 chosen"
    assert words["price"] == "ε = 1"
    assert json.loads(json.dumps(plan.to_dict()))["method"] == "noisy-max"


# the ledger


def test_the_same_choice_is_made_once():
    asked = gate(epsilon=2)
    first = asked.choose(BY_WARD, epsilon="1/2")
    again = asked.choose(BY_WARD, epsilon="1/2")
    assert (again.winners, again.free, first.free) == (first.winners, True, False)
    assert asked.spent.epsilon == Fraction(1, 2)
    assert asked.choose_plan(BY_WARD, epsilon="1/2").price.epsilon == 0
    assert asked.choose(BY_WARD, epsilon="1/2", fresh=True).cost.epsilon == Fraction(1, 2)
    assert asked.spent.epsilon == 1
    assert first.request_id in [entry.body.get("request") for entry in asked.history()]
    assert "this choice about 'data'" in str(first.guarantee)
    assert asked.ledger.verify().ok


def test_a_choice_is_never_taken_for_numbers():
    asked = gate(epsilon=3)
    asked.choose(BY_WARD, epsilon=1)
    assert asked.plan(BY_WARD, epsilon=1).price.epsilon == 1


def test_over_budget_nothing_is_drawn():
    asked = gate(epsilon="0.1")
    assert not asked.choose_plan(BY_WARD, epsilon=1).fits
    with pytest.raises(OverBudget):
        asked.choose(BY_WARD, epsilon=1)
    assert asked.spent.epsilon == 0


REFUSED = [
    ("SELECT ward, AVG(age) FROM data GROUP BY ward", {}),
    ("SELECT town, COUNT(*) FROM data GROUP BY town", {}),
    ("SELECT COUNT(*) FROM data", {}),
    ("SELECT COUNT(*) AS a, SUM(age) AS a FROM data", {}),
    ("SELECT ward, COUNT(*), SUM(age) FROM data GROUP BY ward", {}),
    ("SELECT ward, COUNT(*) FROM data GROUP BY ROLLUP (ward)", {}),
    ("SELECT ward, COUNT(*) AS n FROM data GROUP BY ward ORDER BY n", {}),
    ("SELECT ward, COUNT(*) AS n FROM data GROUP BY ward HAVING COUNT(*) > 3", {}),
    ("SELECT ward, 2 * COUNT(*) AS n FROM data GROUP BY ward", {}),
    ("EXPLAIN SELECT ward, COUNT(*) FROM data GROUP BY ward", {}),
    ("SELECT SUM(who) AS a, COUNT(*) AS b FROM data", {}),
    (BY_WARD, {"k": 4}),
    (BY_WARD, {"k": 0}),
    (BY_WARD, {"k": True}),
    (BY_WARD, {"k": 3, "gap": True}),
    (BY_WARD, {"k": 2, "method": "permute-and-flip"}),
    (BY_WARD, {"method": "lottery"}),
    (BY_WARD, {"method": "exponential", "gap": True}),
    (BY_WARD, {"epsilon": 0}),
    (BY_WARD, {"epsilon": None}),
    (BY_WARD, {"gap": "yes"}),
    (BY_WARD, {"least": 1}),
    (BY_WARD, {"within": 3}),
]


@pytest.fixture(scope="module")
def asked():
    return gate()


@pytest.mark.parametrize(("sql", "terms"), REFUSED)
def test_what_is_no_choice_is_refused_with_a_fix_and_costs_nothing(asked, sql, terms):
    with pytest.raises((SpecError, Unsupported)) as refusal:
        asked.choose(sql, **({"epsilon": 1} | terms))
    assert refusal.value.fix
    assert asked.spent.epsilon == 0


def test_without_caps_it_is_refused():
    with pytest.raises(Unsupported, check=about("cap")):
        gate(unit="who").choose(prices(), epsilon=1)


# the command


def test_the_command_plans_chooses_and_says_it_in_json(tmp_path):
    lines = "".join(f"{ward}\n" for ward in rows()["ward"].to_pylist())
    (tmp_path / "data.csv").write_text("ward\n" + lines)
    words = ("choose", "data.csv", BY_WARD, "--epsilon", "20", "--keys", "ward=north,south,west")
    shown = run(*words, "--plan", cwd=tmp_path).stdout
    assert "permute-and-flip" in shown
    shown = run(*words, "--budget", "90", "--gap", "-k", "2", cwd=tmp_path).stdout
    assert "north" in shown
    assert "ahead by" in shown
    found = json.loads(run(*words, "--gap", "-k", "2", "--json", cwd=tmp_path).stdout)
    assert found["winners"] == ["north", "south"]
    assert found["price"] == 0
    refused = run("choose", "data.csv", "SELECT COUNT(*) FROM data", "--epsilon", "1", code=2,
                  cwd=tmp_path)  # fmt: skip
    assert "two candidates" in refused.stderr
