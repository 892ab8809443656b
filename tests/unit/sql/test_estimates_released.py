"""Released tables: their types follow from the question alone, and a rehearsal has the same."""

from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.schema import schema_of
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.purchase import purchase
from noisegate.sql.estimates.estimate import estimate, predicted
from noisegate.sql.laws.known import listed, released
from noisegate.sql.question import Aggregate, Block, Function, GroupKey
from noisegate.sql.reuse.released import blank_table, released_block

DAYS = date(2024, 1, 1), date(2024, 12, 31)
COLUMNS = (
    Column(name="age", kind=Kind.INTEGER, between=(Fraction(18), Fraction(90)), nullable=False),
    Column(name="huge", kind=Kind.INTEGER, between=(Fraction(0), Fraction(1 << 40))),
    Column(name="cost", kind=Kind.NUMBER, between=(Fraction(0), Fraction(500))),
    Column(name="ward", kind=Kind.TEXT, keys=("n", "s", "e"), nullable=False),
    Column(name="place", kind=Kind.INTEGER, keys=tuple(range(200)), nullable=False),
    Column(name="city", kind=Kind.TEXT),
    Column(name="born", kind=Kind.DATE, between=(Fraction(0), Fraction(10_000))),
    Column(name="day", kind=Kind.DATE),
    Column(name="cold", kind=Kind.NUMBER, between=(Fraction(-40), Fraction(5))),
    Column(name="seen", kind=Kind.TIMESTAMP, between=(Fraction(0), Fraction(10**15))),
)
EVERYTHING = (
    (Function.COUNT,), (Function.COUNT_VALUES, "cost"), (Function.COUNT_UNITS,),
    (Function.COUNT_DISTINCT, "city"), (Function.SUM, "age"), (Function.SUM, "cost"),
    (Function.SUM, "huge"), (Function.AVG, "age"), (Function.STDDEV_SAMP, "cost"),
    (Function.CORR, "age", "cost"), (Function.QUANTILE, "age"), (Function.QUANTILE, "cost"),
    (Function.MIN, "born"), (Function.MAX, "seen"),
)  # fmt: skip
WHOLE = pa.int64()
TYPES = [
    WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, pa.float64(), pa.float64(), pa.float64(), pa.float64(),
    pa.float64(), WHOLE, pa.float64(), pa.date32(), pa.timestamp("us"),
]  # fmt: skip


def block(*asked, by=(), sets=None, unit=None, where=None):
    columns = {column.name: column for column in COLUMNS}
    relation = Table(
        TableDomain(dataset="d", name="t", unit=PrivacyUnit(column=unit), columns=columns)
    )
    schema = schema_of(relation)
    keys = tuple(GroupKey(name=b, expression=Field(b), domain=schema[b]) for b in by)
    aggregates = tuple(
        Aggregate(
            name=f"a{place}", function=function, args=tuple(map(Field, args)), where=where,
            level=Fraction(1, 2) if function is Function.QUANTILE else None,
        )
        for place, (function, *args) in enumerate(asked)
    )  # fmt: skip
    every = (tuple(range(len(by))),)
    return Block(name="b", relation=relation, by=keys, sets=sets or every, aggregates=aggregates)


def measured(bought, *, draws=1):
    """Made-up releases; sums as the shelf gives them, from several draws."""
    found = []
    for part, mechanisms in zip(bought.draft.parts, bought.mechanisms, strict=True):
        tally, cells = part.query.tally, bought.draft.cells(part.columns)
        if not hasattr(tally, "terms"):
            width = 2 if isinstance(mechanisms[0], Brackets) else 1
            found.append(np.full((cells, width), 20))
            continue
        row = listed(np.arange(tally.cells) * 1001, tally.by)
        found.append([
            [released(row + draw, mechanism, term.grain) for draw in range(draws)]
            for term, mechanism in zip(tally.terms, mechanisms, strict=True)
        ])  # fmt: skip
    return found


CAPS = {
    "rows": (None, Caps()),
    "persons": ("id", Caps(rows_per_unit=6)),
    "groups": ("id", Caps(rows_per_unit=6, groups_per_unit=2)),
}


@pytest.mark.parametrize("setting", CAPS)
@pytest.mark.parametrize("draws", [1, 2])
def test_types_are_those_of_the_rehearsal_whatever_was_released_before(setting, draws):
    unit, caps = CAPS[setting]
    bought = purchase(draft(block(*EVERYTHING, by=("ward",), unit=unit), caps), epsilon=1)
    table = released_block(bought.draft, estimate(bought, measured(bought, draws=draws))).table
    assert blank_table(bought.draft).schema == table.schema
    assert [table.schema.field(f"a{place}").type for place in range(len(TYPES))] == TYPES


def test_what_cannot_be_negative_follows_from_the_question():
    asked = (*EVERYTHING, (Function.SUM, "cold"), (Function.AVG, "cold"), (Function.MAX, "cold"))
    bought = purchase(draft(block(*asked), Caps()), epsilon=1)
    found = released_block(bought.draft, estimate(bought, measured(bought)))
    signed = {place for place, (function, *_) in enumerate(asked) if function is Function.CORR}
    signed |= set(range(len(EVERYTHING), len(asked)))
    assert found.unsigned == {f"a{place}" for place in set(range(len(asked))) - signed}


def test_types_are_the_same_where_no_group_was_found_or_only_missing_ones():
    wanted = block((Function.COUNT,), (Function.SUM, "cost"), by=("city", "day"))
    early = blank_table(draft(wanted, Caps())).schema
    assert early.types == [pa.string(), pa.date32(), pa.int64(), pa.float64()]
    for found in ([], [(None, None)], [("x", DAYS[0]), ("y", DAYS[1])]):
        bought = purchase(draft(wanted, Caps(), found=[found]), epsilon=1, delta="1e-6")
        late = released_block(bought.draft, estimate(bought, measured(bought))).table
        assert late.schema == early
        assert late.num_rows == len(found)


@pytest.mark.parametrize("by", [("ward",), ("place",)])
def test_with_several_grouping_sets_counts_and_sums_are_fractions_so_that_they_add_up(by):
    """Three groups are added up, 200 are measured in both sets: the types do not tell."""
    wanted = block(
        (Function.COUNT,), (Function.SUM, "age"), (Function.COUNT_DISTINCT, "city"),
        by=by, sets=((0,), ()),
    )  # fmt: skip
    bought = purchase(draft(wanted, Caps()), epsilon=1)
    table = released_block(bought.draft, estimate(bought, measured(bought))).table
    assert blank_table(bought.draft).schema == table.schema
    assert table.schema.types[1:] == [pa.float64(), pa.float64(), pa.int64(), pa.int64()]
    counts = table["a0"].to_numpy()
    assert counts[:-1].sum() == pytest.approx(counts[-1])


def test_rounded_counts_say_a_half_more_before_and_after():
    bought = purchase(
        draft(block((Function.COUNT,), by=("ward",), unit="id"), Caps(rows_per_unit=6)), epsilon=1
    )
    (tally,) = (part.query.tally for part in bought.draft.parts)
    raw = float(bought.mechanisms[0][0].interval("0.95") * tally.terms[0].grain)
    column = estimate(bought, measured(bought)).columns["a0"]
    assert column.values.dtype == np.int64
    assert column.margin("0.95").tolist() == [raw + 0.5] * 3
    assert predicted(bought, "0.95") == {"a0": raw + 0.5}


def test_a_rehearsal_shows_declared_keys_and_large_and_small_numbers_within_bounds():
    asked = block((Function.COUNT,), (Function.AVG, "age"), (Function.MAX, "born"), by=("ward",))
    assert blank_table(draft(asked, Caps())).to_pylist() == [
        {"ward": "n", "a0": 1_000_000, "a1": 90.0, "a2": date(1997, 5, 19)},
        {"ward": "s", "a0": 7, "a1": 18.0, "a2": date(1970, 1, 8)},
        {"ward": "e", "a0": 0, "a1": 18.0, "a2": date(1970, 1, 1)},
    ]
    alone = blank_table(draft(block((Function.COUNT,), (Function.SUM, "age")), Caps()))
    assert alone.to_pylist() == [{"a0": 1_000_000, "a1": 1_000_000}]


def test_a_rehearsal_makes_up_keys_that_are_not_known_and_is_small():
    sought = block((Function.COUNT,), by=("city", "ward"))
    rows = blank_table(draft(sought, Caps())).to_pylist()
    assert [(row["city"], row["ward"]) for row in rows[:4]] == [
        ("a", "n"), ("a", "s"), ("a", "e"), ("b", "n"),
    ]  # fmt: skip
    known = blank_table(draft(sought, Caps(), found=[[("x", "n")]]))
    assert set(known["city"].to_pylist()) == {"x"}
    wide = block((Function.COUNT,), by=("place", "ward"), sets=((0, 1), (0,), ()))
    table = blank_table(draft(wide, Caps()))
    assert table.num_rows <= 50
    assert set(table["grouping_id"].to_pylist()) == {0, 1, 3}
    assert table["ward"].to_pylist()[-1] is None


def test_the_error_of_a_mean_is_foreseen_only_where_its_rows_are_known():
    adults = Call("gt", (Field("age"), Literal(40)))
    asked = (Function.COUNT,), (Function.AVG, "age"), (Function.SUM, "age")
    plain = purchase(draft(block(*asked), Caps()), epsilon=1)
    some = purchase(draft(block(*asked, where=adults), Caps()), epsilon=1)
    assert predicted(plain, "0.95")["a1"] is None
    assert 0 < predicted(plain, "0.95", rows=1000)["a1"] < 1
    assert predicted(some, "0.95", rows=1000)["a1"] is None
    assert None not in (predicted(some, "0.95")["a0"], predicted(some, "0.95")["a2"])


def test_margins_before_groups_are_found_are_not_narrower_than_those_after():
    wanted = block((Function.COUNT,), (Function.SUM, "age"), by=("city",), sets=((0,), ()))
    early = purchase(draft(wanted, Caps()), epsilon=1, delta="1e-6")
    for count in (1, 2, 40):
        found = [[(f"c{place}",) for place in range(count)]]
        late = purchase(draft(wanted, Caps(), found=found), epsilon=1, delta="1e-6")
        for name, width in predicted(late, "0.95").items():
            assert width <= predicted(early, "0.95")[name] * 1.05
