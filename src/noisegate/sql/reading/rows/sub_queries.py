"""Sub-queries about the partners of a row: IN, EXISTS, and aggregates of them.

A row's partners are rows of a public table, or other rows of its own unit.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.relation import Fold, Folded, Partnered
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.groups.aggregates import asked
from noisegate.sql.reading.groups.per_unit import Growing, column_of, folded
from noisegate.sql.reading.literals import agreed
from noisegate.sql.reading.rows.clauses import Clauses, Env, columns_of
from noisegate.sql.reading.rows.joins import (
    Equality,
    alike,
    apart,
    equality,
    matching,
    require_tied,
)
from noisegate.sql.reading.sight import (
    Name,
    Rows,
    SelectReader,
    aggregates_in,
    field_of,
    find,
    fresh,
    is_aggregate,
    item_of,
)
from noisegate.sql.reading.values.decimals import exact
from noisegate.sql.reading.values.expressions import ExpressionReader
from noisegate.sql.reading.values.operands import both
from noisegate.sql.reading.words import Node, fold, refusal, require_only, sub_query_refusal

Where: TypeAlias = Callable[[SelectReader, list[Node], Env], Rows]
_PREDICATES: Final = (exp.Exists, exp.In)


@final
@dataclass(frozen=True, slots=True)
class Tied:
    """The rows of a sub-query, and how they are tied to those outside.

    ``rest`` are conditions over the columns of both that are not equalities of one with the other;
    ``compared`` are the equalities that IN asks for.
    """

    inner: SelectReader
    equalities: tuple[Equality, ...] = ()
    rest: tuple[Expression, ...] = ()
    compared: tuple[Equality, ...] = ()

    def condition(self, *more: Expression) -> Expression:
        """What is true of a row and its partners."""
        pairs = [one.pair for one in self.equalities if one.pair is not None]
        parts = [*(Call("eq", pair) for pair in pairs), *self.rest, *more]
        return both(*parts) if parts else Literal(True)  # noqa: FBT003 - no flag


def sub_queries(nodes: Iterable[Node]) -> Iterator[Node]:
    """EXISTS, IN (SELECT ...) and sub-queries that give a number, none inside another."""
    for node in nodes:
        if isinstance(node, exp.Exists | exp.Query) or (
            isinstance(node, exp.In) and node.args.get("query")
        ):
            yield node
        else:
            yield from sub_queries(node.iter_expressions())


def reaches_out(node: Node, sight: SelectReader) -> bool:
    """Whether a sub-query names a table outside of it."""
    own = {fold(one.alias_or_name) for one in node.find_all(exp.Table, exp.Subquery)}
    outside = {fold(name.table) for name in sight.rows.names if name.table} - own
    return any(fold(column.table) in outside for column in node.find_all(exp.Column))


@final
@dataclass(frozen=True, slots=True)
class SubQueries:
    """Reads sub-queries over rows; ``reads`` reads their FROM, ``where`` what WHERE leaves."""

    reads: Clauses
    where: Where
    env: Env

    def with_values(self, sight: SelectReader, nodes: Iterable[Node]) -> SelectReader:
        """The rows with the values of all sub-queries in the nodes that one row's partners tell."""
        for node in sub_queries(nodes):
            if node in sight.known:
                continue
            if isinstance(node, _PREDICATES):
                rows, value = self.truth(sight, node.copy())
            elif reaches_out(node, sight):
                rows, value = self._number(sight, node.copy().unnest())
            elif (first := self._first(node)) is not None:
                rows, value = sight.rows, first
            else:
                continue
            sight = replace(sight, rows=rows, known={**sight.known, node: value})
        return sight

    def kept(self, sight: SelectReader, node: Node, *, negated: bool) -> Rows:
        """Rows kept by x IN (SELECT y ...) or EXISTS (SELECT ... WHERE x = y), or its opposite."""
        tied = self._tied(sight, node.copy())
        missing = any(_may_be_null(sight, one, tied) for one in tied.compared)
        told_apart = negated and tied.compared and (missing or tied.equalities)
        if not tied.rest and not told_apart:
            every = [*tied.equalities, *tied.compared]
            return matching(sight.rows, tied.inner.rows, every, negated=negated)
        rows, value = self.truth(sight, node)
        return rows.filtered(Call("not", (value,)) if negated else value)

    def truth(self, sight: SelectReader, node: Node) -> tuple[Rows, Expression]:
        """The rows with what IN or EXISTS says of them: true, false, or for IN also NULL."""
        tied = self._tied(sight, node, renamed=True)
        pairs = [Call("eq", one.pair) for one in tied.compared if one.pair is not None]
        rows, found = self._counted(sight.rows, tied, *pairs)
        is_there: Expression = Call("gt", (found, Literal(0)))
        schema = {**sight.rows.schema, **tied.inner.rows.schema}
        if not any(domain_of(one, schema).may_lack for one in pairs):
            return rows, is_there
        if len(pairs) > 1:
            raise Unsupported(
                "IN compares several columns that may be NULL.",
                fix="Use EXISTS (SELECT 1 FROM ... WHERE inner.column = outer.column AND ...).",
                about="null",
            )
        rows, unsure = self._counted(rows, tied, Call("is_null", (pairs[0],)))
        doubt = Call("gt", (unsure, Literal(0)))
        yes, no, null = Literal(True), Literal(False), Literal(None, Kind.BOOLEAN)  # noqa: FBT003
        return rows, Call("case", (is_there, yes, doubt, null, no))

    def _counted(self, rows: Rows, tied: Tied, *more: Expression) -> tuple[Rows, Field]:
        """The rows with the number of partners for which more is true."""
        name = fresh("partners", {*rows.schema, *tied.inner.rows.schema})
        counted = (Folded(name, Fold.COUNT, Literal(1)),)
        return _partnered(rows, tied, tied.condition(*more), counted), Field(name)

    def _first(self, node: Node) -> Expression | None:
        """The number of a sub-query that has nothing to do with the row, if one is to be had."""
        query = node.unnest()
        if self.reads.first is None or not isinstance(query, exp.Select) or query.args.get("group"):
            return None
        if not any(map(aggregates_in, query.expressions)):
            return None
        return self.reads.first(query, self.env)

    def _number(self, sight: SelectReader, query: Node) -> tuple[Rows, Expression]:
        """The rows with an aggregate of their partners."""
        if not isinstance(query, exp.Select) or len(query.expressions) != 1:
            raise refusal("SUBQUERY")
        item = item_of(query.expressions[0])
        if query.args.get("group") or query.args.get("having") or not aggregates_in(item):
            raise Unsupported(
                "A sub-query over the rows of one unit returns more than one value.",
                fix="Aggregate them: SELECT MAX(x) FROM ... WHERE inner.unit = outer.unit.",
                about="scalar",
            )
        tied = self._tied(sight, exp.Exists(this=query), renamed=True)
        number = _Number(sight.rows, tied)
        value = number.reading.read(item)
        return _partnered(sight.rows, tied, tied.condition(), tuple(number.folded)), value

    def _tied(self, sight: SelectReader, node: Node, *, renamed: bool = False) -> Tied:
        """The rows inside and what ties them; ``renamed`` where names are those of rows outside."""
        require_only(node, "this", "query")
        is_in = isinstance(node, exp.In)
        query = (node.args["query"] if is_in else node.this).unnest()
        more = any(map(query.args.get, ("group", "having", "with_")))
        if isinstance(query, exp.Select) and not more:
            tied = self._correlated(query, sight, renamed=renamed)
            items = [item_of(item) for item in query.expressions]
        elif is_in:
            rows = self.reads.rows(query, self.env)
            tied = Tied(SelectReader(apart(sight.rows, rows) if renamed else rows))
            items = [exp.column(name.name, quoted=True) for name in rows.names]
        else:
            raise Unsupported(
                "EXISTS has clauses other than FROM and WHERE.", fix="Use IN (SELECT ...)."
            )
        if not is_in:
            return tied
        left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(left) != len(items):
            raise Unsupported(
                "IN compares different numbers of columns.",
                fix="Select as many columns as are compared.",
            )
        pairs = zip(left, items, strict=True)
        compared = [_equal(sight, one, tied.inner, other) for one, other in pairs]
        return replace(tied, compared=tuple(alike(sight.rows, tied.inner.rows, compared)))

    def _correlated(self, select: exp.Select, outer: SelectReader, *, renamed: bool) -> Tied:
        """The rows of a sub-query, and how WHERE ties them to the outer ones."""
        self.reads.refuse_more(select)
        nodes = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
        sources = [self.reads.source(node, self.env) for node in nodes]
        rows, parts = self.reads.together(select, sources)
        ties = [part for part in parts if not _inside(part, rows)]
        local = [part for part in parts if part not in ties]
        pairs = [(part, _sides(part, rows)) for part in ties]
        inner = self.where(SelectReader(rows), local, self.env)
        if renamed or any(pair is None for _, pair in pairs):
            inner = apart(outer.rows, inner)
        reading, within = _over_both(outer, inner), SelectReader(inner)
        equal = [_equal(outer, pair[0], within, pair[1]) for _, pair in pairs if pair is not None]
        return Tied(
            within,
            tuple(alike(outer.rows, inner, equal)),
            tuple(reading.condition(part) for part, pair in pairs if pair is None),
        )


def _may_be_null(sight: SelectReader, equal: Equality, tied: Tied) -> bool:
    if equal.pair is None:
        return False
    schemas = (sight.rows.schema, tied.inner.rows.schema)
    sides = zip(equal.pair, schemas, strict=True)
    return any(domain_of(one, schema).may_lack for one, schema in sides)


def _sides(part: Node, rows: Rows) -> tuple[Node, Node] | None:
    """What is outside and what is inside, of an equality of one with the other."""
    if not isinstance(part, exp.EQ):
        return None
    for one, other in ((part.this, part.expression), (part.expression, part.this)):
        if _beyond(one, rows) and _inside(other, rows):
            return one, other
    return None


def _partnered(rows: Rows, tied: Tied, condition: Expression, folds: tuple[Folded, ...]) -> Rows:
    """The rows with folds of their partners."""
    other = tied.inner.rows
    require_tied(rows, other, [*tied.equalities, *tied.compared], is_tied=bool(tied.rest))
    relation = Partnered(rows.relation, other.relation, condition, folds)
    made = rows.made(relation, f"beside its partners in {', '.join(other.path)}")
    made.schema  # noqa: B018 - refuses here what does not fit
    return made


@final
@dataclass(frozen=True, slots=True)
class _Number:
    """Collects what is folded of a row's partners."""

    rows: Rows
    tied: Tied
    folded: list[Folded] = field(default_factory=list)

    @property
    def reading(self) -> ExpressionReader:
        """Reads what is computed of aggregates of the partners."""
        return ExpressionReader(Growing(self._relation), self._hook)

    def _relation(self) -> Partnered:
        inside = self.tied.inner.rows.relation
        return Partnered(self.rows.relation, inside, self.tied.condition(), tuple(self.folded))

    def _hook(self, node: Node) -> Expression | None:
        if is_aggregate(node):
            inner = self.tied.inner
            return folded(asked(node, inner), inner.reading.schema, self._folded, may_lack=True)
        if isinstance(node, exp.Query | exp.Exists):
            raise sub_query_refusal(node)
        if isinstance(node, exp.Column):
            raise Unsupported(
                f"Column {node.name!r} is neither grouped by nor aggregated.",
                fix="Aggregate it, or use it outside the sub-query.",
                about="rows",
            )
        return None

    def _folded(self, how: Fold, value: Expression) -> Field:
        taken = {*self.rows.schema, *self.tied.inner.rows.schema, *(f.name for f in self.folded)}
        return column_of(self.folded, how, value, lambda: fresh("partners", taken))


def _over_both(outer: SelectReader, inner: Rows) -> ExpressionReader:
    """Reads conditions on a row and a partner; names mean the sub-query's own columns first."""

    def hook(node: Node) -> Expression | None:
        if isinstance(node, exp.Column):
            found = find(node, inner.names)
            if found is not None:
                return field_of(found)
        return outer.hook(node)

    untyped = {**outer.untyped, **SelectReader(inner).untyped}
    return ExpressionReader({**outer.rows.schema, **inner.schema}, hook, untyped)


def _inside(node: Node, rows: Rows) -> bool:
    """Whether all columns are the sub-query's own. A nested sub-query speaks for itself."""
    if node.find(exp.Query):
        return True
    return all(find(column, rows.names) is not None for column in columns_of(node))


def _beyond(node: Node, rows: Rows) -> bool:
    columns = columns_of(node)
    return bool(columns) and all(find(column, rows.names) is None for column in columns)


def _equal(one: SelectReader, left: Node, other: SelectReader, right: Node) -> Equality:
    """The equality of something outside and something inside a sub-query."""
    left, right = left.unnest(), right.unnest()
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        found = (one.name(left), other.name(right))
        if isinstance(found[0], Name) and isinstance(found[1], Name):
            return equality(found[0], found[1])
    mine = exact(one.reading.read(left), one.reading.schema)
    theirs = exact(other.reading.read(right), other.reading.schema)
    schema = {**one.reading.schema}
    if not set(other.reading.schema) & set(schema):
        schema |= other.reading.schema
        mine, theirs = agreed([mine, theirs], schema)
    return Equality((mine, theirs))
