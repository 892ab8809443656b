"""Expectations through the door: how near they are, what a session costs, and a learner on top."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.learners.expectations import Means
from noisegate.learners.matrix import Coordinate
from noisegate.learners.queries import (
    StatisticalQueries,
    conjunction,
    rows_needed,
    session_share,
)
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from refusals import about

FACTS = {"age": {"type": "integer", "between": [0, 99]}, "ward": {"in": ["n", "s"]}}


def rows(count=400, seed=5):
    chance = np.random.default_rng(seed)
    bits = chance.integers(0, 2, (count, 5)).astype(bool)
    return pa.table(
        {f"b{place}": bits[:, place] for place in range(5)}
        | {
            "age": chance.integers(20, 80, count),
            "ward": chance.choice(["n", "s"], count),
            "some": pa.array([None if i % 4 == 0 else True for i in range(count)]),
            "sick": bits[:, 0] & ~bits[:, 2],
            "who": np.arange(count) // 4,
        }
    )


def gate(epsilon=10_000, count=400, **more):
    return ng.open(rows(count), epsilon=epsilon, columns=FACTS, **more)


# means


def test_with_hardly_any_noise_means_are_those_of_the_rows():
    found = gate().statistic(["age", "age >= 50", "b1 AND b2", "ward"], epsilon=900)
    table = rows().to_pandas()
    expected = [
        table.age.mean(), (table.age >= 50).mean(), (table.b1 & table.b2).mean(),
        (table.ward == "n").mean(), (table.ward == "s").mean(),
    ]  # fmt: skip
    assert found.names == ("age", "age >= 50", "b1 AND b2", "ward=n", "ward=s")
    assert np.abs(found.values - expected).max() < 0.05
    assert abs(found.rows - 400) < 1
    assert np.all(np.abs(found.values - expected) <= found.within(0.999999))


def test_a_condition_that_is_unknown_counts_as_one_that_fails():
    found = gate().statistic(["some", "NOT some"], epsilon=900)
    assert found.values == pytest.approx([0.75, 0], abs=1e-3)


def test_a_mean_says_what_rows_without_a_value_count_as():
    facts = {"born": {"type": "integer", "between": [1920, 2020], "nullable": True}}
    table = pa.table({"born": pa.array([1980, None, 2000, None] * 50, pa.int64())})
    gate = ng.open(table, epsilon=10_000, table="t", columns=facts)
    told = "Rows without a value count too: born as 1,920."
    assert any(told in note for note in gate.statistic_plan("born", epsilon=900).notes)
    found = gate.statistic("born", epsilon=900)
    assert abs(found.value - 1955) < 0.05  # a wrong number by chance once in 10**9 runs
    assert any(told in caveat for caveat in found.caveats)
    known = gate.statistic("born", where="born IS NOT NULL", epsilon=900)
    assert abs(known.value - 1990) < 0.05
    assert not any("without a value" in caveat for caveat in known.caveats)


def test_what_is_left_is_never_shown_as_more():
    door = gate(epsilon=1)
    means = door.statistic(["age"], epsilon="1/3")
    assert "left ε = 0.666666\n" in str(means)  # of 2/3
    assert "0.666666<" in door._repr_html_()


def test_means_are_released_once():
    asked = gate(epsilon=3)
    first = asked.statistic("age", epsilon=1)
    again = asked.statistic("age", epsilon=1)
    assert (again.value, again.free, first.free) == (first.value, True, False)
    assert asked.spent.epsilon == 1
    asked.statistic("age", epsilon=1, fresh=True)
    assert asked.spent.epsilon == 2
    assert "±" in str(first)
    assert "these means of 'data'" in str(first.guarantee)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_tolerance_buys_the_least_price_that_keeps_it(accountant):
    asked = gate(delta="1e-6", accountant=accountant)
    found = asked.statistic(["age >= 50", "b1"], tolerance="0.02", rows=400, confidence=0.99)
    assert found.within(0.99).max() <= 0.02
    assert found.means.worst(0.99, rows=400) <= 0.02
    half = asked.statistic(["age >= 50", "b1"], tolerance="0.04", rows=400, confidence=0.99)
    assert 0.9 < float(found.cost.epsilon / half.cost.epsilon) / 2 < 1.2


NOISES = [
    (BoxNoise(scale=40, width=3), Geometric(scale=4)),
    (DiscreteGaussian(variance=900), DiscreteGaussian(variance=9)),
]


@pytest.mark.parametrize(("noise", "count_noise"), NOISES)
def test_the_exact_mean_is_within_as_often_as_stated(noise, count_noise):
    """800 draws at 80 %: more than 240 misses of at most 160 come once in 10**9."""
    exact, count, reach = np.array([3000, -900, 0]), 100, 32
    column = Coordinate("x", None, Fraction(0), Fraction(4), "x")
    truth, missed, near = 2 + 2 * exact / (reach * count), 0, 0
    draws = noise.sample(np.tile(exact, 800)).reshape(800, 3).astype(float)
    counts = count_noise.sample(np.full(800, count)).astype(float).tolist()
    for sums, noisy in zip(draws, counts, strict=True):
        means = Means(
            coordinates=(column,) * 3,
            sums=sums,
            count=noisy,
            noise=noise,
            count_noise=count_noise,
            reach=reach,
            whole=1,
        )
        off, stated = np.abs(means.values - truth)[0], means.within("0.8")[0]
        missed += off > stated + 1e-12
        near += off > stated / 4
    assert missed <= 240
    assert near >= 80  # and it is not four times as wide as it must be


def test_too_few_rows_leave_the_mean_anywhere():
    """The noise of the count passes its bound upwards with a quarter of 4e-9."""
    found = gate(count=3).statistic("age", epsilon="0.01")
    assert found.within("0.999999996")[0] == 99


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"epsilon": 0},
        {"epsilon": 1, "tolerance": 1},
        {"tolerance": "0.1"},
        {"tolerance": "0.1", "rows": 0},
        {"tolerance": 0, "rows": 9},
        {"tolerance": "1e-9", "rows": 9},
    ],
)
def test_a_price_that_is_none_is_refused(terms):
    asked = gate()
    with pytest.raises(SpecError):
        asked.statistic("age >= 50", **terms)
    assert asked.spent.epsilon == 0


def test_an_expression_without_bounds_is_refused():
    for expression in ("who", "age / who"):
        with pytest.raises(Unsupported):
            gate().statistic(expression, epsilon=1)


# sessions


def test_a_session_pays_for_what_was_asked():
    asked = gate(epsilon=2)
    with StatisticalQueries(asked, epsilon=1, queries=10) as session:
        session.mean("b1")
        session.mean("b1")
        session.mean("age")
        assert session.asked == 2
        assert asked.spent.epsilon == 1  # all is charged first
    share = session_share(10, gaussian=False)
    assert session.spent.epsilon == share + 2 * (1 - share) / 10
    assert asked.spent.epsilon == session.spent.epsilon
    assert asked.ledger.verify().ok
    assert "these means of" in str(session.guarantee)


def test_a_session_is_for_so_many_questions():
    asked = gate(epsilon=2)
    with StatisticalQueries(asked, epsilon=1, queries=2) as session:
        for place in (0, 1):
            session.mean(f"b{place}")
        with pytest.raises(SpecError, check=about("used-up")):
            session.mean("b2")
    with pytest.raises(SpecError, check=about("over")):
        session.mean("b3")
    assert asked.spent.epsilon == 1


def test_what_cannot_be_asked_costs_nothing():
    asked = gate(epsilon=1)
    with StatisticalQueries(asked, epsilon=2, queries=2) as session:
        for wrong in ("ward", "who", "nonsense"):
            with pytest.raises((SpecError, Unsupported)):
                session.mean(wrong)
        for early in (session.tolerance, lambda: session.guarantee):
            with pytest.raises(SpecError):
                early()
        with pytest.raises(OverBudget):
            session.mean("age")
    assert asked.spent.epsilon == 0
    assert session.spent.epsilon == 0
    for queries in (0, True, "3"):
        with pytest.raises(SpecError):
            StatisticalQueries(asked, epsilon=1, queries=queries)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_all_answers_are_within_the_tolerance_together(accountant):
    """At a confidence of 1 - 10**-6."""
    asked = gate(delta="1e-6", accountant=accountant)
    table = rows().to_pandas()
    with StatisticalQueries(asked, epsilon=2, queries=8) as session:
        answers = [session.mean(f"age >= {age}") for age in range(20, 60, 5)]
        tolerance = session.tolerance("0.999999")
    exact = [(table.age >= age).mean() for age in range(20, 60, 5)]
    assert np.abs(np.array(answers) - exact).max() <= tolerance < 0.5


@pytest.mark.parametrize(("epsilon", "delta"), [(2, None), (12, "1e-6")])  # 12 buys ρ = 2
def test_the_rows_that_are_needed_suffice(epsilon, delta):
    terms = {"queries": 10, "tolerance": "0.03", "epsilon": epsilon, "confidence": "0.999999"}
    needed = rows_needed(**terms, delta=delta)
    assert needed < 3_000
    asked = gate(count=needed, **{"delta": delta, "accountant": "zcdp"} if delta else {})
    with StatisticalQueries(asked, epsilon=epsilon, queries=10) as session:
        learnt = conjunction(
            session,
            [f"{no}b{place}" for no in ("", "NOT ") for place in range(5)],
            "sick",
            tolerance="0.03",
        )
        assert session.tolerance("0.999999") < 0.034  # the count is noisy too
    assert learnt == ["b0", "NOT b2"]  # else with 10**-6
    assert rows_needed(**terms, delta=delta, population=True) > 2 * needed


def test_a_person_with_many_rows_counts_for_its_cap():
    asked = gate(unit="who", rows_per_unit=2)
    found = asked.statistic("age >= 50", epsilon=900)
    assert found.rows == pytest.approx(200, abs=1)  # of 400 rows each weighs a half
    table = rows().to_pandas()
    assert found.value == pytest.approx((table.age >= 50).mean(), abs=0.01)


@pytest.mark.parametrize("holds", [False, True])
def test_means_under_a_bound_that_leaves_rows_out_say_so(tmp_path, holds):
    """Ten units have most of the rows: the mean of what counts is far from that of all."""
    lines = [f"a{i},0" for i in range(900)] + [f"b{i},1" for i in range(10) for _ in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(("who,flag", *lines)))
    said = "rows_per_unit = 300\nrows_per_unit_holds = true" if holds else "rows_per_unit = 5"
    (tmp_path / "t.toml").write_text(f"""
        name = "t"
        budget = {{ epsilon = 100 }}
        [tables.t]
        unit = "who"
        {said}
        columns = {{ flag = {{ type = "integer", between = [0, 1] }} }}
    """)
    gate = ng.open(tmp_path / "t.toml", ledger=":memory:")
    means = gate.statistic(["flag"], epsilon=50)
    notes = gate.statistic_plan(["flag"], epsilon=50).notes
    assert bool(abs(means.value - 3000 / 3900) <= means.within()[0]) is holds
    for words in (str(means), means.card().to_markdown(), " ".join(notes)):
        assert ("Capped: 5 rows per " in words) is not holds
    cut = gate.statistic(["flag"], epsilon=50, rows_per_unit=7)
    assert any("Capped: 7 rows" in words for words in cut.caveats)
