"""Values that the engine takes for equal and a question can tell apart: the two zeros of doubles.

Where the engine looks once for all rows that are equal to it, the zero of one person could decide
for the rows of all others. It does not, because no function tells zeros apart: not even as text.
"""

from types import MappingProxyType

import pyarrow as pa
import pytest

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Filter,
    Fold,
    Folded,
    Matching,
    Partnered,
    PerUnit,
    Project,
    Table,
)
from noisegate.algebra.tally import Sums, Term
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource

PEOPLE = 40


def table(name, unit, **kinds):
    columns = {each: Column(name=each, kind=kind) for each, kind in kinds.items()}
    return TableDomain(dataset="d", name=name, unit=unit, columns=MappingProxyType(columns))


OWNED = table("owned", PrivacyUnit(column="who", ids="p"), who=Kind.INTEGER, z=Kind.NUMBER)
EACH = table("each", PrivacyUnit(column=None), z=Kind.NUMBER)
CODES = table("codes", None, code=Kind.TEXT)
TABLES = {one.name: one for one in (OWNED, EACH, CODES)}
AS_TEXT = Call("to_text", (Field("z"),))


def count(relation, people, zeros):
    """How many rows a relation has, where the people hold these zeros."""
    frames = {
        "owned": pa.table(
            {"who": pa.array(people, pa.int64()), "z": pa.array(zeros, pa.float64())}
        ),
        "each": pa.table({"z": pa.array(zeros, pa.float64())}),
        "codes": pa.table({"code": ["-0.0", "B"]}),
    }
    term = Term(expression=Literal(1), grain=1, low=0, high=1)
    tally = Sums(relation=relation, by=(), terms=(term,))
    return int(DuckDBSource(frames, TABLES).sums(tally)[0][0])


def moved(relation, at):
    """How many rows come or go with one person, whose zero has another sign and place."""
    zeros = [-0.0] * PEOPLE
    others = count(relation, list(range(PEOPLE)), zeros)
    return abs(
        count(relation, [*range(at), PEOPLE, *range(at, PEOPLE)], [*zeros[:at], 0.0, *zeros[at:]])
        - others
    )


def matching(rows, *, negated):
    return Matching(Table(rows), Table(CODES), ((AS_TEXT, Field("code")),), negated)


def partnered(rows, *, negated):
    tie = Call("eq", (AS_TEXT, Field("code")))
    counted = Partnered(Table(rows), Table(CODES), tie, (Folded("n", Fold.COUNT, Literal(1)),))
    return Filter(counted, Call("eq" if negated else "gt", (Field("n"), Literal(0))))


@pytest.mark.parametrize("at", [0, PEOPLE])
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("rows", [OWNED, EACH])
@pytest.mark.parametrize("form", [matching, partnered])
def test_one_persons_zero_does_not_choose_the_partners_of_others(form, rows, negated, at):
    assert moved(form(rows, negated=negated), at) <= 1


@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0]])
@pytest.mark.parametrize("fold", [None, Fold.MIN, Fold.MAX])
def test_the_order_of_zeros_does_not_show_in_what_is_made_of_them(fold, zeros):
    keys = (("z", Field("z")),) if fold is None else ()
    folded = () if fold is None else (Folded("z", fold, Field("z")),)
    made = PerUnit(Table(OWNED), keys, folded)
    text = Project(made, (("t", AS_TEXT),))
    shown = Filter(text, Call("eq", (Field("t"), Literal("-0.0"))))
    assert count(shown, [1, 1], zeros) == 0
