"""A first policy from the names and kinds of columns alone. No value is looked at."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, final

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.inert import line
from noisegate.privacy.domain import Kind
from noisegate.sources.policy.form import nearest
from noisegate.sources.policy.names import is_identifying, whose
from noisegate.steward.guesses import Hop, Links, Names, Tables, keys_to, paths, units_of

Notes: TypeAlias = Mapping[tuple[str, str], str]

_SILENT: Final[Notes] = MappingProxyType({})
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})
_TO_FILL_IN: Final = {
    Kind.INTEGER: "to add it up, add: between = [0, 100]; to group by it: in = [1, 2, 3]",
    Kind.NUMBER: "to add it up, add: between = [0.0, 100.0]",
    Kind.TEXT: 'to group by it, add: in = ["a", "b"]; a number or a date? Change the type',
    Kind.DATE: "to group by its months, add: between = [2020-01-01, 2029-12-31]",
    Kind.TIMESTAMP: "to group by its months, add: between = [2020-01-01, 2029-12-31]",
}


_FROM: Final = "names and types alone", "names, and from types that were found in the rows"
_TERMS: Final = (
    "",
    "[budget]",
    "epsilon = 1  # for all questions together, for ever; see: noisegate explain-epsilon 1",
    "# delta = 1e-6  # needed to group by columns whose values are not listed",
    "",
    "[questions]",
    "default_epsilon = 0.1  # of a question that names no price",
    "max_epsilon = 0.5",
    "",
    "[steward]",
    "epsilon = 0.1  # of the budget, for your own looks: noisegate describe POLICY --as steward",
    "",
    "# [allow]",
    "# others = false  # SQL and plain releases alone; name what else may be used",
    "",
    "# [analysts]",
    "# ana = 0.5  # the ε that one analyst may spend; without this list anyone may ask",
)


def draft(  # noqa: PLR0913 - what is known of tables, and what the steward says
    tables: Tables,
    *,
    sources: Mapping[str, str] = _NOWHERE,
    name: str = "dataset",
    links: Links = (),
    notes: Notes = _SILENT,
    unique: Collection[tuple[str, str]] = (),
    unit: str | None = None,
    public: Collection[str] = (),
    read: bool = False,
) -> str:
    """The text of a policy, with a comment for each choice that the steward should look at.

    It can be read as it is, with a budget of ε = 1 and no δ. A table whose rows seem to be nobody's
    stays in comments, so that it cannot be asked about before the steward says whose they are.

    Args:
        tables: The columns of each table and their kinds.
        sources: The file of each table, as the policy should write it.
        name: The name of the data set.
        links: Foreign keys that are known, each with its table; others are guessed from names.
        notes: What is noted about columns, by table and column.
        unique: Tables and columns of which a database lets no value repeat.
        unit: The column that names the person, of all tables that have it; or TABLE.COLUMN.
        public: Tables whose rows are nobody's.
        read: Whether types were found in rows.
    """
    if unknown := sorted(set(public) - set(tables)):
        raise SpecError(
            f"There is no table {unknown[0]!r}.", fix=nearest(unknown[0], tables), about="table"
        )
    links = [(_plain(table), (column, _plain(to), key)) for table, (column, to, key) in links]
    tables = {_plain(table): columns for table, columns in tables.items()}
    shown = {_plain(table) for table in public}
    private = {table: columns for table, columns in tables.items() if table not in shown}
    names = Names(tables)
    noun, units = units_of(private, names, links, unit)
    said = len(set(units.values())) > 1 or (len(units) > 1 and not all(map(whose, units.values())))
    ways = paths(private, units, links, names)
    open_tables = {table: tables[table] for table in shown}
    page = _Page(
        tables=tables,
        sources={_plain(table): source for table, source in sources.items()},
        notes={(_plain(table), column): text for (table, column), text in notes.items()},
        unique={(_plain(table), column) for table, column in unique},
        units=units,
        ways=ways,
        ids=noun if said else None,
        public=frozenset(shown),
        codes=keys_to(private, open_tables, links, names),
        names=names,
        why="as you said" if unit else "a guess",
    )
    lines = [
        "#:schema ./policy.schema.json",
        "# Write that file for your editor with: noisegate policy schema > policy.schema.json",
        f"# Drafted from {_FROM[read]}. Read every line, then run: noisegate check",
        f"name = {_text(_plain(name)[:80].strip() or 'dataset')}",
        f"protects = {_text(noun)}  # who is protected, as a noun",
        *_TERMS,
    ]
    if not units and not shown:
        lines += ["", "[tables]  # none yet: see below"]
    for table in sorted(tables, key=lambda one: (one not in units, one not in ways)):
        lines += ["", *page.table(table)]
    return "\n".join(lines) + "\n"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """All that is known or guessed. ``codes`` are columns that number rows of public tables."""

    tables: Tables
    sources: Mapping[str, str]
    notes: Notes
    unique: Collection[tuple[str, str]]
    units: Mapping[str, str]
    ways: Mapping[str, tuple[Hop, ...]]
    ids: str | None
    public: frozenset[str]
    codes: Mapping[tuple[str, str], str]
    names: Names
    why: str

    def table(self, table: str) -> list[str]:
        """The lines of a table; in comments where nobody knows whose rows it holds."""
        lines = [f"[tables.{_key(table)}]"]
        if table in self.sources:
            lines.append(f"source = {_text(self.sources[table])}")
        lines += [*self._rows(table), "", f"[tables.{_key(table)}.columns]", *self._columns(table)]
        if table in self.units or table in self.ways or table in self.public:
            return lines
        why = [
            f"# No column of {_text(table)} seems to name a person: it cannot be asked about yet.",
            "# Say whose rows these are: take one of the three lines.",
        ]
        return [*why, *(f"# {line}".rstrip() for line in lines)]

    def _rows(self, table: str) -> Iterator[str]:
        """Whose rows they are, and how many."""
        if table in self.public:
            yield "public = true  # as you said: nobody's rows, shown exactly and for free"
            for name in [each for each in self.tables[table] if (table, each) in self.unique][:1]:
                yield f"key = [{_text(name)}]  # a constraint of the database: no value repeats"
            return
        if table in self.units:
            column = _text(self.units[table])
            unit = f"{{ column = {column}, ids = {_text(self.ids)} }}" if self.ids else column
            yield f"unit = {unit}  # {self.why}: the column that names the person"
        elif table in self.ways:
            way = self.ways[table]
            hops = ", ".join(_text(f"{column} -> {to}.{key}") for column, to, key in way)
            yield "# a guess: foreign keys that lead to the person"
            yield f"unit = {{ column = {_text(self.units[way[-1][1]])}, via = [{hops}] }}"
        else:
            yield '# unit = "the column that names the person"'
            yield "# every_row_is_one_person = true  # only if no person has two rows here"
            yield "# public = true  # only if the rows are nobody's, such as a list of codes"
        if table in self.units or table in self.ways:
            owner = self.units.get(table)
            own = owner and self.names.is_row_of(self.names.stem(table, owner), table)
            most = "10  # the most rows of one person that count; more costs noise"
            one = "1  # if no person has two rows here, as its name suggests"
            if (table, owner) in self.unique:
                yield "rows_per_unit = 1  # a constraint of the database: no value repeats"
                yield "rows_per_unit_holds = true  # nobody has more, so nothing is left out"
            else:
                yield f"# rows_per_unit = {one if own else most}"
            yield "# groups_per_unit = 3  # the most groups in which one person counts"
        yield "# rows_max = 100_000  # more rows than there will ever be"

    def _columns(self, table: str) -> Iterator[str]:
        leads = {self.units.get(table), *(hop[0] for hop in self.ways.get(table, ())[:1])}
        for name, kind in self.tables[table].items():
            if (table, name) in self.notes:
                yield f"# {line(self.notes[table, name])}"
            if table in self.public:
                yield f'{_key(name)} = {{ type = "{kind.value}" }}'
            else:
                yield f"{_key(name)} = {self._column(table, name, kind, leads=name in leads)}"

    def _column(self, table: str, name: str, kind: Kind, *, leads: bool) -> str:
        if is_identifying(name) and not leads:
            return "{ hidden = true }  # sounds identifying: not available to questions"
        if kind is Kind.BOOLEAN:
            return '{ type = "boolean", in = [true, false] }'
        comment = _TO_FILL_IN[kind]
        if leads:
            comment = "leads to the person"
        elif code := self.codes.get((table, name)):
            comment = f"to group by it, add: references = {_text(code)}"
        elif self.names.stem(table, name):
            comment = "an id of something: to count and to join"
        return f'{{ type = "{kind.value}" }}  # {comment}'


def _plain(name: str) -> str:
    """A name without the marks that separate names in a policy."""
    return re.sub(r"[.#:/]", "_", name)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text: str) -> str:
    """Text as TOML writes it, on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
