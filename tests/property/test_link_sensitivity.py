"""Random rows and questions of linked tables whose keys repeat: answers move by at most the claim.

What was taken is a visit's, and what it is made of is that of what was taken: whose they are is
said by one link, and by two. A visit is written down several times, for one patient, for two or for
nobody; keys are numbers or texts, and ids, too. Joins along links have a writer of their own
(`sources/writing/links.py`). The neighbours of a question are the tables without a patient, with
and without the rows of the other tables that are nobody's then. Nothing here draws noise.
"""

import os
from fractions import Fraction
from random import Random

import pyarrow as pa
import pytest
import test_sensitivity as made

from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Filter, Join, JoinKind, Matching, Table, Union
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Sums, Term
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind, Step
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.writing import links
from noisegate.transforms.query import Query

PATIENTS, QUESTIONS = 5, 8
SEEDS = 60 if os.environ.get("NOISEGATE_EXPLORE") else 3  # of so many questions, 5 neighbours each
WHO = PrivacyUnit(column="who", ids="patient")
ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
LINKS = {"taken": ("visit", "visits", "vid"), "parts": ("take", "taken", "tid")}


def tables_of(kind):
    """The tables, where visits are numbered by whole numbers or texts."""
    to_visit, to_take = (Step(column=a, table=of, key=b) for a, of, b in LINKS.values())
    codes, visit = made.column("code", Kind.TEXT), made.column("visit", kind)
    cost = made.column("cost", Kind.NUMBER, between=(-100, 900))
    mass = made.column("mass", Kind.INTEGER, between=(0, 9))
    take = [made.column(name, Kind.INTEGER) for name in ("tid", "take")]
    found = [
        made.table("visits", [made.column("vid", kind), cost, codes], WHO),
        made.table("taken", [visit, take[0], codes], WHO, path=(to_visit,)),
        made.table("parts", [take[1], codes, mass], WHO, path=(to_take, to_visit)),
    ]
    return {each.name: each for each in found}


def some_rows(random):
    def some(most, *columns):
        rows = [tuple(map(random.choice, columns)) for _ in range(random.randint(2, most))]
        return rows + random.choices(rows, k=random.randint(0, 3))  # written down again

    few, owners = [0, 0, 1, 1, 2, 3, None], [*range(PATIENTS), None]
    return {
        "visits": some(14, [*few, 4], owners, made.ODD, made.CODES),
        "taken": some(12, [*few, 4, 9], few, made.CODES),
        "parts": some(10, [*few, 8], made.CODES, [0, 3, 11, -2, None]),
    }


def without(rows, patient, *, kept):
    """The tables without a patient; rows that were nobody else's may be ``kept``."""
    visits = [row for row in rows["visits"] if row[1] != patient]
    if kept:
        return {**rows, "visits": visits}
    gone = {row[0] for row in rows["visits"]} - {row[0] for row in visits}
    taken = [row for row in rows["taken"] if row[0] not in gone]
    lost = {row[1] for row in rows["taken"]} - {row[1] for row in taken}
    parts = [row for row in rows["parts"] if row[0] not in lost]
    return {"visits": visits, "taken": taken, "parts": parts}


def frames_of(rows, random, key, owner):
    whole, text = pa.int64(), pa.string()
    columns = {
        "visits": (("vid", key), ("who", owner), ("cost", pa.float64()), ("code", text)),
        "taken": (("visit", key), ("tid", whole), ("code", text)),
        "parts": (("take", whole), ("code", text), ("mass", whole)),
    }

    found = {}
    for name, typed in columns.items():
        shuffled = random.sample(rows[name], len(rows[name]))
        found[name] = pa.table({
            column: pa.array([
                str(row[place]) if kind == text and row[place] is not None else row[place]
                for row in shuffled
            ], kind)
            for place, (column, kind) in enumerate(typed)
        })  # fmt: skip
    return found


# questions


def some_join(random, tables, prefix):
    """Of some rows of a table and of its partner's, by their link, by more than it, or otherwise."""

    def some(name):
        rows = Table(tables[name])
        kept = random.random() < 0.6
        return rows if kept else Filter(rows, made.some_condition(random, schema_of(rows)))

    child, (column, parent, key) = random.choice([*LINKS.items()])
    left, right = some(child), made.renamed(some(parent), prefix)
    pairs = [(Field(column), Field(prefix + key))]
    if random.random() < 0.4:
        left, right, pairs = right, left, [pairs[0][::-1]]
    more = made.same_kind(random, schema_of(left), schema_of(right))
    if more and random.random() < 0.4:
        pairs = random.choice([[*pairs, more], [more, *pairs], [more]])
    return Join(left, right, tuple(pairs), random.choice([*JoinKind]))


def some_rows_of(random, tables, prefix):
    if random.random() < 0.5:
        return some_join(random, tables, prefix)
    return Table(tables[random.choice(["taken", "parts", "visits"])])


def some_relation(random, tables):  # noqa: PLR0911 - one for each operator
    below = some_rows_of(random, tables, "a_")
    schema = schema_of(below)
    kind = random.choice(["", "filter", "unit", "union", "window", "match", "partners", "join"])
    if kind == "filter":
        return Filter(below, made.some_condition(random, schema))
    if kind == "unit":
        return made.some_folding(random, below, schema, 1)
    if kind == "union":
        return Union((below, Filter(below, made.some_condition(random, schema))))
    if kind == "window":
        return made.some_windows(random, below, schema, 1)
    other = made.renamed(some_rows_of(random, tables, "b_"), "o_")
    pair = made.same_kind(random, schema, schema_of(other))
    if kind == "match" and pair:
        return Matching(below, other, random.choice([(pair,), ()]), random.random() < 0.5)
    if kind == "partners" and pair:
        return made.some_partners(random, below, other, pair, 1)
    if kind == "join" and pair:
        return Join(below, other, (pair,), random.choice([*JoinKind]))
    return below


def require_neighbours(seed, show):
    """``show`` gives a source of tables; how many numbers moved."""
    random, moved = Random(seed), 0
    kind, key = random.choice([(Kind.INTEGER, pa.int64()), (Kind.TEXT, pa.string())])
    owner = random.choice([pa.int64(), pa.int64(), pa.string()])
    tables, rows = tables_of(kind), some_rows(random)
    source = show(frames_of(rows, random, key, owner), tables)

    def relation_of(random):
        return some_relation(random, tables), random.choice([None, 1, 2, 5])

    queries = []
    while len(queries) < QUESTIONS:
        query = made.some_query(random, relation_of)
        try:
            source.require(query.tally)
        except Unsupported:
            continue  # of this engine
        queries.append(query)
    before = [made.collected(source, query) for query in queries]
    for patient in range(PATIENTS):
        left = without(rows, patient, kept=random.random() < 0.5)
        source = show(frames_of(left, random, key, owner), tables)
        for query, held in zip(queries, before, strict=True):
            after = made.collected(source, query)
            made.require_claim(query, made.guessed(query, held), held, after)
            moved += repr(after) != repr(held)
    return moved


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(made.duckdb, "connect", made.plain_connection)
    monkeypatch.setattr(made.threading, "Timer", made.NoClock)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_questions_along_links_move_by_at_most_their_claim(seed):
    assert require_neighbours(seed, DuckDBSource) > QUESTIONS * PATIENTS / 20


def test_a_join_that_is_taken_for_its_link_is_caught(monkeypatch):
    """Rows that meet by another column are given the owners of those that they meet."""
    tables, rows = tables_of(Kind.INTEGER), {"visits": [(1, 0, 1.0, "a"), (2, 1, 1.0, "a")]}
    rows |= {"taken": [(1, 7, "a")] * 3, "parts": []}
    seen = made.renamed(Table(tables["visits"]), "a_")
    relation = Join(Table(tables["taken"]), seen, ((Field("code"), Field("a_code")),))
    query = Query(Sums(relation=relation, terms=(ONE,), rows_per_unit=1))

    def moves():
        for each in (rows, without(rows, 0, kept=False)):
            frames = frames_of(each, Random(0), pa.int64(), pa.int64())
            yield DuckDBSource(frames, tables).sums(query.tally)

    made.require_claim(query, None, *moves())
    monkeypatch.setattr(links, "_is_link", lambda *_: True)
    with pytest.raises(AssertionError):
        made.require_claim(query, None, *moves())
