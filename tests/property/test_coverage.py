"""Error bars hold: a thousand real draws for each kind of aggregate, on real tables in DuckDB.

Every table holds the same rows in each of a thousand groups, so that one question is a thousand
independent runs. How many bars hold is then at least binomial, and a test fails only where a count
this low has a probability below 1e-9.
"""

from fractions import Fraction
from functools import cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Distinct, Sums
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.purchase import purchase
from noisegate.sql.estimates.estimate import estimate, predicted
from noisegate.sql.laws.known import listed, released
from noisegate.sql.question import Aggregate, Block, Function, GroupKey

RUNS = 1000
ALARM = 1e-9
LOW, HIGH = -50.0, 250.0
ADULT = Call("gt", (Field("age"), Literal(40)))
ASKED = {
    "COUNT(*)": (Function.COUNT, (), None),
    "COUNT(x)": (Function.COUNT_VALUES, ("x",), None),
    "COUNT(*) FILTER (WHERE age > 40)": (Function.COUNT, (), ADULT),
    "COUNT(DISTINCT pid)": (Function.COUNT_UNITS, (), None),
    "SUM(x)": (Function.SUM, ("x",), None),
    "SUM(age)": (Function.SUM, ("age",), None),
    "AVG(age)": (Function.AVG, ("age",), None),
    "AVG(x)": (Function.AVG, ("x",), None),
    "AVG(x) FILTER (WHERE age > 40)": (Function.AVG, ("x",), ADULT),
    "VAR_POP(age)": (Function.VAR_POP, ("age",), None),
    "VAR_SAMP(x)": (Function.VAR_SAMP, ("x",), None),
    "STDDEV_SAMP(age)": (Function.STDDEV_SAMP, ("age",), None),
    "STDDEV_POP(x)": (Function.STDDEV_POP, ("x",), None),
    "COVAR_POP(age, x)": (Function.COVAR_POP, ("age", "x"), None),
    "COVAR_SAMP(age, x)": (Function.COVAR_SAMP, ("age", "x"), None),
    "CORR(age, x)": (Function.CORR, ("age", "x"), None),
}


def column(name, kind, *, keys=None, between=None, nullable=False):
    bounds = None if between is None else (Fraction(between[0]), Fraction(between[1]))
    return Column(name=name, kind=kind, keys=keys, between=bounds, nullable=nullable)


def table_of(unit, groups):
    columns = [
        column("g", Kind.INTEGER, keys=tuple(range(groups))),
        column("half", Kind.TEXT, keys=("a", "b")),
        column("age", Kind.INTEGER, between=(0, 100)),
        column("x", Kind.NUMBER, between=(LOW, HIGH), nullable=True),
        column("pid", Kind.INTEGER),
    ]
    return TableDomain(
        dataset="lab",
        name="rows",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType({each.name: each for each in columns}),
    )


@cache
def lab(rows, *, unit=None, groups=RUNS):
    """A table with the same ``rows`` rows in every group, and DuckDB's own answers for one group."""
    generator = np.random.default_rng(rows)
    age = generator.integers(20, 70, rows)
    x = np.round(age * 2.0 + generator.normal(0, 30, rows), 3).clip(LOW, HIGH)
    x = np.where(generator.random(rows) < 0.1, np.nan, x)
    frame = pa.table({
        "g": np.repeat(np.arange(groups), rows),
        "half": np.tile(np.where(np.arange(rows) % 3 == 0, "a", "b"), groups),
        "age": np.tile(age, groups),
        "x": pa.array(np.tile(x, groups), from_pandas=True),
        "pid": np.arange(rows * groups) // 2,
    })  # fmt: skip
    domain = table_of(unit, groups)
    return domain, DuckDBSource({"rows": frame}, {"rows": domain}), frame


def truths(frame, names, *, where="g = 0"):
    import duckdb

    with duckdb.connect() as engine:
        engine.register("rows", frame)
        return engine.execute(f"SELECT {', '.join(names)} FROM rows WHERE {where}").fetchone()


def asked(domain, names, by=("g",), sets=None):
    relation = Table(domain)
    schema = schema_of(relation)
    aggregates = []
    for name in names:
        function, args, where = ASKED[name]
        fields = tuple(Field(arg) for arg in args)
        aggregates.append(Aggregate(name=name, function=function, args=fields, where=where))
    keys = tuple(GroupKey(name=f"k_{b}", expression=Field(b), domain=schema[b]) for b in by)
    every = (tuple(range(len(by))),)
    return Block(
        name="b", relation=relation, by=keys, sets=sets or every, aggregates=tuple(aggregates)
    )


def exact(bought, source):
    """What the engine would hand to the noise, for each part."""
    found = []
    for part in bought.draft.parts:
        tally = part.query.tally
        if isinstance(tally, Sums):
            found.append(source.sums(tally).reshape(len(tally.terms), -1))
        elif isinstance(tally, Distinct):
            found.append(source.distinct(tally).reshape(1, -1))
        else:
            found.append(source.values(tally))
    return found


def drawn(bought, numbers):
    """What the door would release."""
    found = []
    for part, mechanisms, values in zip(
        bought.draft.parts, bought.mechanisms, numbers, strict=True
    ):
        each = mechanisms if len(mechanisms) == len(values) else mechanisms * len(values)
        assert len(part.pieces) == len(mechanisms)
        found.append(np.stack([m.sample(row) for m, row in zip(each, values, strict=True)]))
    return found


def fewest(confidence, runs=RUNS):
    return stats.binom.ppf(ALARM, runs, float(confidence))


def held(estimate_, truth, confidence):
    low, high = estimate_.interval(confidence)
    return (low - 1e-4 <= truth) & (truth <= high + 1e-4)  # values are rounded to a fine grid


SETTINGS = {
    "rows, pure": (None, Caps(), "pure"),
    "rows, zcdp": (None, Caps(), "zcdp"),
    "persons, pure": ("pid", Caps(rows_per_unit=3), "pure"),
    "persons, groups, zcdp": ("pid", Caps(rows_per_unit=4, groups_per_unit=2), "zcdp"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_noise_the_estimates_are_what_sql_says(setting):
    unit, caps, accountant = SETTINGS[setting]
    domain, source, frame = lab(60, unit=unit, groups=3)
    block = asked(domain, list(ASKED))
    bought = purchase(draft(block, caps, accountant=accountant), epsilon=20)
    table = estimate(bought, exact(bought, source))
    assert table.keys == {"k_g": (0, 1, 2)}
    assert table.grouping_id is None
    truth_of = dict(zip(ASKED, truths(frame, ASKED, where="g = 1"), strict=True))
    if unit is None:
        truth_of["COUNT(DISTINCT pid)"] = 60  # every row is one person
    for name, truth in truth_of.items():
        assert table.columns[name].values[1] == pytest.approx(truth, rel=1e-5), name


@pytest.mark.parametrize("setting", SETTINGS)
def test_bars_hold_as_often_as_they_say(setting):
    unit, caps, accountant = SETTINGS[setting]
    domain, source, frame = lab(100, unit=unit)
    block = asked(domain, list(ASKED))
    bought = purchase(draft(block, caps, accountant=accountant), epsilon=20)
    table = estimate(bought, drawn(bought, exact(bought, source)))
    truth_of = dict(zip(ASKED, truths(frame, ASKED), strict=True))
    if unit is None:
        truth_of["COUNT(DISTINCT pid)"] = 100
    for name, truth in truth_of.items():
        for confidence in ("0.8", "0.95"):
            hits = held(table.columns[name], truth, confidence).sum()
            assert hits >= fewest(Fraction(confidence)), (name, confidence)


def test_bars_of_pooled_answers_hold_and_are_narrower():
    names = ["SUM(age)", "AVG(age)"]
    domain, source, frame = lab(100)
    found = draft(asked(domain, names), Caps(), accountant="zcdp")
    first, second = (purchase(found, epsilon=epsilon) for epsilon in ("0.25", "0.5"))
    numbers = exact(first, source)
    (tally,) = (part.query.tally for part in found.parts)
    before, after = (
        [np.stack([listed(row, tally.by) for row in drawn(bought, numbers)[0]])]
        for bought in (first, second)
    )
    alone = estimate(second, after)
    both = estimate(second, [
        [[released(one, a, term.grain), released(other, b, term.grain)]
         for one, other, a, b, term in zip(old, new, noise, more, part.query.tally.terms, strict=True)]
        for old, new, noise, more, part in zip(
            before, after, first.mechanisms, second.mechanisms, found.parts, strict=True)
    ])  # fmt: skip
    for name, truth in zip(names, truths(frame, names), strict=True):
        assert held(both.columns[name], truth, "0.9").sum() >= fewest(Fraction(9, 10))
        narrower = (
            both.columns[name].margin("0.9").mean() / alone.columns[name].margin("0.9").mean()
        )
        assert 0.8 < narrower < 1  # ρ adds up: √(4 / 5) = 0.894


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("names", [["COUNT(*)"], ["SUM(x)"], ["AVG(age)"], ["COUNT(*)", "AVG(x)"]])
def test_bars_are_not_absurdly_wide(accountant, names):
    """Against the error that was really seen; its quantile is off by 3× once in far more than 1e9.

    An average is predicted at an end of its bounds, where the count errs as much as the sum.
    """
    domain, source, frame = lab(100)
    bought = purchase(draft(asked(domain, names), Caps(), accountant=accountant), epsilon=1)
    table = estimate(bought, drawn(bought, exact(bought, source)))
    expected = predicted(bought, "0.95", rows=100 * RUNS)
    for name, truth in zip(names, truths(frame, names), strict=True):
        errors = np.abs(table.columns[name].values - truth)
        margins = table.columns[name].margin("0.95")
        assert margins.mean() < 3 * np.quantile(errors, 0.95), name
        most = 3 if name.startswith("AVG") else 2
        assert margins.mean() / 2 < expected[name] < most * margins.mean()


@pytest.mark.parametrize("rows", [1, 3])
def test_bars_hold_and_say_the_declared_range_where_a_group_is_too_small(rows):
    domain, source, frame = lab(rows)
    names = ["AVG(age)", "VAR_POP(age)"]
    bought = purchase(draft(asked(domain, names), Caps()), epsilon="0.05")
    table = estimate(bought, drawn(bought, exact(bought, source)))
    for name, truth in zip(names, truths(frame, names), strict=True):
        assert held(table.columns[name], truth, "0.9").sum() >= fewest(Fraction(9, 10))
    low, high = table.columns["AVG(age)"].interval("0.9")
    assert (low.min(), high.max()) == (0, 100)
    assert ((low == 0) & (high == 100)).mean() > 0.5
    assert table.columns["AVG(age)"].values.min() >= 0


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_bars_of_grouping_sets_hold_and_children_add_up(accountant):
    names = ["COUNT(*)", "SUM(age)", "AVG(age)", "COUNT(DISTINCT pid)"]
    domain, source, frame = lab(60, unit="pid")
    block = asked(domain, names, by=("g", "half"), sets=((0, 1), (0,)))
    bought = purchase(draft(block, Caps(rows_per_unit=2), accountant=accountant), epsilon=8)
    table = estimate(bought, drawn(bought, exact(bought, source)))
    assert table.grouping_id == (0,) * 2 * RUNS + (1,) * RUNS
    assert table.keys["k_half"][-1] is None
    for name in ("COUNT(*)", "SUM(age)"):
        values = table.columns[name].values
        children = values[: 2 * RUNS].reshape(RUNS, 2).sum(axis=1)
        np.testing.assert_allclose(children, values[2 * RUNS :], rtol=1e-9)
    child = truths(frame, names, where="g = 0 AND half = 'b'")
    for name, truth, inner in zip(names, truths(frame, names), child, strict=True):
        bars = table.columns[name]
        whole, low = (
            held(bars, truth, "0.9")[2 * RUNS :],
            held(bars, inner, "0.9")[1 : 2 * RUNS : 2],
        )
        assert whole.sum() >= fewest(Fraction(9, 10)), name
        assert low.sum() >= fewest(Fraction(9, 10)), name


def test_a_total_over_groups_that_are_added_up_holds_too():
    domain, source, _ = lab(40, groups=2)
    block = asked(domain, ["COUNT(*)"], by=("g", "half"), sets=((0, 1), (0,), ()))
    found = draft(block, Caps())
    assert [part.columns for part in found.parts] == [(0, 1)]  # four groups: adding up is better
    bought = purchase(found, epsilon=1)
    hits, numbers = 0, exact(bought, source)
    for _ in range(RUNS):
        table = estimate(bought, drawn(bought, numbers))
        bars = table.columns["COUNT(*)"]
        assert bars.values[-1] == bars.values[:4].sum() == bars.values[4:6].sum()
        hits += int(held(bars, 80, "0.9")[-1])
    assert hits >= fewest(Fraction(9, 10))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_quantiles_stay_within_their_ranks(accountant):
    domain, source, frame = lab(5000, groups=60)
    relation = Table(domain)
    levels = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
    aggregates = (
        *(
            Aggregate(name=f"q{level}", function=Function.QUANTILE, args=(Field("x"),), level=level)
            for level in levels
        ),
        Aggregate(name="least", function=Function.MIN, args=(Field("age"),)),
    )
    key = GroupKey(name="k", expression=Field("g"), domain=schema_of(relation)["g"])
    block = Block(name="b", relation=relation, by=(key,), sets=((0,),), aggregates=aggregates)
    bought = purchase(draft(block, Caps(), accountant=accountant), epsilon=2, rows=60 * 5000)
    table = estimate(bought, drawn(bought, exact(bought, source)))
    values = np.sort(frame["x"].slice(0, 5000).drop_null().to_numpy())
    for level in levels:
        found = table.columns[f"q{level}"]
        low, high = found.interval("0.95")
        true = np.quantile(values, float(level))
        assert ((low <= true) & (true <= high)).sum() >= fewest(Fraction(19, 20), 60)
        # radii are steps: a median may be 3 where the mean is 2.2, give or take 0.1
        assert np.mean(found.margin("0.95")) < np.mean(found.margin("0.999")) < 3
        ranks = np.searchsorted(values, found.values) - float(level) * values.size
        holds = np.abs(ranks) <= found.rank_error("0.9") + 1
        assert holds.sum() >= fewest(Fraction(9, 10), 60)
    youngest = table.columns["least"]
    assert youngest.kind is Kind.INTEGER
    assert np.median(youngest.values) in (20, 21, 22)
    assert any("MIN(age) is a private quantile" in words for words in bought.caveats)
