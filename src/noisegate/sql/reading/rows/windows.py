"""Windows within one unit's rows: OVER (PARTITION BY unit ...), and QUALIFY."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal
from noisegate.algebra.relation import Among, Fold, Frame, Ordering, Window, Windowed
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.groups.aggregates import asked
from noisegate.sql.reading.groups.per_unit import folded
from noisegate.sql.reading.literals import agreed, kind_of, whole
from noisegate.sql.reading.sight import Name, SelectReader, fresh, is_aggregate
from noisegate.sql.reading.values.decimals import exact
from noisegate.sql.reading.words import Node, fold, refusal, require_only

_PARTS_MAX: Final = 10_000
_ALL: Final = (None, None)
_UP_TO: Final = (None, 0)
_AMONG: Final[dict[type[exp.Expr], Among]] = {
    exp.Rank: Among.RANK,
    exp.DenseRank: Among.DENSE_RANK,
    exp.FirstValue: Among.FIRST,
    exp.LastValue: Among.LAST,
}
_NEAR: Final = (
    "Supported: ROW_NUMBER, RANK, DENSE_RANK, NTILE, LAG, LEAD, FIRST_VALUE, LAST_VALUE, COUNT, "
    "SUM, AVG, MIN and MAX."
)


def windowed(select: exp.Select, sight: SelectReader) -> SelectReader:
    """The rows with the windows of SELECT and QUALIFY as columns, kept by QUALIFY."""
    qualify = select.args.get("qualify")
    clauses = [*select.expressions, *([qualify] if qualify is not None else [])]
    nodes = [node for clause in clauses for node in clause.find_all(exp.Window)]
    nodes = [node for node in nodes if node.parent_select is select]
    if not nodes:
        if qualify is not None:
            raise Unsupported(
                "QUALIFY is used without a window function.", fix="Use WHERE.", about="qualify"
            )
        return sight
    named = {fold(one.name): one for one in select.args.get("windows") or ()}
    reading = _Windows(sight)
    values = {node: reading.value(node, named) for node in nodes}
    rows = sight.rows.made(Windowed(sight.rows.relation, tuple(reading.windows)), "with windows")
    found = replace(sight, rows=rows, known={**sight.known, **values})
    if qualify is None:
        return found
    return replace(found, rows=rows.filtered(found.reading.condition(qualify.this)))


@final
@dataclass(frozen=True, slots=True)
class _Over:
    """What stands behind OVER. No ``frame`` is the one that SQL has where none is written."""

    keys: tuple[Expression, ...]
    order: tuple[Ordering, ...]
    frame: Frame | None


@final
@dataclass(frozen=True, slots=True)
class _Windows:
    """Collects windows; ``sight`` is of the rows without them."""

    sight: SelectReader
    windows: list[Window] = field(default_factory=list)

    def value(self, node: exp.Window, named: dict[str, exp.Window]) -> Expression:
        """The value of a window for a row, over columns of the windows collected."""
        require_only(node, "this", "partition_by", "order", "spec", "alias", "over")
        over, head = self._over(node, named), node.this
        if isinstance(head, exp.IgnoreNulls | exp.RespectNulls):
            raise refusal("IGNORE NULLS")
        if isinstance(head, exp.RowNumber):
            return self._window(Fold.COUNT, Literal(1), over, _UP_TO)
        if isinstance(head, exp.Ntile):
            return self._ntile(head, over)
        if isinstance(head, exp.Rank | exp.DenseRank):
            require_only(head)
            return self._window(_AMONG[type(head)], Literal(1), over, None)
        if isinstance(head, exp.Lag | exp.Lead):
            return self._moved(head, over)
        if type(head) in _AMONG:
            return self._end(head, over)
        if not is_aggregate(head):
            raise Unsupported(
                f"{head.sql(dialect='duckdb')} is not supported as a window function.", fix=_NEAR
            )
        start, end = over.frame or _ALL
        at_hand = (start is None or start <= 0) and (end is None or end >= 0)
        schema = self.sight.reading.schema
        add = lambda how, value: self._window(how, value, over, over.frame)  # noqa: E731
        return folded(asked(head, self.sight), schema, add, may_lack=not at_hand)

    def _ntile(self, head: exp.Ntile, over: _Over) -> Expression:
        """The part of k that a row is in: the first n % k parts have one row more than the others.

        Of n = q k + r rows and the place p from 0, it is p // (q + 1) in the first r parts, and
        r + (p - r (q + 1)) // q in the others.
        """
        require_only(head, "this")
        parts = whole(head.this, "The number of parts")
        if not 1 <= parts <= _PARTS_MAX:
            raise Unsupported(
                "The argument of NTILE is out of range.",
                fix=f"Use 1 to {_PARTS_MAX}.",
                about="ntile",
            )
        place = Call("subtract", (self._window(Fold.COUNT, Literal(1), over, _UP_TO), Literal(1)))
        count = self._window(Fold.COUNT, Literal(1), over, _ALL)
        each = Call("int_divide", (count, Literal(parts)))
        more = Call("add", (each, Literal(1)))
        longer = Call("modulo", (count, Literal(parts)))
        first = Call("multiply", (longer, more))
        later = Call("int_divide", (Call("subtract", (place, first)), each))
        found = Call(
            "case",
            (Call("lt", (place, first)), Call("int_divide", (place, more)),
             Call("add", (longer, later))),
        )  # fmt: skip
        least = Call("least", (Literal(parts - 1), Call("to_integer", (found,))))
        return Call("add", (Call("greatest", (Literal(0), least)), Literal(1)))

    def _moved(self, head: exp.Lag | exp.Lead, over: _Over) -> Expression:
        """The value some rows before or after, or else the default."""
        require_only(head, "this", "offset", "default")
        offset = head.args.get("offset")
        count = 1 if offset is None else whole(offset, f"The offset of {head.key.upper()}")
        at = -count if isinstance(head, exp.Lag) else count
        schema = self.sight.reading.schema
        value = self._value(head.this)
        found = self._window(Among.FIRST, value, over, (at, at))
        default = head.args.get("default")
        if default is None:
            return found
        other = agreed([value, self.sight.reading.read(default)], schema)[1]
        kinds = kind_of(value, schema), kind_of(other, schema)
        alike = kinds[0] is kinds[1] or kinds == (Kind.NUMBER, Kind.INTEGER)
        if type(other) is not Literal or type(other.value) is Fraction or not alike:
            raise Unsupported(
                f"The default of {head.key.upper()} would be cast to the type of its column.",
                fix="Give a constant of that type, or a whole number, or use COALESCE.",
                about="default",
            )
        there = self._window(Fold.COUNT, Literal(1), over, (at, at))
        return Call("case", (Call("gt", (there, Literal(0))), found, other))

    def _value(self, node: Node) -> Expression:
        """What the row looked at has; a column without a type as the question takes it for."""
        value = self.sight.reading.read(node)
        untyped = self.sight.untyped.get(value.name) if type(value) is Field else None
        return exact(value, self.sight.rows.schema) if untyped is None else untyped.read(value)

    def _end(self, head: Node, over: _Over) -> Expression:
        """FIRST_VALUE and LAST_VALUE of the frame."""
        require_only(head, "this")
        how = _AMONG[type(head)]
        if over.frame is None and over.order and how is Among.LAST:
            raise Unsupported(
                "By default LAST_VALUE looks only as far as the current row and its peers.",
                fix="Write ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING, or use "
                "FIRST_VALUE with the order reversed.",
                about="frame",
            )
        frame = over.frame or (_UP_TO if over.order else _ALL)
        return self._window(how, self._value(head.this), over, frame)

    def _over(self, node: exp.Window, named: dict[str, exp.Window]) -> _Over:
        """What stands behind OVER, with what a named window adds to it."""
        alias = node.args.get("alias")
        base = None if alias is None else named.get(fold(alias.name))
        if alias is not None and base is None:
            raise Unsupported(
                f"There is no window {alias.name!r}.", fix="Define it: WINDOW w AS (...)."
            )
        parts = [one for one in (node, base) if one is not None]
        by = next((one.args["partition_by"] for one in parts if one.args.get("partition_by")), ())
        order = next((one.args["order"] for one in parts if one.args.get("order")), None)
        spec = next((one.args["spec"] for one in parts if one.args.get("spec")), None)
        ordered = [] if order is None else order.expressions
        return _Over(
            self._keys(by),
            tuple(found for one in ordered for found in self._ordering(one)),
            None if spec is None else _frame(spec),
        )

    def _keys(self, nodes: Iterable[Node]) -> tuple[Expression, ...]:
        """What PARTITION BY says besides the unit, which it must say."""
        rows = self.sight.rows
        if rows.unit is None:
            raise Unsupported(
                "A window over a public table that is joined with private rows is not supported.",
                fix="Ask the steward for the table with this column.",
            )
        if rows.is_row_level:
            raise Unsupported(
                "A window would mix rows of several units, because every row is one unit here.",
                fix="Leave it out, or name the unit's column in the policy.",
                about="units",
            )
        targets = [self.sight.target(node) for node in nodes]
        singles = {Field(one.field) for one in rows.names if one.single and one.field}
        if not any(isinstance(one, Name) or one in singles for one in targets):
            raise Unsupported(
                "A window over private rows would mix rows of several units.",
                fix=f"PARTITION BY {rows.unit_name} as well; for a window over aggregates, put it "
                "in an outer query.",
                about="units",
            )
        return tuple(one for one in targets if not isinstance(one, Name))

    def _ordering(self, node: Node) -> list[Ordering]:
        """One part of ORDER BY; the unit is the same in all rows."""
        require_only(node, "this", "desc", "nulls_first")
        target = self.sight.target(node.this)
        if isinstance(target, Name):
            return []
        untyped = self.sight.untyped.get(target.name) if type(target) is Field else None
        if untyped is not None:
            untyped.mark(compared=True)
            target = untyped.read(target)
        return [Ordering(target, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))]

    def _window(
        self, how: Fold | Among, value: Expression, over: _Over, frame: Frame | None
    ) -> Field:
        """The column of a window; equal ones share it."""
        asked_for = Window("", how, value, over.keys, over.order, frame)
        for known in self.windows:
            if replace(known, name="") == asked_for:
                return Field(known.name)
        taken = {*self.sight.rows.schema, *(one.name for one in self.windows)}
        self.windows.append(replace(asked_for, name=fresh("window", taken)))
        return Field(self.windows[-1].name)


def _frame(spec: Node) -> Frame | None:
    """ROWS BETWEEN ... AND ...; RANGE only where it means the same as no frame, or as all rows."""
    require_only(spec, "kind", "start", "start_side", "end", "end_side")
    ends = [
        _offset(spec.args.get("start"), spec.text("start_side")),
        _offset(spec.args.get("end") or "CURRENT ROW", spec.text("end_side")),
    ]
    if spec.text("kind") == "ROWS":
        if None not in ends and ends[0] > ends[1]:  # type: ignore[operator]
            raise Unsupported("A frame ends before it starts.", fix="Swap its ends.")
        return ends[0], ends[1]
    if spec.text("kind") == "RANGE" and ends in ([None, 0], [None, None]):
        return None if ends[1] == 0 else _ALL
    raise Unsupported(
        f"The frame {spec.sql(dialect='duckdb')} is not supported.",
        fix="Count rows: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW.",
        about="frame",
    )


def _offset(bound: Node | str | None, side: str) -> int | None:
    """How many rows from the one at hand; None for the end."""
    if bound == "CURRENT ROW":
        return 0
    if bound == "UNBOUNDED":
        return None
    rows = whole(bound, "A frame")  # type: ignore[arg-type]
    return -rows if side == "PRECEDING" else rows
