"""What names and declared keys suggest about a set of tables: who the person is, and ways to it."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, final

from noisegate.errors import SpecError
from noisegate.privacy.domain import Kind
from noisegate.sources.policy.form import nearest
from noisegate.sources.policy.names import PERSONS, person, singular, stem

Tables: TypeAlias = Mapping[str, Mapping[str, Kind]]
Hop: TypeAlias = tuple[str, str, str]  # column, table, key
Links: TypeAlias = Sequence[tuple[str, Hop]]

_NAMING: Final = (Kind.INTEGER, Kind.TEXT)  # kinds that can name a person
_ENDINGS: Final = ("key", "id", "no", "nr")  # of what a column numbers, written in one word
_SHORT: Final = 3  # letters of a name that may stand for a longer one, as cust for customer


@final
class Names:
    """Columns without the prefix that all columns of their table share, as ``c_`` of customers."""

    def __init__(self, tables: Tables) -> None:
        self._bare = {table: _bare(columns) for table, columns in tables.items()}
        self._rows = {table: singular(table) for table in tables}

    def bare(self, table: str, column: str) -> str:
        """The name of a column for itself."""
        return self._bare[table][column]

    def stem(self, table: str, column: str) -> str:
        """What a column numbers: ``custkey`` too, if a table of customers has such a column."""
        bare = self.bare(table, column)
        short = next((bare.removesuffix(end) for end in _ENDINGS if bare.endswith(end)), "")
        is_table = any(
            _stands_for(short, row) and bare in self._bare[of].values()
            for of, row in self._rows.items()
        )
        return stem(bare) or (short.rstrip("_") if is_table else "")

    def person(self, table: str, column: str) -> str:
        """The noun of a person that a column names, or nothing."""
        if noun := person(self.bare(table, column)):
            return noun
        what = self.stem(table, column)
        return next((each for each in self._rows.values()
                     if what and each in PERSONS and _stands_for(what, each)), "")  # fmt: skip

    def is_row_of(self, what: str, table: str) -> bool:
        """Whether that is what the table calls one of its rows."""
        return what == self._rows[table] or (
            what not in self._rows.values() and _stands_for(what, self._rows[table])
        )

    def is_known(self, what: str) -> bool:
        """Whether that is what any table calls one of its rows."""
        return any(self.is_row_of(what, table) for table in self._rows)

    def like(self, table: str, column: str, other: str) -> str | None:
        """The column of another table that has the same name."""
        bare = self.bare(table, column)
        return next((each for each, its in self._bare[other].items() if its == bare), None)


def _bare(columns: Mapping[str, Kind]) -> dict[str, str]:
    prefixes = {name.lower().partition("_")[0] for name in columns if "_" in name}
    shared = len(columns) > 1 and len(prefixes) == 1 and all("_" in name for name in columns)
    bare = {name: (name.partition("_")[2] if shared else name).lower() for name in columns}
    return bare if all(bare.values()) else {name: name.lower() for name in columns}


def _stands_for(short: str, long: str) -> bool:
    return len(short) >= _SHORT and long.startswith(short)


def units_of(
    tables: Tables, names: Names, links: Links, unit: str | None
) -> tuple[str, dict[str, str]]:
    """The noun of a person that most tables name, and the column in each of them."""
    if unit is not None:
        return _said(tables, names, links, unit)
    found: dict[str, dict[str, str]] = {}
    for table, columns in tables.items():
        own = singular(table)
        for column, kind in columns.items():
            is_own = column.lower() == "id" and person(own)
            noun = own if is_own else names.person(table, column)
            if noun and kind in _NAMING:
                found.setdefault(noun, {}).setdefault(table, column)
    if found:
        noun = max(found, key=lambda one: len(found[one]))  # the first of those with the most
        return noun, found[noun]
    shared = [stem(column) for columns in tables.values() for column in columns if stem(column)]
    often = max(shared, key=shared.count, default="")
    if shared.count(often) > 1:
        pairs = [(t, c) for t, columns in tables.items() for c in columns if stem(c) == often]
        return often, dict(reversed(pairs))
    if len(tables) == 1:
        ((table, columns),) = tables.items()
        ids = [c for c in columns if columns[c] in _NAMING and (c.lower() == "id" or stem(c))]
        return "person", dict([(table, ids[0])] if ids else [])
    return "person", {}


def _said(tables: Tables, names: Names, links: Links, unit: str) -> tuple[str, dict[str, str]]:
    """The column that the steward names: of every table that has it, or of one, and keys to it."""
    table, dot, column = unit.rpartition(".")
    own = [table] if dot else [each for each in tables if unit in tables[each]]
    if not own or any(column not in tables.get(each, ()) for each in own):
        known = [f"{t}.{c}" for t, columns in tables.items() for c in columns]
        raise SpecError(
            f"No private table has the column {unit!r}.", fix=nearest(unit, known), about="unit"
        )
    if kind := next((k for each in own if (k := tables[each][column]) not in _NAMING), None):
        raise SpecError(
            f"{unit!r} is {kind.value}, which cannot name a person.",
            fix="Name a column of whole numbers or text.",
            about="unit",
        )
    noun = names.person(own[0], column) or names.stem(own[0], column) or singular(own[0])
    found = dict.fromkeys(own, column)
    found |= {of: hop[0] for of, hop in links if hop[1:] == (own[0], column) and of in tables}
    return noun, found


def paths(
    tables: Tables, units: Mapping[str, str], links: Links, names: Names
) -> dict[str, tuple[Hop, ...]]:
    """The ways of foreign keys from tables without the unit to tables with it, shortest first."""
    found: dict[str, tuple[Hop, ...]] = dict.fromkeys(units, ())
    frontier = list(units)
    while frontier:
        reached = {
            table: (hop, *found[target])
            for target in reversed(frontier)
            for table in tables
            if table not in found and (hop := _hop(table, target, tables, links, names))
        }
        found |= reached
        frontier = list(reached)
    return {table: path for table, path in found.items() if path}


def keys_to(
    tables: Tables, public: Tables, links: Links, names: Names
) -> dict[tuple[str, str], str]:
    """Of columns that number the rows of public tables: by table and column, ``TABLE.KEY``."""
    every = {**tables, **public}
    hops = [(t, _hop(t, target, every, links, names)) for t in tables for target in public]
    return {(table, hop[0]): f"{hop[1]}.{hop[2]}" for table, hop in hops if hop is not None}


def _hop(table: str, target: str, tables: Tables, links: Links, names: Names) -> Hop | None:
    """A foreign key that is declared, or a column that numbers ``target``, as ``visit_id`` does."""
    declared = [hop for of, hop in links if of == table and hop[1] == target]
    if declared:
        return declared[0]
    for column in tables[table]:
        what = names.stem(table, column)
        if not what or names.is_row_of(what, table):
            continue
        named = names.is_row_of(what, target)
        same = names.like(table, column, target)
        if same is not None and (named or not names.is_known(what)):
            return column, target, same
        if named and "id" in tables[target]:
            return column, target, "id"
    return None
