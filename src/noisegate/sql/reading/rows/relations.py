"""FROM and WHERE: rows, their partners, and the conditions that keep them; and set operations."""

from functools import partial
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.intervals import scales
from noisegate.algebra.relation import Project, Relation, Union
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import kind_of
from noisegate.sql.reading.rows.clauses import Clauses, Env
from noisegate.sql.reading.rows.sub_queries import SubQueries, reaches_out, sub_queries
from noisegate.sql.reading.sight import (
    Name,
    Rows,
    SelectReader,
    aggregates_in,
    aliases_of,
    item_of,
    outermost_aggregates,
    plain_name,
    projected,
)
from noisegate.sql.reading.untyped import together
from noisegate.sql.reading.values.decimals import to_scale
from noisegate.sql.reading.values.operands import both
from noisegate.sql.reading.words import Node, attempt, fold, refusal, require_only


@final
@dataclass(frozen=True, slots=True)
class From(Clauses):
    """Reads FROM and WHERE, with the sub-queries in them."""

    def read(self, select: exp.Select, sources: list[Rows], env: Env) -> SelectReader:
        """The rows that the clauses above FROM and WHERE see."""
        rows, pool = self.together(select, sources)
        aliases = aliases_of(select)
        sight = SelectReader(self.kept(SelectReader(rows, aliases), pool, env), aliases)
        reading = SubQueries(self, self.kept, env)
        sight = reading.with_values(sight, _of_rows(select))
        for key in sub_queries([] if _is_plain(select) else _keys(select)):
            if not isinstance(key, exp.In) and reaches_out(key, sight):
                sight = attempt(partial(reading.with_values, sight, [key])) or sight
        return sight

    def kept(self, sight: SelectReader, parts: list[Node], env: Env) -> Rows:
        """The rows for which all parts of WHERE are true."""
        plain: list[Node] = []
        subs: list[tuple[Node, bool]] = []
        for part in parts:
            inner, negated = part.unnest(), False
            while isinstance(inner, exp.Not):
                inner, negated = inner.this.unnest(), not negated
            if isinstance(inner, exp.Exists) or inner.args.get("query"):
                subs.append((inner, negated))
            else:
                plain.append(part)
        reading = SubQueries(self, self.kept, env)
        sight = reading.with_values(sight, plain)
        conditions = [sight.reading.condition(part) for part in plain]
        rows = sight.rows.filtered(both(*conditions)) if conditions else sight.rows
        for inner, negated in subs:
            rows = reading.kept(replace(sight, rows=rows), inner, negated=negated)
        return rows


def _is_plain(select: exp.Select) -> bool:
    """Whether it aggregates nothing."""
    return not select.args.get("group") and not any(map(aggregates_in, _clauses(select)))


def _clauses(select: exp.Select) -> list[Node]:
    found = [*select.expressions, *(select.args.get(part) for part in ("having", "order"))]
    return [one for one in found if one is not None]


def _keys(select: exp.Select) -> list[Node]:
    """Where keys of groups may stand."""
    group = select.args.get("group")
    return [*select.expressions, *([] if group is None else [group])]


def _of_rows(select: exp.Select) -> list[Node]:
    """What is about single rows: items of a SELECT that aggregates nothing, else aggregates."""
    if _is_plain(select):
        return select.expressions
    return [each for clause in _clauses(select) for each in outermost_aggregates(clause)]


def selected(select: exp.Select, sight: SelectReader) -> Rows:
    """The items of a SELECT without aggregates, as rows."""
    items: list[tuple[str, Name | Expression]] = []
    for node in select.expressions:
        inner = item_of(node)
        if inner.is_star:
            items += _star(inner, sight.rows)
            continue
        column = inner.unnest()
        found = sight.name(column) if isinstance(column, exp.Column) else None
        target = found if isinstance(found, Name) else sight.target(inner)
        items.append((node.alias or plain_name(inner), target))
    return projected(sight.rows, items, "computed")


def union(parts: list[Rows]) -> Rows:
    """UNION ALL: columns by position, named as in the first part."""
    first = parts[0]
    if len({part.unit is None for part in parts}) > 1:
        raise Unsupported(
            "UNION ALL mixes private and public rows.", fix="Query them separately.", about="union"
        )
    if len({len(part.names) for part in parts}) > 1:
        raise Unsupported(
            "The parts of UNION have different columns.", fix="Select the same columns in each."
        )
    names: list[Name] = []
    columns: list[list[tuple[str, Expression]]] = [[] for _ in parts]
    for place, name in enumerate(first.names):
        mine = [part.names[place] for part in parts]
        owner = all(one.owner for one in mine)
        fields = [one.field for one in mine]
        if None in fields:
            if not owner:
                raise Unsupported(f"Column {name.name!r} holds the unit.", fix="Leave it out.")
            names.append(Name(name=name.name, field=None, owner=True))
            continue
        alike = together(name.name, (one.untyped for one in mine))
        names.append(Name(name=name.name, field=name.name, owner=owner, untyped=alike))
        values = _alike([(part, str(one)) for part, one in zip(parts, fields, strict=True)])
        for column, value in zip(columns, values, strict=True):
            column.append((name.name, value))
    relations: list[Relation] = []
    for part, column in zip(parts, columns, strict=True):
        same = [(name, Field(name)) for name in part.schema] == column
        below = part.relation if same else Project(part.relation, tuple(column))
        relations += below.parts if type(below) is Union else (below,)
    made = replace(
        first,
        relation=Union(tuple(relations)),
        names=tuple(names),
        key=(),
        path=(f"{len(relations)} parts, one below the other",),
    )
    made.schema  # noqa: B018 - refuses here what does not fit
    return made


def _alike(places: list[tuple[Rows, str]]) -> list[Expression]:
    """One column of each part, in one kind: NULL takes any, whole numbers may become numbers."""
    values: list[Expression] = [
        Literal(None) if _is_null(part, name) else Field(name) for part, name in places
    ]
    kinds = [
        kind_of(value, part.schema)
        for value, (part, _) in zip(values, places, strict=True)
        if value != Literal(None)
    ]
    kind = kinds[0] if kinds else Kind.TEXT
    if len(set(kinds)) > 1 and all(one.is_numeric for one in kinds):
        held = [pair for pair in zip(values, places, strict=True) if pair[0] != Literal(None)]
        made: list[Expression] = [Call("to_number", (value,)) for value in values]
        if scales(domain_of(value, part.schema) for value, (part, _) in held) is not None:
            made = [
                to_scale(value, 0) if kind_of(value, part.schema) is Kind.INTEGER else value
                for value, (part, _) in zip(values, places, strict=True)
            ]
        return [
            Literal(None, Kind.NUMBER) if value == Literal(None) else one
            for value, one in zip(values, made, strict=True)
        ]
    return [Literal(None, kind) if value == Literal(None) else value for value in values]


def _is_null(rows: Rows, field: str) -> bool:
    below = rows.relation
    return type(below) is Project and dict(below.columns)[field] == Literal(None)


def _star(node: Node, rows: Rows) -> list[tuple[str, Name | Expression]]:
    star = node.this if isinstance(node, exp.Column) else node
    require_only(star)
    table = fold(node.table) if isinstance(node, exp.Column) else ""
    found: list[tuple[str, Name | Expression]] = [
        (name.name, name)
        for name in rows.names
        if (fold(name.table) == table if table else not name.merged)
    ]
    if not found:
        raise Unsupported(f"There is no table {table!r} here.", fix="Name a table of FROM.")
    return found


_LEFT, _RIGHT = "one", "other"
_FIX: Final = "Select the unit's column in both parts; or aggregate each, which makes them tables."


def within_units(node: exp.SetOperation, left: Rows, right: Rows) -> exp.Select:
    """UNION, INTERSECT or EXCEPT as a SELECT DISTINCT, from what was not read yet.

    Rows that name their unit are compared with rows of the same unit alone, so what stays of a unit
    depends on its own rows. Without the unit, rows of different people would meet.
    """
    if not node.args.get("distinct") or node.args.get("by_name"):
        raise refusal(node)
    pairs = list(zip(left.names, right.names, strict=False))
    names = [fold(one.name) for one, _ in pairs]
    if len(left.names) != len(right.names) or len(set(names)) < len(names):
        raise Unsupported(
            "The parts have different columns.", fix="Select the same columns in each."
        )
    if not any(one.owner and other.owner for one, other in pairs):
        raise Unsupported(
            f"{node.key.upper()} would compare rows of several units.", fix=_FIX, about="units"
        )
    shown = [exp.column(one.name, table=_LEFT, quoted=True) for one, _ in pairs]
    if isinstance(node, exp.Union):
        every = node.copy()
        every.set("distinct", None)
        return exp.Select(expressions=shown, distinct=exp.Distinct()).from_(_named(every, _LEFT))
    same = (
        (exp.EQ if one.owner and other.owner else exp.NullSafeEQ)(
            this=exp.column(other.name, table=_RIGHT, quoted=True), expression=column.copy()
        )
        for column, (one, other) in zip(shown, pairs, strict=True)
    )
    partner = exp.select("1").from_(_named(node.expression, _RIGHT)).where(*same)
    found: Node = exp.Exists(this=partner)
    if isinstance(node, exp.Except):
        found = exp.Not(this=found)
    made = exp.Select(expressions=shown, distinct=exp.Distinct())
    return made.from_(_named(node.this, _LEFT)).where(found)


def _named(query: Node, name: str) -> exp.Subquery:
    inner = query.this if isinstance(query, exp.Subquery) else query
    return exp.Subquery(this=inner.copy(), alias=exp.TableAlias(this=exp.to_identifier(name)))
