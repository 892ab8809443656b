"""What a clause can see: the columns of its rows, and the names that SELECT gives."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field
from noisegate.errors import Unsupported
from noisegate.sql.reading.names import Name, Rows, field_of, find, unknown
from noisegate.sql.reading.untyped import Untyped
from noisegate.sql.reading.values.decimals import exact
from noisegate.sql.reading.values.expressions import Reading
from noisegate.sql.reading.words import Node, fold, listed, refusal, sub_query_refusal

SEVERAL_ROWS: Final = (exp.Window, exp.Query, exp.Exists, exp.In)  # what one row does not tell
_ALIASES_MAX: Final = 2_000
AGGREGATES: Final = listed(
    """mean first last arg_min arg_max list string_agg histogram mode entropy kurtosis skewness mad
    product bit_and bit_or bit_xor bool_and bool_or favg fsum kahan_sum reservoir_quantile
    approx_top_k min_by max_by regr_slope regr_count"""
)


@final
@dataclass(frozen=True, slots=True)
class Sight:
    """Reads the clauses of one SELECT over ``rows``; ``aliases`` are what its items are called.

    ``known`` are windows and sub-queries whose values the rows have by now.
    """

    rows: Rows
    aliases: dict[str, Node] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    known: dict[Node, Expression] = field(default_factory=dict)

    @property
    def reading(self) -> Reading:
        """Reads expressions over the rows."""
        return Reading(self.rows.schema, self.hook, self.untyped)

    @property
    def untyped(self) -> dict[str, Untyped]:
        """The columns without types."""
        names = ((name.field, name.untyped) for name in self.rows.names)
        return {name: each for name, each in names if name is not None and each is not None}

    def hook(self, node: Node) -> Expression | None:
        """What a node means that is not computed from others: a column above all."""
        if self.known and isinstance(node, SEVERAL_ROWS) and node in self.known:
            return self.known[node]
        if isinstance(node, exp.Column):
            found = self.name(node)
            if isinstance(found, Name):
                return field_of(found)
            return self.without(fold(node.name)).reading.read(found)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            asked = self.name(node.this) if isinstance(node.this, exp.Column) else None
            if isinstance(asked, Name) and asked.field is None and asked.mark is not None:
                return Call("is_null", (Field(asked.mark),))
        if isinstance(node, exp.Star):
            raise refusal("*")
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise sub_query_refusal(node)
        if isinstance(node, exp.Window):
            raise Unsupported(
                "A window function is used where an expression of one row is expected.",
                fix="Put it in the SELECT or QUALIFY of a sub-query.",
                about="window",
            )
        if is_aggregate(node):
            raise Unsupported(
                f"{node.sql(dialect='duckdb')} is used where an expression of one row is expected.",
                fix="Aggregates belong in SELECT, HAVING and ORDER BY.",
                about="aggregate",
            )
        return None

    def name(self, column: exp.Column) -> Name | Node:
        """The column, or else the item of SELECT that has this name."""
        if isinstance(column.this, exp.Star):
            raise refusal("*")
        found = find(column, self.rows.names)
        if found is not None:
            return found
        alias = None if column.table else self.aliases.get(fold(column.name))
        if alias is None:
            raise unknown(column, self.rows)
        return alias

    def without(self, alias: str) -> "Sight":
        """The same without one alias, so that none means itself."""
        self.used.append(alias)
        if len(self.used) > _ALIASES_MAX:  # a AS b, b + b AS c, c + c AS d: doubles each time
            raise Unsupported(
                "Aliases refer to each other too often.", fix="Use a sub-query.", about="aliases"
            )
        rest = {name: node for name, node in self.aliases.items() if name != alias}
        return replace(self, aliases=rest)

    def target(self, node: Node) -> Name | Expression:
        """A GROUP BY or SELECT item: the owner's column as a name, others as expressions."""
        if not isinstance(node, exp.Subquery) or node not in self.known:
            node = node.unnest()
        if isinstance(node, exp.Column):
            found = self.name(node)
            if not isinstance(found, Name):
                return self.without(fold(node.name)).target(found)
            return found if found.owner else field_of(found)
        return exact(self.reading.read(node), self.rows.schema)


def is_aggregate(node: Node) -> bool:
    """Whether the node is a call of an aggregate function."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in AGGREGATES
    if isinstance(node, exp.Grouping | exp.GroupingId):
        return False
    return isinstance(node, exp.AggFunc | exp.WithinGroup) or (
        isinstance(node, exp.Filter | exp.IgnoreNulls) and is_aggregate(node.this)
    )


def aggregates_in(node: Node) -> bool:
    """Whether an aggregate stands in the node, outside sub-queries and the heads of windows."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        head = node.this
        while isinstance(head, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            head = head.this
        parts = [*head.iter_expressions(), *node.iter_expressions()]
        return any(aggregates_in(part) for part in parts if part is not node.this)
    return is_aggregate(node) or any(map(aggregates_in, node.iter_expressions()))


def outermost_aggregates(node: Node) -> Iterator[Node]:
    """The calls of aggregates in a node, outside sub-queries and windows."""
    if is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Query | exp.Exists | exp.Window):
        for child in node.iter_expressions():
            yield from outermost_aggregates(child)


def item_of(node: Node) -> Node:
    """A SELECT item without its name."""
    return node.this if isinstance(node, exp.Alias) else node


def plain_name(item: Node) -> str:
    """What a SELECT item is called that was given no name."""
    if isinstance(item, exp.Column):
        return item.name
    if isinstance(item, exp.Count) and isinstance(item.this, exp.Star):
        return "count"
    return item.sql(dialect="duckdb", normalize_functions="lower", comments=False)


def aliases_of(select: exp.Select) -> dict[str, Node]:
    """The names that SELECT gives to its items."""
    return {
        fold(item.alias): item.this.copy()
        for item in select.expressions
        if isinstance(item, exp.Alias)
    }


def conjuncts(node: Node | None) -> list[Node]:
    """The parts of a condition that AND joins; what every branch of an OR says is one of them."""
    if node is None:
        return []
    inner = node.unnest()
    if isinstance(inner, exp.And):
        return [part for each in inner.flatten() for part in conjuncts(each)]
    return _factored(inner) if isinstance(inner, exp.Or) else [inner]


def _factored(node: exp.Or) -> list[Node]:
    """The condition (a AND b) OR (a AND c) as a, and b OR c: the same also where some are NULL."""
    branches = [conjuncts(each) for each in node.flatten()]
    common = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    if not common:
        return [node]
    rests = [[part for part in branch if part not in common] for branch in branches]
    if not all(rests):
        return common
    return [*common, exp.or_(*(exp.and_(*rest) for rest in rests))]
