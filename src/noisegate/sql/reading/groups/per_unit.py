"""Aggregation within one unit: GROUP BY with the unit's column, and SELECT DISTINCT with it."""

from dataclasses import dataclass, field, replace
from typing import final

from sqlglot import exp

from noisegate.algebra.expression import Expression, Field
from noisegate.algebra.relation import Fold, Folded, PerUnit
from noisegate.errors import Unsupported
from noisegate.sql.reading.groups.aggregates import asked
from noisegate.sql.reading.groups.folds import Growing, folded
from noisegate.sql.reading.groups.grouping import Groups
from noisegate.sql.reading.names import Name, Rows, field_of, projected
from noisegate.sql.reading.sight import Sight, is_aggregate, item_of, plain_name
from noisegate.sql.reading.values.expressions import Reading
from noisegate.sql.reading.words import Node, attempt, fold, sub_query_refusal


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
        return Reading(Growing(lambda: self.relation), self._hook, untyped)

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
        for known in self.folded:
            if (known.fold, known.expression) == (how, value):
                return Field(known.name)
        name = f"v{len(self.folded)}"
        self.folded.append(Folded(name, how, value))
        return Field(name)
