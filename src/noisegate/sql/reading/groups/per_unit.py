"""Aggregation within one unit: GROUP BY with the unit's column, and SELECT DISTINCT with it.

Aggregates of one unit's rows are folds of the algebra, and what is computed of them.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final, TypeAlias, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.relation import Fold, Folded, PerUnit, Relation
from noisegate.algebra.schema import schema_of
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Domain
from noisegate.sql.question import Function
from noisegate.sql.reading.groups.aggregates import AskedAggregate, asked
from noisegate.sql.reading.groups.grouping import Groups
from noisegate.sql.reading.sight import (
    Name,
    Rows,
    SelectReader,
    field_of,
    is_aggregate,
    item_of,
    plain_name,
    projected,
)
from noisegate.sql.reading.values.decimals import exact, of_units, scale_of, units
from noisegate.sql.reading.values.expressions import ExpressionReader
from noisegate.sql.reading.words import Node, attempt, fold, sub_query_refusal

Add: TypeAlias = Callable[[Fold, Expression], Expression]  # the column of a fold
_FOLDS: Final = {
    Function.COUNT_VALUES: Fold.COUNT,
    Function.COUNT_DISTINCT: Fold.COUNT_DISTINCT,
    Function.MIN: Fold.MIN,
    Function.MAX: Fold.MAX,
}


def folded(ask: AskedAggregate, schema: Schema, add: Add, *, may_lack: bool = False) -> Expression:
    """The aggregate of rows with ``schema``, of which there may be none where they ``may_lack``."""
    one: Expression = Literal(1)
    value = exact(ask.args[0], schema) if ask.args else one
    if ask.where is not None:
        value = Call("case", (ask.where, value))
    may_lack = may_lack or domain_of(value, schema).may_lack
    if ask.function in (Function.COUNT, Function.COUNT_UNITS):
        count = add(Fold.COUNT, value)
        if ask.function is Function.COUNT:
            return count
        return Call("case", (Call("gt", (count, Literal(0))), one, Literal(0)))
    if ask.function in _FOLDS:
        return add(_FOLDS[ask.function], value)
    if ask.function is Function.AVG:
        return _average(value, schema, add)
    if ask.function is Function.SUM:
        total = _total(value, schema, add)
        if not may_lack:
            return total
        return Call("case", (Call("gt", (add(Fold.COUNT, value), Literal(0))), total))
    raise Unsupported(
        f"{ask.function.value} per unit is not supported.",
        fix="Use COUNT, SUM, AVG, MIN or MAX in the inner query.",
        about="fold",
    )


def _average(value: Expression, schema: Schema, add: Add) -> Expression:
    """The average, which is within the bounds of its values, whatever doubles make of it."""
    count, scale, domain = add(Fold.COUNT, value), scale_of(value, schema), domain_of(value, schema)
    mean = Call("divide", (add(Fold.SUM, value if scale is None else units(value, scale)), count))
    if scale:  # one division of whole numbers, as DuckDB has it: rounded once
        mean = Call("divide", (mean.args[0], Call("multiply", (count, Literal(10**scale)))))
    if domain.low is None or domain.high is None:
        return mean
    low, high = (Literal(Fraction(end)) for end in (domain.low, domain.high))
    inside = Call("greatest", (low, Call("least", (high, mean))))
    return Call("case", (Call("gt", (count, Literal(0))), inside))


def _total(value: Expression, schema: Schema, add: Add) -> Expression:
    """The sum; of decimals in whole numbers of their last digits, so that it is exact."""
    scale = scale_of(value, schema)
    if scale is None:
        return add(Fold.SUM, value)
    return of_units(add(Fold.SUM, units(value, scale)), scale)


def column_of(folds: list[Folded], how: Fold, value: Expression, name: Callable[[], str]) -> Field:
    """The column of a fold, which equal ones share; a new one gets a ``name``."""
    for known in folds:
        if (known.fold, known.expression) == (how, value):
            return Field(known.name)
    folds.append(Folded(name(), how, value))
    return Field(folds[-1].name)


@final
@dataclass(frozen=True, slots=True)
class Growing(Mapping[str, Domain]):
    """The columns of a relation that gets more while expressions over it are read."""

    relation: Callable[[], Relation]

    def __getitem__(self, name: str) -> Domain:
        return schema_of(self.relation())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(schema_of(self.relation()))

    def __len__(self) -> int:
        return len(schema_of(self.relation()))


def per_unit(select: exp.Select, sight: SelectReader, groups: Groups) -> Rows:
    """One row for each owner and value of the other grouping expressions."""
    folding = _Folding(sight, groups)
    having = select.args.get("having")
    items = [
        (one.alias or plain_name(one), folding.item(item_of(one))) for one in select.expressions
    ]
    condition = None if having is None else folding.reading.condition(having.this)
    singles = [one.name for one in sight.rows.names if Field(one.field or "") in groups.targets]
    whole = any(isinstance(one, Name) for one in groups.targets)
    parts = [sight.rows.unit_name] if whole else singles[:1]
    if more := len(groups.targets) - 1:
        parts.append(f"{more} more")
    words = f"one row per {' and '.join(parts)}"
    rows = replace(sight.rows.made(folding.relation, words), key=())
    if condition is not None:
        rows = rows.filtered(condition)
    return projected(rows, items, "computed")


@final
@dataclass(frozen=True, slots=True)
class _Folding:
    """Collects what is folded while the expressions above it are read."""

    sight: SelectReader
    groups: Groups
    folded: list[Folded] = field(default_factory=list)

    @property
    def keys(self) -> list[tuple[str, Expression]]:
        others = [one for one in self.groups.targets if not isinstance(one, Name)]
        return [(f"k{index}", one) for index, one in enumerate(others)]

    @property
    def relation(self) -> PerUnit:
        return PerUnit(self.sight.rows.relation, tuple(self.keys), tuple(self.folded))

    @property
    def reading(self) -> ExpressionReader:
        known = self.sight.untyped
        untyped = {
            name: known[key.name]
            for name, key in self.keys
            if type(key) is Field and key.name in known
        }
        return ExpressionReader(Growing(lambda: self.relation), self._hook, untyped)

    def item(self, node: Node) -> Name | Expression:
        """A SELECT item: the owner stays a name."""
        if isinstance(node.unnest(), exp.Column):
            target = self.sight.target(node)
            if isinstance(target, Name) and target in self.groups.targets:
                return replace(target, field=None)
            found = attempt(lambda: self.sight.name(node.unnest()))  # type: ignore[arg-type]
            key = next((name for name, one in self.keys if one == target), None)
            if key is not None and isinstance(found, Name):
                return replace(found, field=key)
        return self.reading.read(node)

    def _hook(self, node: Node) -> Expression | None:
        if is_aggregate(node):
            return folded(asked(node, self.sight), self.sight.reading.schema, self._folded)
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise sub_query_refusal(node)
        if isinstance(node, exp.Window):
            raise Unsupported(
                "A window function is used together with GROUP BY of the unit, or of a key of its "
                "rows.",
                fix="Put GROUP BY in a sub-query and the window in the outer SELECT.",
                about="window",
            )
        target = attempt(lambda: self.sight.target(node))
        for name, key in self.keys:
            if key == target:
                return Field(name)
        if not isinstance(node, exp.Column):
            return None
        if isinstance(target, Name) and target in self.groups.targets:
            return field_of(replace(target, field=None))
        alias = None if node.table else self.sight.aliases.get(fold(node.name))
        if alias is not None:
            inner = _Folding(self.sight.without(fold(node.name)), self.groups, self.folded)
            return inner.reading.read(alias)
        self.sight.name(node)
        raise Unsupported(
            f"Column {node.name!r} is neither grouped by nor aggregated.",
            fix="Add it to GROUP BY, or aggregate it.",
            about="rows",
        )

    def _folded(self, how: Fold, value: Expression) -> Field:
        return column_of(self.folded, how, value, lambda: f"v{len(self.folded)}")
