"""Questions as plain values: equal exactly for equal questions, so that the ledger can compare."""

from hashlib import sha256
from typing import Any

from noisegate.algebra.expression import plain_values, to_plain
from noisegate.algebra.relation import (
    Filter,
    Folded,
    Join,
    Matching,
    Partnered,
    PerUnit,
    Project,
    Relation,
    Sampled,
    Table,
    Window,
    Windowed,
)
from noisegate.algebra.tally import (
    Axis,
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Sums,
    Tally,
    Term,
    Values,
)
from noisegate.privacy.domain import TableDomain


def tally_record(tally: Tally) -> dict[str, Any]:
    """A tally as JSON values."""
    record: dict[str, Any] = {"rows": relation_record(tally.relation)}
    if isinstance(tally, Keys):
        keys = [[name, to_plain(e)] for name, e in tally.by]
        return record | {"keys": keys, "cap": tally.keys_per_unit}
    if isinstance(tally, Cells):
        return record | {"cells": list(map(_axis_record, tally.by)), "cap": tally.rows_per_unit}
    record["by"] = [[to_plain(g.expression), plain_values(g.keys), g.rest] for g in tally.by]
    if isinstance(tally, Distinct):
        return record | {"distinct": to_plain(tally.expression), "cap": tally.keys_per_unit}
    if isinstance(tally, Values):
        return record | {"values": _term_record(tally.term), "cap": tally.rows_per_unit}
    if isinstance(tally, Marginals):
        sets, term = [list(each) for each in tally.sets], _term_record(tally.term)
        return record | {"marginals": term, "sets": sets, "cap": tally.rows_per_unit}
    name = "sums" if isinstance(tally, Sums) else "coordinates"
    record |= {name: list(map(_term_record, tally.terms)), "cap": tally.rows_per_unit}
    if isinstance(tally, Sums) and tally.squares_per_unit is not None:
        record["squares"] = tally.squares_per_unit
    if isinstance(tally, Sums) and tally.sized:
        record["sized"] = list(map(_term_record, tally.sized))
    return record


def relation_record(relation: Relation) -> Any:  # noqa: ANN401, PLR0911 - JSON, case after case
    """A relation as JSON values; equal exactly for equal relations."""
    if type(relation) is Table:
        return {"table": relation.domain.name}
    if type(relation) is Filter or type(relation) is Sampled:
        kept = {"where": to_plain(relation.condition)} if type(relation) is Filter else None
        kept = kept or {"sample": str(relation.probability)}  # type: ignore[union-attr]
        return kept | {"of": relation_record(relation.of)}
    if type(relation) is Project:
        columns = [[name, to_plain(e)] for name, e in relation.columns]
        return {"select": columns, "of": relation_record(relation.of)}
    if type(relation) is Join or type(relation) is Matching:
        one, other = (
            (relation.left, relation.right)
            if type(relation) is Join
            else (relation.of, relation.other)
        )
        how = relation.kind.value if type(relation) is Join else f"matching {not relation.negated}"
        on = [[to_plain(a), to_plain(b)] for a, b in relation.on]
        return {how: [relation_record(one), relation_record(other)], "on": on}
    if type(relation) is PerUnit:
        keys = [[name, to_plain(e)] for name, e in relation.keys]
        folded = list(map(_fold_record, relation.folded))
        return {"per unit": keys, "folded": folded, "of": relation_record(relation.of)}
    if type(relation) is Partnered:
        both = [relation_record(relation.of), relation_record(relation.other)]
        folded = list(map(_fold_record, relation.folded))
        return {"partners": both, "tie": to_plain(relation.condition), "folded": folded}
    if type(relation) is Windowed:
        windows = list(map(_window_record, relation.windows))
        return {"windows": windows, "of": relation_record(relation.of)}
    return {"union": list(map(relation_record, relation.parts))}


def _fold_record(folded: Folded) -> list[Any]:
    return [folded.name, folded.fold.value, to_plain(folded.expression)]


def _window_record(window: Window) -> list[Any]:
    keys = [to_plain(each) for each in window.keys]
    order = [[to_plain(o.expression), o.descending, o.nulls_first] for o in window.order]
    frame = None if window.frame is None else list(window.frame)
    return [window.name, window.how.value, to_plain(window.expression), keys, order, frame]


def _term_record(term: Term) -> list[Any]:
    return [to_plain(term.expression), str(term.grain), term.low, term.high]


def _axis_record(axis: Axis | Grouping) -> list[Any]:
    if type(axis) is Axis:
        return [to_plain(axis.expression), axis.low, str(axis.size)]
    return [to_plain(axis.expression), plain_values(axis.keys)]


def table_record(table: TableDomain, names: frozenset[str]) -> dict[str, Any]:
    """What decides a table's rows and how its columns are read."""
    columns = {
        column.name: [column.kind.value, *map(str, column.between or ())]
        for column in table.columns.values()
        if column.name in names and not column.hidden
    }
    unit = None if table.unit is None else (table.unit.column or "row")
    path = [[step.column, step.table, step.key] for step in table.path]
    return {
        "origin": sha256(table.origin.encode()).hexdigest()[:16] if table.origin else "",
        "snapshot": table.snapshot,
        "unit": [unit, *path],
        "columns": columns,
    }
