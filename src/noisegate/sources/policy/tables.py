"""A policy beside what is stored: the facts about each table that questions are read with."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, TypeAlias

from noisegate.errors import PolicyError
from noisegate.files import place_of, table_of
from noisegate.privacy.domain import Column, Key, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.policy.columns import column_of
from noisegate.sources.policy.form import nearest
from noisegate.sources.policy.policy import Policy, TablePolicy

Stored: TypeAlias = Mapping[str, Mapping[str, Kind]]
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})


def domains(
    policy: Policy,
    *,
    stored: Stored,
    keys_of: Callable[[str, str], tuple[Key, ...]],
    origins: Mapping[str, str] = _NOWHERE,
) -> dict[str, TableDomain]:
    """The tables of a policy, checked against what is stored.

    A private table has the columns that are declared, and those that lead to its unit; a public one
    has all. ``stored`` are the columns of each table and their kinds, ``keys_of`` reads the values
    of a public table's column, ``origins`` say where the rows are.
    """
    _require_stored(policy, stored)
    _require_one_owner(policy, origins)
    return {
        name: TableDomain(
            dataset=policy.name,
            name=name,
            unit=None
            if table.public
            else PrivacyUnit(column=table.unit, noun=policy.noun(name), ids=policy.space(name)),
            columns=MappingProxyType(_columns(policy, table, stored[name], keys_of)),
            path=table.path,
            key=table.key,
            rows_per_unit_max=table.rows_per_unit,
            rows_per_unit_holds=table.rows_per_unit_holds,
            groups_per_unit_max=table.groups_per_unit,
            origin=origins.get(name, ""),
            snapshot=policy.snapshot,
            views=tuple(
                each
                for each in (name, *(step.table for step in table.path))
                if policy.tables[each].trusted_view
            ),
        )
        for name, table in policy.tables.items()
    }


def leading(policy: Policy, table: TablePolicy) -> dict[str, str]:
    """The columns of a table that lead to a unit, from it or through it, and their place."""
    place, found = f"tables.{table.name}", {}
    if table.unit is not None and not table.path:
        found[table.unit] = f"{place}.unit"
    for name, other in policy.tables.items():
        for at, step in enumerate(other.path):
            before = other.path[at - 1].table if at else name
            via = f"tables.{name}.unit.via[{at}]"
            found |= {step.column: via} if before == table.name else {}
            found |= {step.key: via} if step.table == table.name else {}
    return found


def _columns(
    policy: Policy,
    table: TablePolicy,
    kinds: Mapping[str, Kind],
    keys_of: Callable[[str, str], tuple[Key, ...]],
) -> dict[str, Column]:
    shown = set(kinds) if table.public else {*table.columns, *leading(policy, table)}
    columns = {}
    for name, kind in kinds.items():
        if name in shown:
            terms = table.columns.get(name, {})
            place = f"{policy.file.name}: tables.{table.name}.columns.{name}"
            target, _, column = terms.get("references", "").partition(".")
            keys = keys_of(target, column) if target else ()
            columns[name] = column_of(place, name, terms, stored=kind, keys=keys)
    return columns


def _require_one_owner(policy: Policy, origins: Mapping[str, str]) -> None:
    """Rows that stand in two tables are the same units' in both, or public in both.

    Why: were visits a patient's in one table and a doctor's in another, questions about the second
        would be private for the doctor alone, and the data set's budget says nothing of patients.
    """
    seen: dict[tuple[str, str, str], str] = {}
    for name, origin in origins.items():
        file, inside = place_of(origin)
        schema, table = (None, "") if inside is None else table_of(inside)
        rows = (_known(file), (schema or "main").casefold(), table.casefold())
        other = seen.setdefault(rows, name)
        one, first = policy.tables[name], policy.tables[other]
        said = [
            (each.public, each.unit, each.path, policy.space(each.name)) for each in (one, first)
        ]
        if said[0] != said[1]:
            raise PolicyError(
                f"{policy.file.name}: tables.{name}: table {other!r} has the same source and "
                "declares another owner for its rows.",
                fix="Declare the rows once, or with the same unit: a row has one owner.",
                about="owner",
            )


def _known(file: str) -> str:
    """A file by its inode, since it may have several names; an address as it is."""
    with suppress(OSError, ValueError):
        status = os.stat(file)  # noqa: PTH116 - may be an address
        return f"{status.st_dev}:{status.st_ino}"
    return file


def _require_stored(policy: Policy, stored: Stored) -> None:
    """Every column that the policy speaks of must be there, under exactly this name."""
    spoken: list[tuple[str, str, str]] = []
    for name, table in policy.tables.items():
        place = f"tables.{name}"
        if name not in stored:
            raise PolicyError(
                f"{policy.file.name}: {place}: the source has no such table.",
                fix=nearest(name, stored),
                about="table",
            )
        spoken += [(f"{place}.columns.{column}", name, column) for column in table.columns]
        spoken += [(f"{place}.key", name, column) for column in table.key]
        spoken += [(where, name, column) for column, where in leading(policy, table).items()]
        for column, terms in table.columns.items():
            if "references" in terms:
                other, _, key = terms["references"].partition(".")
                spoken.append((f"{place}.columns.{column}.references", other, key))
    for place, name, column in spoken:
        if column not in stored.get(name, {}):
            raise PolicyError(
                f"{policy.file.name}: {place}: table {name!r} has no column {column!r} of "
                "a supported type.",
                fix=nearest(column, stored.get(name, {})),
                about="column",
            )
