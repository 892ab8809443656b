"""A unit has one weight in all numbers of a question: exact numbers of the engine, no noise."""

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.schema import schema_of
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sql.bounds.sized import Paid, counted_of, weighed_of
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.purchase import purchase
from noisegate.sql.estimates.estimate import estimate
from noisegate.sql.estimates.profiles import STEPS, Profile
from noisegate.sql.question import Aggregate, Block, Function, GroupKey

COLUMNS = (
    Column(name="p", kind=Kind.INTEGER),
    Column(name="g", kind=Kind.TEXT, keys=("a", "b", "c"), nullable=False),
    Column(name="x", kind=Kind.INTEGER, between=(Fraction(0), Fraction(30))),
    Column(name="y", kind=Kind.NUMBER, between=(Fraction(-5), Fraction(40))),
)
LARGE = Call("gt", (Field("x"), Literal(10)))
ASKED = {
    "COUNT(*)": (Function.COUNT, (), None),
    "COUNT(x)": (Function.COUNT_VALUES, ("x",), None),
    "COUNT(*) FILTER": (Function.COUNT, (), LARGE),
    "SUM(x)": (Function.SUM, ("x",), None),
    "AVG(x)": (Function.AVG, ("x",), None),
    "AVG(y) FILTER": (Function.AVG, ("y",), LARGE),
    "VAR_POP(x)": (Function.VAR_POP, ("x",), None),
    "STDDEV_POP(y)": (Function.STDDEV_POP, ("y",), None),
    "COVAR_POP(x, y)": (Function.COVAR_POP, ("x", "y"), None),
    "CORR(x, y)": (Function.CORR, ("x", "y"), None),
}
BOTH = "x IS NOT NULL AND y IS NOT NULL"


def mean(value, condition):
    """A mean of rows with weights w."""
    return f"(SUM(w * {value}) FILTER ({condition}) / SUM(w) FILTER ({condition}))"


def covariance(one, other, condition):
    return (
        f"({mean(f'{one} * {other}', condition)} - {mean(one, condition)}"
        f" * {mean(other, condition)})"
    )


WEIGHED = {
    "COUNT(*)": "ROUND(SUM(w))",
    "COUNT(x)": "ROUND(SUM(w) FILTER (x IS NOT NULL))",
    "COUNT(*) FILTER": "ROUND(SUM(w) FILTER (x > 10))",
    "SUM(x)": "ROUND(SUM(w * x))",
    "AVG(x)": mean("x", "x IS NOT NULL"),
    "AVG(y) FILTER": mean("y", "x > 10 AND y IS NOT NULL"),
    "VAR_POP(x)": covariance("x", "x", "x IS NOT NULL"),
    "STDDEV_POP(y)": f"SQRT({covariance('y', 'y', 'y IS NOT NULL')})",
    "COVAR_POP(x, y)": covariance("x", "y", BOTH),
    "CORR(x, y)": (
        f"{covariance('x', 'y', BOTH)}"
        f" / SQRT({covariance('x', 'x', BOTH)} * {covariance('y', 'y', BOTH)})"
    ),
}


def bought_of(caps, names, accountant):
    """What is measured, and of which table."""
    columns = MappingProxyType({column.name: column for column in COLUMNS})
    domain = TableDomain(dataset="d", name="t", unit=PrivacyUnit(column="p"), columns=columns)
    relation = Table(domain)
    key = GroupKey(name="g", expression=Field("g"), domain=schema_of(relation)["g"])
    aggregates = tuple(
        Aggregate(name=name, function=function, args=tuple(map(Field, args)), where=where)
        for name, (function, args, where) in ((name, ASKED[name]) for name in names)
    )
    block = Block(name="b", relation=relation, by=(key,), sets=((0,),), aggregates=aggregates)
    return purchase(draft(block, caps, accountant=accountant), epsilon=1), domain


def answered(frame, caps, names, *, accountant="pure"):
    """The table that the exact sums give."""
    bought, domain = bought_of(caps, names, accountant)
    source = DuckDBSource({"t": frame}, {"t": domain})
    exact = [source.sums(part.query.tally) for part in bought.draft.parts]
    return estimate(bought, exact).columns


def test_equal_values_have_exactly_their_mean_however_many_rows_a_person_has():
    """Clipping sums and counts apart would give 0 here."""
    frame = pa.table({
        "p": np.repeat(np.arange(200), 8), "g": ["a"] * 1600, "x": [2] * 1600, "y": [2.0] * 1600,
    })  # fmt: skip
    found = answered(frame, Caps(rows_per_unit=4, groups_per_unit=2), list(ASKED))
    assert found["COUNT(*)"].values[0] == 800
    assert found["SUM(x)"].values[0] == 1600
    assert found["AVG(x)"].values[0] == 2
    assert found["VAR_POP(x)"].values[0] == 0
    assert found["STDDEV_POP(y)"].values[0] == pytest.approx(0, abs=1e-2)


def test_a_unit_within_the_cap_on_rows_counts_whole_however_they_lie_in_groups():
    frame = pa.table({
        "p": [1, 1, 1, 1, 2, 2, 2, 2], "g": list("aaaaabcc"), "x": [9] * 8, "y": [1.0] * 8,
    })  # fmt: skip
    for accountant in ("pure", "zcdp"):
        caps = Caps(rows_per_unit=4, groups_per_unit=2)
        found = answered(frame, caps, list(ASKED), accountant=accountant)
        assert found["COUNT(*)"].values.tolist() == [5, 1, 2]
        assert found["SUM(x)"].values.tolist() == [45, 9, 18]


def test_small_numbers_count_whole_though_there_are_many():
    """A sum by itself is bounded by what it adds: at most 2 · 30, and 10 rows of 5 are less."""
    frame = pa.table({"p": [1] * 10, "g": ["a"] * 10, "x": [5] * 10, "y": [1.0] * 10})
    caps = Caps(rows_per_unit=2)
    assert answered(frame, caps, ["SUM(x)"])["SUM(x)"].values[0] == 50
    both = answered(frame, caps, ["SUM(x)", "COUNT(*)"])
    assert (both["SUM(x)"].values[0], both["COUNT(*)"].values[0]) == (10, 2)
    shares = answered(frame, caps, ["COUNT(*) FILTER", "COUNT(x)"])
    assert (shares["COUNT(*) FILTER"].values[0], shares["COUNT(x)"].values[0]) == (0, 2)


TOTALS = ("COUNT(*)", "COUNT(x)", "COUNT(*) FILTER", "SUM(x)")


def drawn_rows():
    """Persons have 1 to 12 rows in 1 to 3 groups; some values are missing."""
    generator = np.random.default_rng(7)
    persons = np.repeat(np.arange(150), generator.integers(1, 13, 150))
    x = generator.integers(0, 31, persons.size)
    y = np.clip(x + generator.normal(0, 6, persons.size), -5, 40)
    return pa.table({
        "p": persons,
        "g": np.array(["a", "b", "c"])[generator.integers(0, 1 + persons % 3)],
        "x": pa.array(x, mask=generator.random(persons.size) < 0.1),
        "y": pa.array(y, mask=generator.random(persons.size) < 0.2),
    })  # fmt: skip


@pytest.mark.parametrize("own", [None, 2])
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_numbers_are_those_of_weighed_rows(accountant, own):
    """Averages may have a cap of their own: then the weight in their sums and counts is another."""
    frame = drawn_rows()
    caps = Caps(rows_per_unit=4, groups_per_unit=2, averages_per_unit=own)
    found = answered(frame, caps, list(ASKED), accountant=accountant)
    with duckdb.connect() as engine:
        engine.register("t", frame)
        items, norm = ", ".join(WEIGHED.values()), "l1" if accountant == "pure" else "l2"

        def weighed(cap):
            return engine.execute(f"""
                WITH folds AS (SELECT p, g, COUNT(*) AS n FROM t GROUP BY p, g),
                persons AS (SELECT p, SUM(n) AS l1, SQRT(SUM(n * n)) AS l2 FROM folds GROUP BY p)
                SELECT {items} FROM (
                    SELECT t.*, LEAST(1, {cap} / {norm}) AS w FROM t JOIN persons USING (p))
                GROUP BY g ORDER BY g""").fetchall()

        truths = {name: weighed(4 if name in TOTALS else own or 4) for name in WEIGHED}
    for column, (name, rows) in enumerate(truths.items()):
        for place, row in enumerate(rows):
            assert found[name].values[place] == pytest.approx(row[column], rel=2e-4), name


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_one_person_moves_each_part_by_no_more_than_its_noise_hides(accountant):
    """Counts and averages with caps of their own, and each of 25 persons is left out once.

    Adjacency: all rows of one person are there or not.
    """
    frame, caps = drawn_rows(), Caps(rows_per_unit=6, averages_per_unit=2)
    bought, domain = bought_of(caps, ["COUNT(*)", "AVG(x)"], accountant)
    parts = bought.draft.parts
    assert [(part.own, part.query.per_unit) for part in parts] == [(False, 6), (True, 2)]

    def sums(rows):
        source = DuckDBSource({"t": rows}, {"t": domain})
        return [source.sums(part.query.tally).reshape(len(part.pieces), -1) for part in parts]

    whole, most = sums(frame), [np.zeros(len(part.pieces)) for part in parts]
    for person in range(25):
        rest = sums(frame.filter(pc.field("p") != person))
        for place, (all_rows, others) in enumerate(zip(whole, rest, strict=True)):
            moved = np.abs(all_rows - others).astype(np.float64)
            norm = moved.sum(axis=1) if accountant == "pure" else np.linalg.norm(moved, axis=1)
            most[place] = np.maximum(most[place], norm)
    for part, held in zip(parts, most, strict=True):
        limits = part.query.l1s if accountant == "pure" else part.query.l2s
        bounds = [each.value if accountant == "pure" else each.squared**0.5 for each in limits]
        assert (held <= np.array(bounds, np.float64)).all()
        assert (held > 0.7 * np.array(bounds, np.float64))[-1]  # of a count it is reached


def test_averages_beside_counts_have_a_cap_of_their_own_where_tails_are_heavy():
    """By exact numbers of units: of Zipf sizes, and of three rows each, for two prices."""
    block = bought_of(Caps(rows_per_unit=6), ["COUNT(*)", "AVG(x)"], "pure")[0].draft.block
    counted, _of_sums = counted_of(block, "pure", apart=True)
    sizes = np.minimum(np.random.default_rng(1).zipf(1.6, 8_000), 5_000)
    for rows, heavy in ((sizes, True), (np.full(8_000, 3), False)):
        units = np.bincount(np.searchsorted(STEPS, rows), minlength=len(STEPS))
        profile = Profile(table="t", units=tuple(units.tolist()), scale=5.0)
        for price in (0.1, 1.0):
            paid = Paid(step=price, blocks=1, gaussian=False)
            found = weighed_of(block, {False: (counted, profile)}, paid)
            assert (found.own is not None) is heavy
            assert found.own is None or 10 * found.own < profile.best(price / 3, cells=4)
            shared = weighed_of(replace(block, shared=True), {False: (counted, profile)}, paid)
            assert shared.own is None
