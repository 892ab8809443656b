"""UNION, INTERSECT and EXCEPT of one unit's rows: distinct rows, with partners or without.

Rows that name their unit are compared with rows of the same unit alone, so what stays of a unit
depends on its own rows. Without the unit, rows of different people would meet.
"""

from typing import Final

from sqlglot import exp

from noisegate.errors import Unsupported
from noisegate.sql.reading.names import Rows
from noisegate.sql.reading.words import Node, fold, refusal

_LEFT, _RIGHT = "one", "other"
_FIX: Final = "Select the unit's column in both parts; or aggregate each, which makes them tables."


def within_units(node: exp.SetOperation, left: Rows, right: Rows) -> exp.Select:
    """The operation as a SELECT DISTINCT, from what was not read yet."""
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
