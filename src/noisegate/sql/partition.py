"""Disjoint parts of a table: by the declared keys of a column, or by the first true condition.

What is read here is handed to the door as a rule that gives each row one key
(`curator/partition.py`), so parts are disjoint by construction: where conditions overlap, their
order tells.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypedDict, Unpack, final

from noisegate.algebra.expression import Call, Expression, Field, Literal
from noisegate.algebra.relation import Filter, Table
from noisegate.curator.curator import Curator
from noisegate.curator.partition import Part
from noisegate.desk.terms.terms import PartOf, require_texts
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Key, TableDomain
from noisegate.sql.reading.reader import read
from noisegate.transforms.restrict import declared

Where: TypeAlias = Sequence[str] | Mapping[str, str]
FIRST: Final = "first"
_PARTS_MAX: Final = 1_000
ORDERED_MAX: Final = 100  # conditions of an order: each is read anew


class PartitionTerms(TypedDict, total=False):
    """What is said of a partition besides its column."""

    where: Where | None  # conditions, by name or not: a row is in the first that is true
    table: str | None  # if several have the column
    several: str | None  # "first": units of several parts count in the first alone


def parts_of(
    curator: Curator,
    column: str | None,
    *,
    where: Where | None = None,
    table: str | None = None,
    several: str | None = None,
) -> dict[Key, Part]:
    """The parts, by key of the column or by condition (or the name that was given to it)."""
    if curator.part is not None:
        raise already_one()
    rule = _rule(curator.tables, column, where=where, table=table, several=several)
    return {key: rule.part(key) for key in rule.keys}


def named_parts(
    tables: Mapping[str, TableDomain], column: str | None, **terms: Unpack[PartitionTerms]
) -> dict[Key, PartOf]:
    """The same as orders name them, from what is public about tables that are elsewhere."""
    found, where = _rule(tables, column, **terms).keys, terms.get("where")
    table, several = terms.get("table") or "", terms.get("several") or ""
    keys, by = [str(key) for key in found], [column or ""]
    if column is None:
        keys = list(where.values()) if isinstance(where, Mapping) else list(where or ())
        keys = [f"({each})" for each in keys] if len(keys) == 1 else keys  # never a column
        by = keys
    return {
        name: PartOf(by=tuple(by), key=key, table=table, several=several)
        for name, key in zip(found, keys, strict=True)
    }


def already_one() -> SpecError:
    """A part is not split again."""
    return SpecError(
        "This gate is already one part.", fix="Split by all conditions at once.", about="partition"
    )


@final
@dataclass(frozen=True, slots=True)
class _Rule:
    """What puts rows into parts, and the parts: what each is called, the key it has, and words.

    Parts are made one by one: to make one is to look at the whole rule.
    """

    table: TableDomain
    by: Expression
    keys: Mapping[Key, tuple[Key, str]]

    def part(self, name: Key) -> Part:
        """One of them."""
        key, words = self.keys[name]
        return Part(table=self.table, by=self.by, key=key, name=words)


def _rule(
    tables: Mapping[str, TableDomain],
    column: str | None,
    *,
    where: Where | None = None,
    table: str | None = None,
    several: str | None = None,
) -> _Rule:
    require_texts(column=column, table=table, several=several)
    if (column is None) == (where is None):
        raise SpecError(
            "A partition is by a column or by conditions.",
            fix='Use partition("ward") or partition(where=["age < 18", "age < 65"]).',
            about="partition",
        )
    domain = _table(tables, table, column)
    _require_several(domain, several)
    if column is not None:
        found = _by_column(domain, column.rpartition(".")[2])
    else:
        found = _by_conditions(tables, domain, where or ())
    if not 0 < len(found.keys) <= _PARTS_MAX:
        raise SpecError(
            "A partition has no parts, or too many.",
            fix=f"Use 1 to {_PARTS_MAX:,} keys or conditions.",
            about="partition",
        )
    return found


def part_of(curator: Curator, asked: PartOf) -> Part:
    """The part that an order names; refuses one that there is not."""
    if curator.part is not None:
        raise already_one()
    columns = {name for table in curator.tables.values() for name in table.columns}
    is_column = len(asked.by) == 1 and asked.by[0].rpartition(".")[2] in columns
    if not is_column and len(asked.by) > ORDERED_MAX:
        raise SpecError(
            f"An order names a part of at most {ORDERED_MAX} conditions.",
            fix="Split by fewer conditions, or by a column with declared keys.",
            about="part",
        )
    rule = _rule(
        curator.tables, asked.by[0] if is_column else None,
        where=None if is_column else asked.by, table=asked.table or None,
        several=asked.several or None,
    )  # fmt: skip
    names = {str(key): key for key in rule.keys}
    if asked.key not in names:
        raise SpecError(
            f"There is no part {asked.key!r}.", fix=f"Use one of: {', '.join(names)}.", about="part"
        )
    return rule.part(names[asked.key])


def _table(tables: Mapping[str, TableDomain], table: str | None, column: str | None) -> TableDomain:
    """The private table that is meant: by name, or the only one that has the column."""
    before, _, name = (column or "").rpartition(".")
    wanted = table or before or None
    private = [each for each in tables.values() if not each.is_public]
    if wanted is not None:
        found = [each for each in private if each.name.lower() == wanted.lower()]
    else:
        found = [each for each in private if column is None or name in each.columns]
    if len(found) != 1:
        raise SpecError(
            "It is not clear which private table is to be split into parts.",
            fix=f"Name one with table=…: {', '.join(each.name for each in private)}.",
            about="table",
        )
    return found[0]


def _require_several(table: TableDomain, several: str | None) -> None:
    """Whoever splits a table with units says what to do with units of several parts.

    Not where the policy says that each has one row: if that is wrong, a unit counts in the first.
    """
    if several not in (None, FIRST):
        raise SpecError(f"several is {several!r}.", fix=f'Use several="{FIRST}".', about="several")
    has_one = table.rows_per_unit_holds and table.rows_per_unit_max == 1
    if several is None and not (table.is_row_level or has_one):
        noun = table.unit.noun if table.unit is not None else "unit"
        raise Unsupported(
            f"One {noun} may have rows in several parts of {table.name!r}.",
            fix=f'Use several="{FIRST}" (--several {FIRST}): each {noun} then counts in the first '
            "of its parts alone. Nothing changes where all its rows are in one part.",
            about="several",
        )


def _by_column(table: TableDomain, name: str) -> _Rule:
    """One part for each declared key, in their order."""
    if name not in table.columns:
        raise SpecError(
            f"There is no column {name!r} in {table.name!r}.",
            fix=f"There are: {', '.join(table.columns)}.",
            about="column",
        )
    keys = declared(table, name).keys or ()
    if table.is_row_level and all(type(key) in (int, str) for key in keys):
        return _Rule(table, Field(name), {key: (key, _words(name, key)) for key in keys})
    equal = [Call("eq", (Field(name), Literal(key))) for key in keys]
    return _numbered(table, equal, {key: _words(name, key) for key in keys})


def _words(column: str, key: Key) -> str:
    return f"{column} = {key if type(key) is int else repr(str(key))}"


def _numbered(
    table: TableDomain, conditions: Sequence[Expression], names: Mapping[Key, str]
) -> _Rule:
    """Parts by the first condition that is true, in the order of their names."""
    pairs = [each for place, one in enumerate(conditions) for each in (one, Literal(place))]
    keys: dict[Key, tuple[Key, str]] = {
        name: (place, words) for place, (name, words) in enumerate(names.items())
    }
    return _Rule(table, Call("case", tuple(pairs)), keys)


def _by_conditions(tables: Mapping[str, TableDomain], table: TableDomain, where: Where) -> _Rule:
    named = dict(where) if isinstance(where, Mapping) else {each: each for each in where}
    if isinstance(where, str) or not all(isinstance(each, str) for each in named.values()):
        raise SpecError(
            "where is not a list of conditions.", fix='Use where=["age < 18", "age < 65"].',
            about="partition",
        )  # fmt: skip
    if not isinstance(where, Mapping) and len(named) < len(where):
        raise SpecError("A condition is listed twice.", fix="List each once.", about="partition")
    read_ = [_condition(tables, table, each) for each in named.values()]
    words: dict[Key, str] = {
        name: f"{text}, and none of those before" if place else text
        for place, (name, text) in enumerate(named.items())
    }
    return _numbered(table, read_, words)


def _condition(tables: Mapping[str, TableDomain], table: TableDomain, text: str) -> Expression:
    """A condition on one row, as the reader of questions understands it."""
    quoted = table.name.replace('"', '""')
    sql = f'SELECT COUNT(*) FROM "{quoted}" WHERE ({text}\n)'  # noqa: S608 - read, never run
    question = read(sql, dict(tables))
    relation = question.blocks[0].relation if len(question.blocks) == 1 else None
    if type(relation) is not Filter or relation.of != Table(table):
        raise Unsupported(
            f"{text!r} is not a condition on single rows of {table.name!r}.",
            fix="Compare its columns with constants, such as age < 18.",
            about="partition",
        )
    return relation.condition
