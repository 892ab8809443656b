"""Aggregation within one unit: GROUP BY with the unit's column, and SELECT DISTINCT with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.relation import Fold, Folded, PerUnit
from noisegate.algebra.schema import schema_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain
from noisegate.query.question import Function
from noisegate.query.reading.aggregates import Asked, asked
from noisegate.query.reading.decimals import exact, of_units, scale_of, units
from noisegate.query.reading.expressions import Reading
from noisegate.query.reading.grouping import Groups
from noisegate.query.reading.names import Name, Rows, field_of, projected
from noisegate.query.reading.sight import Sight, is_aggregate, item_of, plain_name
from noisegate.query.reading.words import Node, attempt, fold, refusal, sub_query_refusal

_FOLDS = {
    Function.COUNT_VALUES: Fold.COUNT,
    Function.COUNT_DISTINCT: Fold.COUNT_DISTINCT,
    Function.MIN: Fold.MIN,
    Function.MAX: Fold.MAX,
}


def per_unit(select: exp.Select, sight: Sight, groups: Groups) -> Rows:
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

    sight: Sight
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
    def reading(self) -> Reading:
        known = self.sight.untyped
        untyped = {
            name: known[key.name]
            for name, key in self.keys
            if type(key) is Field and key.name in known
        }
        return Reading(_Folds(self), self._hook, untyped)

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
            return self._fold(asked(node, self.sight))
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise sub_query_refusal(node)
        if isinstance(node, exp.Window):
            raise refusal("WINDOW")
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
        )

    def _fold(self, ask: Asked) -> Expression:
        schema = self.sight.reading.schema
        one: Expression = Literal(1)
        value = exact(ask.args[0], schema) if ask.args else one
        if ask.where is not None:
            value = Call("case", (ask.where, value))
        may_lack = domain_of(value, schema).nullable
        if ask.function in (Function.COUNT, Function.COUNT_UNITS):
            count = self._folded(Fold.COUNT, value)
            if ask.function is Function.COUNT:
                return count
            return Call("case", (Call("gt", (count, Literal(0))), one, Literal(0)))
        if ask.function in _FOLDS:
            return self._folded(_FOLDS[ask.function], value)
        if ask.function is Function.AVG:
            parts = (self._total(value), self._folded(Fold.COUNT, value))
            return Call("divide", parts)
        if ask.function is Function.SUM:
            total = self._total(value)
            if not may_lack:
                return total
            some = Call("gt", (self._folded(Fold.COUNT, value), Literal(0)))
            return Call("case", (some, total))
        raise Unsupported(
            f"{ask.function.value} within one unit is not offered.",
            fix="Use COUNT, SUM, AVG, MIN or MAX inside.",
        )

    def _total(self, value: Expression) -> Expression:
        """The sum; of decimals in whole numbers of their last digits, so that it is exact."""
        scale = scale_of(value, self.sight.reading.schema)
        if scale is None:
            return self._folded(Fold.SUM, value)
        return of_units(self._folded(Fold.SUM, units(value, scale)), scale)

    def _folded(self, how: Fold, value: Expression) -> Field:
        for known in self.folded:
            if (known.fold, known.expression) == (how, value):
                return Field(known.name)
        name = f"v{len(self.folded)}"
        self.folded.append(Folded(name, how, value))
        return Field(name)


@final
@dataclass(frozen=True, slots=True)
class _Folds(Mapping[str, Domain]):
    """The columns of what has been folded so far."""

    folding: _Folding

    def __getitem__(self, name: str) -> Domain:
        return schema_of(self.folding.relation)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(schema_of(self.folding.relation))

    def __len__(self) -> int:
        return len(schema_of(self.folding.relation))
