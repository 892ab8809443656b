"""The price of a question depends on the question and the policy, never on which groups exist."""

import os
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.accounting.accountants import accountant_named
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.schema import schema_of
from noisegate.curator.measurement import Measurement
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.event import NothingEvent, Sequential
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps, key_questions
from noisegate.sql.drafts.purchase import purchase
from noisegate.sql.question import Aggregate, Block, Function, GroupKey

# Every run of the tests tries the same ones; `make fuzz` others, and more.
EXAMPLES = 500 if os.environ.get("NOISEGATE_EXPLORE") else 30
COLUMNS = (
    Column(name="age", kind=Kind.INTEGER, between=(Fraction(18), Fraction(90)), nullable=False),
    Column(name="cost", kind=Kind.NUMBER, between=(Fraction(0), Fraction(500))),
    Column(name="sex", kind=Kind.TEXT, keys=("f", "m")),
    Column(name="city", kind=Kind.TEXT, nullable=False),
    Column(name="street", kind=Kind.TEXT),
)
ARGUMENTS = {
    Function.COUNT: [()],
    Function.COUNT_UNITS: [()],
    Function.COUNT_DISTINCT: [("sex",), ("age",), ("street",)],
    Function.CORR: [("age", "cost")],
    Function.COVAR_SAMP: [("age", "cost")],
    Function.COVAR_POP: [("age", "cost")],
}
SETS = {1: [((0,),), ((0,), ())], 2: [((0, 1),), ((0, 1), (0,), ()), ((0,), (1,))]}


@st.composite
def aggregates(draw):
    function = draw(st.sampled_from(list(Function)))
    args = draw(st.sampled_from(ARGUMENTS.get(function, [("age",), ("cost",)])))
    level = draw(st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]))
    where = draw(st.sampled_from([None, Call("gt", (Field("age"), Literal(40)))]))
    is_level = function is Function.QUANTILE
    return function, tuple(map(Field, args)), level if is_level else None, where


@st.composite
def questions(draw):
    """A block with at least one column whose keys are not declared, and caps for it."""
    unit = draw(st.sampled_from([None, "id"]))
    columns = {column.name: column for column in COLUMNS}
    owner = PrivacyUnit(column=unit)
    relation = Table(TableDomain(dataset="d", name="t", unit=owner, columns=columns))
    by = draw(st.sampled_from([("city",), ("street",), ("city", "sex"), ("city", "street")]))
    schema = schema_of(relation)
    asked = tuple(
        Aggregate(name=f"a{place}", function=function, args=args, level=level, where=where)
        for place, (function, args, level, where) in enumerate(
            draw(st.lists(aggregates(), min_size=1, max_size=4))
        )
    )
    block = Block(
        name="b",
        relation=relation,
        by=tuple(GroupKey(name=b, expression=Field(b), domain=schema[b]) for b in by),
        sets=draw(st.sampled_from(SETS[len(by)])),
        aggregates=asked,
    )
    groups = draw(st.sampled_from([None, 1, 3]))
    caps = Caps() if unit is None else Caps(rows_per_unit=5, groups_per_unit=groups)
    return block, caps


def priced(bought, accountant):
    """What everything together is charged, in the accountant's own unit."""
    parts = zip(bought.draft.parts, bought.mechanisms, strict=True)
    measured = [Measurement(query=part.query, mechanisms=each) for part, each in parts]
    events = [each.event() for each in (*bought.keys, *measured)]
    event = Sequential(events=tuple(events)) if events else NothingEvent()
    return accountant_named(accountant).price(event).as_fractions()


@given(
    question=questions(),
    count=st.sampled_from([1, 2, 7, 60]),
    accountant=st.sampled_from(["pure", "zcdp"]),
    rows=st.sampled_from([None, 10_000]),
)
@settings(max_examples=EXAMPLES)
def test_the_price_does_not_depend_on_which_groups_are_found(question, count, accountant, rows):
    block, caps = question
    terms = {"epsilon": "0.8", "delta": "1e-6", "rows": rows}
    before = purchase(draft(block, caps, accountant=accountant), **terms)
    found = [
        [tuple(f"{place} {name}" for name, _ in keys.by) for place in range(count)]
        for keys in key_questions(block, caps)
    ]
    after = purchase(draft(block, caps, found=found, accountant=accountant), **terms)
    assert priced(before, accountant) == priced(after, accountant)
    planned = replace(after, mechanisms=before.mechanisms)  # the planned noise hides one unit
    assert priced(before, accountant) == priced(planned, accountant)
    none = draft(block, caps, found=[[] for _ in found], accountant=accountant)
    assert priced(purchase(none, **terms), accountant) <= priced(before, accountant)
    if accountant == "pure":
        assert priced(before, accountant)[0] == Fraction(8, 10)
