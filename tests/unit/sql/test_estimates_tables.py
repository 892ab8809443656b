"""The released table: which rows there are, what kind its numbers have, what its bars say."""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.algebra.expression import Field
from noisegate.algebra.relation import Table
from noisegate.algebra.schema import schema_of
from noisegate.errors import SpecError
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.purchase import purchase
from noisegate.sql.estimates.estimate import estimate, predicted
from noisegate.sql.question import Aggregate, Block, Function, GroupKey
from refusals import about

COLUMNS = (
    Column(name="age", kind=Kind.INTEGER, between=(Fraction(0), Fraction(100)), nullable=False),
    Column(name="flat", kind=Kind.NUMBER, between=(Fraction(0), Fraction(1, 3)), nullable=False),
    Column(name="ward", kind=Kind.TEXT, keys=("n", "s"), nullable=False),
    Column(name="sex", kind=Kind.TEXT, keys=("f", "m"), nullable=False),
    Column(name="city", kind=Kind.TEXT, nullable=False),
    Column(name="street", kind=Kind.TEXT, nullable=False),
    Column(name="born", kind=Kind.DATE, between=(Fraction(0), Fraction(20_000))),
    Column(name="seen", kind=Kind.TIMESTAMP, between=(Fraction(0), Fraction(10**15))),
)


def block(*asked, by=(), sets=None):
    columns = {column.name: column for column in COLUMNS}
    relation = Table(
        TableDomain(dataset="d", name="t", unit=PrivacyUnit(column=None), columns=columns)
    )
    schema = schema_of(relation)
    keys = tuple(GroupKey(name=b, expression=Field(b), domain=schema[b]) for b in by)
    aggregates = tuple(
        Aggregate(name=f"a{place}", function=function, args=tuple(map(Field, args)))
        for place, (function, *args) in enumerate(asked)
    )
    every = (tuple(range(len(by))),)
    return Block(name="b", relation=relation, by=keys, sets=sets or every, aggregates=aggregates)


def zeros(bought):
    shapes = [
        (len(each), part.query.tally.cells)
        for each, part in zip(bought.mechanisms, bought.draft.parts, strict=True)
    ]
    return [np.zeros(shape, np.int64) for shape in shapes]


def test_only_combinations_that_were_found_are_rows():
    wanted = block((Function.COUNT,), by=("city", "ward", "street"))
    pairs = [("x", "n", "a"), ("y", "n", "b"), ("y", "s", "b"), ("y", "undeclared", "b")]
    found = draft(wanted, Caps(), found=[pairs], counts=[20, 50, 70, 90])
    bought = purchase(found, epsilon=1, delta="1e-6")
    assert bought.mechanisms == ()  # the counts that decided are the answer
    table = estimate(bought, [])
    assert table.keys == {
        "city": ("x", "y", "y"), "ward": ("n", "n", "s"), "street": ("a", "b", "b"),
    }  # fmt: skip
    assert table.columns["a0"].values.tolist() == [20, 50, 70]
    assert table.columns["a0"].margin("0.95").size == 3


def test_no_group_found_is_a_table_without_rows():
    found = draft(block((Function.COUNT,), by=("city",)), Caps(), found=[[]])
    bought = purchase(found, epsilon=1, delta="1e-6")
    assert bought.keys
    table = estimate(bought, [])
    assert table.keys == {"city": ()}
    assert table.columns["a0"].values.size == 0


def test_no_group_found_leaves_no_total_either():
    wanted = block((Function.COUNT,), by=("city", "ward"), sets=((0, 1), (1,), ()))
    bought = purchase(draft(wanted, Caps(), found=[[]]), epsilon=1, delta="1e-6")
    table = estimate(bought, [])
    assert table.keys == {"city": (), "ward": ()}
    assert table.grouping_id == ()
    assert table.columns["a0"].values.size == 0
    assert table.columns["a0"].margin("0.95") is None
    assert predicted(bought, "0.95") == {"a0": None}


def test_a_plan_before_the_keys_are_known_has_the_margins_of_the_answer():
    wanted = block((Function.COUNT,), (Function.SUM, "age"), by=("city",))
    early = purchase(draft(wanted, Caps()), epsilon=1, delta="1e-6")
    late = purchase(draft(wanted, Caps(), found=[[("x",), ("y",)]]), epsilon=1, delta="1e-6")
    assert predicted(early, "0.95") == predicted(late, "0.95")
    assert early.keys == late.keys


def test_grouping_ids_are_those_of_sql():
    cube = block((Function.COUNT,), by=("ward", "sex"), sets=((0, 1), (0,), (1,), ()))
    bought = purchase(draft(cube, Caps()), epsilon=1)
    table = estimate(bought, zeros(bought))
    assert table.grouping_id == (0, 0, 0, 0, 1, 1, 2, 2, 3)
    assert table.keys["ward"] == ("n", "n", "s", "s", "n", "s", None, None, None)
    assert table.keys["sex"] == ("f", "m", "f", "m", None, None, "f", "m", None)


def test_dates_and_times_come_back_as_such_with_bars_in_days_and_hours():
    bought = purchase(
        draft(block((Function.MIN, "born"), (Function.MAX, "seen")), Caps()), epsilon=1, rows=1000
    )
    table = estimate(bought, [np.array([[31, 4]]), np.array([[25, 2]])])
    born, seen = table.columns["a0"], table.columns["a1"]
    assert (born.kind, seen.kind) == (Kind.DATE, Kind.TIMESTAMP)
    assert born.values[0] == np.datetime64("1970-02-01")
    assert seen.values[0] == np.datetime64("1970-01-02T01:00")
    assert [float(end[0]) for end in born.interval("0.95")] == [31 - 4, 31 + 4]
    assert [float(end[0]) for end in born.interval("0.99")] == [31 - 6, 31 + 6]
    assert [float(end[0]) for end in seen.interval("0.95")] == [25 - 2, 25 + 2 + 1]  # cut hours
    assert (born.margin("0.95")[0], seen.margin("0.95")[0]) == (4, 3)
    assert born.rank_error("0.95") > 0
    assert any("to the hour" in words for words in bought.caveats)


def test_counts_and_sums_of_whole_numbers_stay_whole_and_others_do_not():
    bought = purchase(
        draft(block((Function.COUNT,), (Function.SUM, "age"), (Function.SUM, "flat")), Caps()),
        epsilon=1,
    )
    kinds = [column.kind for column in estimate(bought, zeros(bought)).columns.values()]
    assert kinds == [Kind.INTEGER, Kind.INTEGER, Kind.NUMBER]
    assert estimate(bought, zeros(bought)).columns["a0"].values.dtype == np.int64


def test_a_confidence_outside_of_zero_and_one_is_refused():
    bought = purchase(draft(block((Function.COUNT,)), Caps()), epsilon=1)
    table = estimate(bought, zeros(bought))
    assert table.columns["a0"].rank_error("0.95") is None
    for wrong in (0, 1, 95):
        with pytest.raises(SpecError, check=about("confidence")):
            table.columns["a0"].interval(wrong)


def test_more_confidence_is_never_narrower():
    asked = block((Function.COUNT,), (Function.AVG, "age"), (Function.STDDEV_SAMP, "age"))
    bought = purchase(draft(asked, Caps()), epsilon=1)
    tally = bought.draft.parts[0].query.tally
    exact = np.array([[900 if term.reach == 1 else 5] for term in tally.terms])
    table = estimate(bought, [exact])
    for column in table.columns.values():
        widths = [
            float(column.margin(c)[0]) for c in ("0.5", "0.9", "0.99", "0.999999", "0.9999999999")
        ]
        assert widths == sorted(widths)
        assert widths[0] < widths[-1]
