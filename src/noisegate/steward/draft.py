"""A first policy from the names and kinds of columns alone. No value is looked at."""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from noisegate.inert import line
from noisegate.privacy.domain import Kind
from noisegate.sources.policy.names import is_identifying, person, singular, stem, whose

Tables: TypeAlias = Mapping[str, Mapping[str, Kind]]
Hop: TypeAlias = tuple[str, str, str]  # column, table, key

Links: TypeAlias = Sequence[tuple[str, Hop]]
Notes: TypeAlias = Mapping[tuple[str, str], str]

_SILENT: Final[Notes] = MappingProxyType({})
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})
_NAMING: Final = (Kind.INTEGER, Kind.TEXT)  # kinds that can name a person
_TO_FILL_IN: Final = {
    Kind.BOOLEAN: "to group by it, add: in = [true, false]",
    Kind.INTEGER: "to add it up, add: between = [0, 100]; to group by it: in = [1, 2, 3]",
    Kind.NUMBER: "to add it up, add: between = [0.0, 100.0]",
    Kind.TEXT: 'to group by it, add: in = ["a", "b"]; a number or a date? Change the type',
    Kind.DATE: "to group by its months, add: between = [2020-01-01, 2029-12-31]",
    Kind.TIMESTAMP: "to group by its months, add: between = [2020-01-01, 2029-12-31]",
}


def draft(
    tables: Tables,
    *,
    sources: Mapping[str, str] = _NOWHERE,
    name: str = "dataset",
    links: Links = (),
    notes: Notes = _SILENT,
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
    """
    links = [(_plain(table), (column, _plain(to), key)) for table, (column, to, key) in links]
    notes = {(_plain(table), column): text for (table, column), text in notes.items()}
    tables = {_plain(table): columns for table, columns in tables.items()}
    sources = {_plain(table): source for table, source in sources.items()}
    noun, units = _units(tables)
    said = len(set(units.values())) > 1 or (len(units) > 1 and not all(map(whose, units.values())))
    ids = noun if said else None
    paths = _paths(tables, units, links)
    lines = [
        "#:schema ./policy.schema.json",
        "# Write that file for your editor with: noisegate policy schema > policy.schema.json",
        "# Drafted from names and types alone. Read every line, then run: noisegate check",
        f"name = {_text(_plain(name)[:80].strip() or 'dataset')}",
        f"protects = {_text(noun)}  # who is protected, as a noun",
        "",
        "[budget]",
        "epsilon = 1  # for all questions together, for ever; see: noisegate explain-epsilon 1",
        "# delta = 1e-6  # needed to group by columns whose values are not listed",
        "",
        "[questions]",
        "default_epsilon = 0.1  # of a question that names no price",
        "max_epsilon = 0.5",
        "",
        "# [allow]",
        "# others = false  # SQL and plain releases alone; name what else may be used",
        "",
        "# [analysts]",
        "# ana = 0.5  # the ε that one analyst may spend; without this list anyone may ask",
    ]
    if not units:
        lines += ["", "[tables]  # none yet: see below"]
    for table in sorted(tables, key=lambda one: (one not in units, one not in paths)):
        own = {column: text for (of, column), text in notes.items() if of == table}
        lines += ["", *_table(table, tables, units, paths, sources, ids, notes=own)]
    return "\n".join(lines) + "\n"


def _units(tables: Tables) -> tuple[str, dict[str, str]]:
    """The noun of a person that most tables name, and the column in each of them."""
    found: dict[str, dict[str, str]] = {}
    for table, columns in tables.items():
        own = singular(table)
        for column, kind in columns.items():
            is_own = column.lower() == "id" and person(own)
            noun = own if is_own else person(column)
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


def _paths(tables: Tables, units: Mapping[str, str], links: Links) -> dict[str, tuple[Hop, ...]]:
    """The ways of foreign keys from tables without the unit to tables with it, shortest first."""
    paths: dict[str, tuple[Hop, ...]] = dict.fromkeys(units, ())
    frontier = list(units)
    while frontier:
        reached = {
            table: (hop, *paths[target])
            for target in reversed(frontier)
            for table in tables
            if table not in paths
            and (hop := _linked(table, target, links) or _hop(table, target, tables))
        }
        paths |= reached
        frontier = list(reached)
    return {table: path for table, path in paths.items() if path}


def _linked(table: str, target: str, links: Links) -> Hop | None:
    """A foreign key that is known."""
    return next((hop for of, hop in links if of == table and hop[1] == target), None)


def _hop(table: str, target: str, tables: Tables) -> Hop | None:
    """A column of ``table`` that numbers the rows of ``target``, as ``visit_id`` does visits."""
    for column in tables[table]:
        what = stem(column)
        if not what or singular(table) == what:
            continue
        named = singular(target) == what
        if column in tables[target] and (named or what not in map(singular, tables)):
            return column, target, column
        if named and "id" in tables[target]:
            return column, target, "id"
    return None


def _table(  # noqa: PLR0913 - what is known of a table
    table: str,
    tables: Tables,
    units: Mapping[str, str],
    paths: Mapping[str, tuple[Hop, ...]],
    sources: Mapping[str, str],
    ids: str | None,
    *,
    notes: Mapping[str, str],
) -> list[str]:
    lines = [f"[tables.{_key(table)}]"]
    if table in sources:
        lines.append(f"source = {_text(sources[table])}")
    known = table in units or table in paths
    if table in units:
        column = _text(units[table])
        unit = f"{{ column = {column}, ids = {_text(ids)} }}" if ids else column
        lines.append(f"unit = {unit}  # a guess: the column that names the person")
    elif table in paths:
        hops = ", ".join(_text(f"{column} -> {to}.{key}") for column, to, key in paths[table])
        column = units[paths[table][-1][1]]
        lines.append("# a guess: foreign keys that lead to the person")
        lines.append(f"unit = {{ column = {_text(column)}, via = [{hops}] }}")
    else:
        lines += [
            '# unit = "the column that names the person"',
            "# every_row_is_one_person = true  # only if no person has two rows here",
            "# public = true  # only if the rows are nobody's, such as a list of codes",
        ]
    if known:
        lines += [
            "# rows_per_unit = 10  # the most rows of one person that count; more costs noise",
            "# groups_per_unit = 3  # the most groups in which one person counts",
        ]
    lines += ["# rows_max = 100_000  # more rows than there will ever be", ""]
    lines += [f"[tables.{_key(table)}.columns]"]
    leads = {units.get(table), *(hop[0] for hop in paths.get(table, ())[:1])}
    for name, kind in tables[table].items():
        lines += [f"# {line(notes[name])}"] if name in notes else []
        lines.append(_column(name, kind, leads=name in leads))
    if known:
        return lines
    why = [
        f"# No column of {_text(table)} seems to name a person, so it cannot be asked about yet.",
        "# Say whose rows these are: take one of the three lines.",
    ]
    return [*why, *(f"# {line}".rstrip() for line in lines)]


def _column(name: str, kind: Kind, *, leads: bool) -> str:
    if is_identifying(name) and not leads:
        return (
            f"{_key(name)} = {{ hidden = true }}  # sounds identifying: not available to questions"
        )
    joins = "leads to the person" if leads else "an id of something: to count and to join"
    comment = joins if leads or stem(name) else _TO_FILL_IN[kind]
    return f'{_key(name)} = {{ type = "{kind.value}" }}  # {comment}'


def _plain(name: str) -> str:
    """A name without the marks that separate names in a policy."""
    return re.sub(r"[.#:/]", "_", name)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text: str) -> str:
    """Text as TOML writes it, on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
