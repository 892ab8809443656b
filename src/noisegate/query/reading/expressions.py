"""What SQL computes from one row, as expressions of the closed list."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.functions import function_named
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.query.reading import arithmetic, calendar, decimals, texts
from noisegate.query.reading.literals import (
    agreed,
    cast,
    is_moment,
    kind_of,
    literal,
    whole,
)
from noisegate.query.reading.places import mark
from noisegate.query.reading.untyped import Untyped, taken_for
from noisegate.query.reading.words import Node, attempt, refusal, require_only

Hook: TypeAlias = Callable[[Node], Expression | None]

_QUIET: Final = ("safe", "typed", "ignore_nulls", "coalesce", "is_string", "date_part_boundary")
_PLAIN: Final[dict[type[exp.Expr], tuple[str, tuple[str, ...]]]] = {
    exp.Mul: ("multiply", ("this", "expression")),
    exp.Div: ("divide", ("this", "expression")),
    exp.Mod: ("modulo", ("this", "expression")),
    exp.Neg: ("negate", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.Sign: ("sign", ("this",)),
    exp.Floor: ("floor", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Trunc: ("trunc", ("this",)),
    exp.Sqrt: ("sqrt", ("this",)),
    exp.Ln: ("ln", ("this",)),
    exp.Exp: ("exp", ("this",)),
    exp.Pow: ("power", ("this", "expression")),
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.Length: ("length", ("this",)),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.EndsWith: ("ends_with", ("this", "expression")),
    exp.Contains: ("contains", ("this", "expression")),
    exp.StrPosition: ("position", ("this", "substr")),
    exp.DateFromParts: ("make_date", ("year", "month", "day")),
    exp.Not: ("not", ("this",)),
    exp.Year: ("year", ("this",)),
    exp.Quarter: ("quarter", ("this",)),
    exp.Month: ("month", ("this",)),
    exp.Day: ("day", ("this",)),
    exp.DayOfMonth: ("day", ("this",)),
    exp.Hour: ("hour", ("this",)),
    exp.Minute: ("minute", ("this",)),
    exp.Second: ("second", ("this",)),
    exp.TimeToUnix: ("epoch", ("this",)),
    exp.Reverse: ("reverse", ("this",)),
    exp.Repeat: ("repeat", ("this", "times")),
    exp.RegexpFullMatch: ("regexp_full_match", ("this", "expression")),
    exp.SimilarTo: ("regexp_full_match", ("this", "expression")),
    exp.Week: ("week", ("this",)),
    exp.WeekOfYear: ("week", ("this",)),
    exp.DayOfWeek: ("dayofweek", ("this",)),
    exp.DayOfYear: ("dayofyear", ("this",)),
}
_PARTS: Final[dict[str, str]] = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute", "week")},
    "second": "second", "epoch": "epoch",
    "dow": "dayofweek", "dayofweek": "dayofweek", "weekday": "dayofweek", "doy": "dayofyear",
    "dayofyear": "dayofyear", "dayofmonth": "day", "weekofyear": "week",
}  # fmt: skip
_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
}  # fmt: skip
_IN_ORDER: Final = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_ALIKE: Final[dict[type[exp.Expr], str]] = {
    **_COMPARISONS,
    exp.Coalesce: "coalesce", exp.Least: "least", exp.Greatest: "greatest", exp.Nullif: "nullif",
}  # fmt: skip
_TIGHT: Final = (
    *_COMPARISONS, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.In,
    exp.Between,
)  # fmt: skip
_METHODS: Final[dict[type[exp.Expr], str]] = {
    exp.And: "_logic",
    exp.Or: "_logic",
    exp.Add: "_sum",
    exp.Sub: "_sum",
    exp.DateAdd: "_date_add",
    exp.LastDay: "_calendar",
    exp.DayOfWeekIso: "_calendar",
    exp.Dayname: "_calendar",
    exp.Monthname: "_calendar",
    exp.Extract: "_extract",
    exp.TimestampTrunc: "_truncated",
    exp.DateTrunc: "_truncated",
    exp.DateDiff: "_difference",
    exp.Cast: "_cast",
    exp.TryCast: "_cast",
    exp.Date: "_to_date",
    exp.Case: "_case",
    exp.If: "_if",
    exp.Is: "_is",
    exp.NullSafeEQ: "_same",
    exp.NullSafeNEQ: "_same",
    exp.Between: "_between",
    exp.In: "_in",
    exp.Anonymous: "_named",
}
_READERS: Final = {**texts.READERS, **arithmetic.READERS}
_CALLED: Final = {
    "prefix": "starts_with", "suffix": "ends_with", "bin": "bin", "strlen": "strlen",
}  # fmt: skip
_DAYS: Final = {"DAY": 1, "DAYS": 1, "WEEK": 7, "WEEKS": 7}
_MONTHS: Final = {
    "MONTH": 1, "MONTHS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12, "YEARS": 12,
}  # fmt: skip


def both(*conditions: Expression) -> Expression:
    """All conditions, joined by AND."""
    return conditions[0] if len(conditions) == 1 else Call("and", conditions)


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """Reads expressions over ``schema``; ``hook`` reads columns, and anything else it knows."""

    schema: Schema
    hook: Hook
    untyped: Mapping[str, Untyped] = field(default_factory=dict)

    def read(self, node: Node, kind: Kind | None = None) -> Expression:
        """The expression that the node means, checked against the schema.

        A column without a type is taken for the ``kind``.
        """
        found = self._read(node) if kind is None else self.taken(node, kind)
        try:
            domain_of(found, self.schema)
        except Unsupported as error:
            mark(error, self._innermost(node))
            raise
        return found

    def _innermost(self, node: Node) -> Node:
        """The smallest part of a node whose kinds do not fit."""
        for child in node.iter_expressions():
            if isinstance(child, exp.Condition) and not isinstance(child, exp.Query):
                read = attempt(lambda child=child: self._read(child))  # type: ignore[misc]
                if read is not None and attempt(lambda: domain_of(read, self.schema)) is None:  # noqa: B023
                    return self._innermost(child)
        return node

    def condition(self, node: Node) -> Expression:
        """The same for something that is true or false."""
        found = self.read(node, Kind.BOOLEAN)
        if self.kind(found) is not Kind.BOOLEAN:
            raise Unsupported("A condition is not true or false.", fix="Compare with something.")
        return found

    def kind(self, value: Expression) -> Kind:
        """The kind of a value."""
        return kind_of(value, self.schema)

    def _read(self, node: Node) -> Expression:
        try:
            return self._meant(node)
        except Unsupported as error:
            mark(error, node)
            raise

    def _meant(self, node: Node) -> Expression:  # noqa: PLR0911 - one case after the other
        known = self.hook(node)
        if known is not None:
            untyped = self.untyped.get(known.name) if type(known) is Field else None
            return known if untyped is None else untyped.read(known)
        if isinstance(node, exp.Paren):
            return self._read(node.this)
        constant = literal(node)
        if constant is not None:
            return constant
        _require_parentheses(node)
        if type(node) in _PLAIN:
            return self._plain(node)
        if type(node) in _ALIKE:
            require_only(node, "this", "expression", "expressions", *_QUIET)
            rest = [node.args["expression"]] if node.args.get("expression") else node.expressions
            if type(node) in _COMPARISONS or type(node) is exp.Nullif:
                if type(node) in _IN_ORDER:
                    self._in_order(node.this, *rest)
                return Call(_ALIKE[type(node)], self.compared(node.this, *rest))
            return Call(_ALIKE[type(node)], self._agreed(node.this, *rest))
        if type(node) in _READERS:
            return _READERS[type(node)](node, self)
        if type(node) not in _METHODS:
            raise refusal(node)
        found: Expression = getattr(self, _METHODS[type(node)])(node)
        return found

    def _untyped(self, node: Node) -> Untyped | None:
        """The column without a type that a node is, if it is one."""
        inner = node.unnest()
        found = self.hook(inner) if isinstance(inner, exp.Column) else None
        return self.untyped.get(found.name) if type(found) is Field else None

    def taken(self, node: Node, kind: Kind) -> Expression:
        """What the node means, where a column without a type is taken for a kind."""
        untyped = self._untyped(node)
        if untyped is not None:
            untyped.take(kind)
        return self._read(node)

    def raw(self, node: Node) -> Expression:
        """The same, where such a column is the text that it is."""
        found = self.hook(node.unnest()) if self._untyped(node) is not None else None
        return self._read(node) if found is None else found

    def _in_order(self, *nodes: Node) -> None:
        """A column without a type beside a day in quotes is a date; else its texts are compared."""
        day = any(is_moment(literal(node)) for node in nodes)
        for untyped in map(self._untyped, nodes):
            if untyped is not None and day:
                untyped.take(Kind.TIMESTAMP)
            elif untyped is not None:
                untyped.mark(compared=True)

    def _agreed(self, *nodes: Node) -> tuple[Expression, ...]:
        values = [self._read(node) for node in nodes]
        open_ones = [self._untyped(node) for node in nodes] if self.untyped else []
        kind = taken_for(zip(values, open_ones, strict=False), self.schema)
        for place, untyped in enumerate(open_ones):
            if untyped is not None and kind is not None:
                values[place] = self.taken(nodes[place], kind)
        values = agreed(values, self.schema)
        if any(map(_is_double, nodes)):
            values = [decimals.doubled(value, self.schema) for value in values]
        return tuple(decimals.beside(values, self.schema))

    def compared(self, *nodes: Node) -> tuple[Expression, ...]:
        """Values that are told from each other, so decimals are exact."""
        return tuple(decimals.exact(value, self.schema) for value in self._agreed(*nodes))

    def operand(self, node: Node, kind: Kind = Kind.NUMBER) -> Expression:
        """What is computed with: 1e-2 is a double in SQL, and makes doubles."""
        value = self.taken(node, kind)
        return Call("to_number", (value,)) if _is_double(node) else value

    def _plain(self, node: Node) -> Expression:
        name, parts = _PLAIN[type(node)]
        require_only(node, *parts, *_QUIET)
        taken = zip(parts, function_named(name).parameters, strict=False)
        args = tuple(
            self.operand(node.args[part], parameter.kinds[-1])
            for part, parameter in taken
            if node.args.get(part)
        )
        width = _bin_width(node)
        if width is not None:
            below = self.taken(node.this.this.this, Kind.NUMBER)
            if self.kind(below).is_numeric:
                return Call("bin", (below, width))
        return self._called(name, args)

    def _called(self, name: str, args: tuple[Expression, ...]) -> Expression:
        """A call, in which decimals stay exact."""
        if not args or not all(self.kind(arg).is_numeric for arg in args):
            return Call(name, args)
        if name in ("negate", "abs"):
            return Call(name, args)
        if name == "multiply":
            return decimals.computed(name, args[0], args[1], self.schema)
        if name == "modulo":
            return decimals.rest(args[0], args[1], self.schema)
        if name == "round" and self.kind(args[0]) is Kind.NUMBER:
            digits = args[1].value if len(args) > 1 and type(args[1]) is Literal else 0
            if type(digits) is int and (len(args) == 1 or type(args[1]) is Literal):
                scaled = decimals.scale_of(args[0], self.schema) is not None
                return (
                    decimals.rounded(args[0], digits, self.schema) if scaled else Call(name, args)
                )
        return Call(name, tuple(decimals.exact(arg, self.schema) for arg in args))

    def _logic(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        return Call(
            node.key, tuple(self.taken(part, Kind.BOOLEAN) for part in node.flatten(unnest=False))
        )

    def _sum(self, node: Node) -> Expression:
        """Sums and differences, where dates count in days."""
        require_only(node, "this", "expression", *_QUIET)
        back = isinstance(node, exp.Sub)
        first, second = node.this, node.expression
        if isinstance(first, exp.Interval) and not back:
            first, second = second, first
        if isinstance(second, exp.Interval):
            return self._moved(first, second, back=back)
        left, right = self._summands(first, second)
        kinds = (self.kind(left), self.kind(right))
        if kinds == (Kind.DATE, Kind.DATE) and back:
            return Call("date_diff", (Literal("day"), right, left))
        if kinds == (Kind.DATE, Kind.INTEGER):
            return self._later(left, right, back=back)
        if kinds == (Kind.INTEGER, Kind.DATE) and not back:
            return self._later(right, left, back=False)
        if not all(kind.is_numeric for kind in kinds):
            return Call("subtract" if back else "add", (left, right))
        return decimals.computed("subtract" if back else "add", left, right, self.schema)

    def _summands(self, *nodes: Node) -> tuple[Expression, ...]:
        """What is added up: a column without a type is a number, or a date beside a date."""
        plain = [self._read(node) for node in nodes if self._untyped(node) is None]
        dates = any(self.kind(value) is Kind.DATE for value in plain)
        return tuple(self.operand(node, Kind.DATE if dates else Kind.NUMBER) for node in nodes)

    def _later(self, moment: Expression, days: Expression, *, back: bool) -> Expression:
        if back:
            constant = type(days) is Literal and type(days.value) is int
            days = Literal(-days.value) if constant else Call("negate", (days,))  # type: ignore[union-attr,operator]
        return calendar.later_days(moment, days)

    def _moved(self, node: Node, interval: exp.Interval, *, back: bool) -> Expression:
        """A date and an INTERVAL of days, weeks, months or years."""
        count, unit = _words(interval)
        months = _MONTHS.get(unit)
        moment = self.taken(node, Kind.TIMESTAMP if months is None else Kind.DATE)
        if months is None or not isinstance(interval.this, exp.Literal):
            return self._later(moment, self._days(interval), back=back)
        number = whole(exp.Literal.number(count), "An INTERVAL") * months
        return calendar.later_months(moment, -number if back else number, self.schema)

    def _days(self, interval: exp.Interval) -> Expression:
        text = interval.this
        number, word = _words(interval)
        unit = _DAYS.get(word)
        if unit is None:
            raise Unsupported(
                "An INTERVAL is not in days, weeks, months or years.",
                fix="Use INTERVAL n DAY, or write the date.",
            )
        if isinstance(text, exp.Literal):
            return Literal(whole(exp.Literal.number(number), "An INTERVAL") * unit)
        count = self.taken(text, Kind.INTEGER)
        return count if unit == 1 else Call("multiply", (count, Literal(unit)))

    def _date_add(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        if not isinstance(node.expression, exp.Interval):
            raise refusal(node)
        return self._moved(node.this, node.expression, back=False)

    def _calendar(self, node: Node) -> Expression:
        """Days and months by other names than numbers."""
        require_only(node, "this")
        moment = self.taken(node.this, Kind.TIMESTAMP)
        if isinstance(node, exp.LastDay):
            return calendar.last_day(moment)
        if isinstance(node, exp.DayOfWeekIso):
            return calendar.iso_weekday(moment)
        if isinstance(node, exp.Dayname):
            place = Call("dayofweek", (moment,))
            return calendar.named(place, 0, calendar.DAYS, self.schema)
        return calendar.named(Call("month", (moment,)), 1, calendar.MONTHS, self.schema)

    def _extract(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        return self._part(node.this.name, node.expression)

    def _part(self, name: str, node: Node) -> Expression:
        part = _PARTS.get(name.lower())
        if name.lower() == "isodow":
            return calendar.iso_weekday(self.taken(node, Kind.TIMESTAMP))
        if part is None:
            raise Unsupported(
                f"The part {name!r} of a date is not offered.",
                fix=f"Use one of {', '.join(sorted(set(_PARTS.values())))}.",
            )
        return Call(part, (self.taken(node, Kind.TIMESTAMP),))

    def _truncated(self, node: Node) -> Expression:
        require_only(node, "this", "unit", *_QUIET)
        unit = Literal(node.args["unit"].name.lower())
        return Call("date_trunc", (unit, self.taken(node.this, Kind.TIMESTAMP)))

    def _difference(self, node: Node) -> Expression:
        require_only(node, "this", "expression", "unit", *_QUIET)
        unit = Literal(node.text("unit").lower() or "day")
        for end in (node.expression, node.this):
            self.taken(end, Kind.TIMESTAMP)
        return Call("date_diff", (unit, *self._agreed(node.expression, node.this)))

    def _cast(self, node: Node) -> Expression:
        require_only(node, "this", "to", "action", *_QUIET)
        return cast(self.raw(node.this), node.args["to"], self.schema)

    def _to_date(self, node: Node) -> Expression:
        require_only(node, "this")
        return cast(self.raw(node.this), exp.DataType(this=exp.DType.DATE), self.schema)

    def _case(self, node: Node) -> Expression:
        require_only(node, "this", "ifs", "default")
        subject = node.args.get("this")
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]] + (
            [default] if default else []
        )
        results = list(self._agreed(*values))
        args: list[Expression] = []
        for branch, value in zip(node.args["ifs"], results, strict=False):
            asked = branch.this
            args.append(
                self.taken(asked, Kind.BOOLEAN)
                if subject is None
                else Call("eq", self.compared(subject, asked))
            )
            args.append(value)
        return Call("case", (*args, results[-1]) if default else tuple(args))

    def _if(self, node: Node) -> Expression:
        require_only(node, "this", "true", "false")
        values = [node.args[part] for part in ("true", "false") if node.args.get(part)]
        return Call("case", (self.taken(node.this, Kind.BOOLEAN), *self._agreed(*values)))

    def _is(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        asked = literal(node.expression)
        if asked is None or asked.value not in (None, True, False):
            raise refusal(node)
        if asked.value is None:
            return Call("is_null", (self._read(node.this),))
        value = self.taken(node.this, Kind.BOOLEAN)
        return Call("is_true", (value if asked.value else Call("not", (value,)),))

    def _same(self, node: Node) -> Expression:
        """IS [NOT] DISTINCT FROM: NULL equals NULL."""
        require_only(node, "this", "expression")
        one, other = self.compared(node.this, node.expression)
        neither = both(Call("is_null", (one,)), Call("is_null", (other,)))
        same = Call("coalesce", (Call("eq", (one, other)), neither))
        return Call("not", (same,)) if isinstance(node, exp.NullSafeNEQ) else same

    def _between(self, node: Node) -> Expression:
        require_only(node, "this", "low", "high")
        parts = (node.this, node.args["low"], node.args["high"])
        self._in_order(*parts)
        value, low, high = self.compared(*parts)
        return Call("between", (value, low, high))

    def _in(self, node: Node) -> Expression:
        if node.args.get("query"):
            raise refusal("SUBQUERY")
        require_only(node, "this", "expressions")
        value, *listed = self.compared(node.this, *node.expressions)
        if all(type(one) is Literal and one.value is not None for one in listed):
            return Call("in", (value, *listed))
        return Call("or", tuple(Call("eq", (value, one)) for one in listed))

    def _named(self, node: Node) -> Expression:
        name, args = node.name.lower(), node.expressions
        if name in ("date_part", "datepart") and len(args) == 2 and args[0].is_string:
            return self._part(args[0].name, args[1])
        if name == "weekday" and len(args) == 1:
            return self._part(name, args[0])
        if name in _CALLED:
            taken = zip(args, function_named(_CALLED[name]).parameters, strict=False)
            return Call(
                _CALLED[name],
                tuple(self.taken(arg, parameter.kinds[-1]) for arg, parameter in taken),
            )
        raise refusal(node)


def _require_parentheses(node: Node) -> None:
    """Comparisons of comparisons bind differently in different engines, so none is guessed."""
    if type(node) in _TIGHT and any(
        type(child) in (*_TIGHT, exp.Not) for child in node.iter_expressions()
    ):
        raise Unsupported(
            "A comparison stands inside a comparison.", fix="Put parentheses around the inner one."
        )


def _words(interval: exp.Interval) -> tuple[str, str]:
    """The number and the unit of an INTERVAL."""
    words = [interval.this.name, interval.text("unit")]
    if isinstance(interval.this, exp.Literal) and not words[1]:
        words = interval.this.name.split()
    return (words[0], words[1].upper()) if len(words) == 2 else ("", "")


def _is_double(node: Node) -> bool:
    """A constant such as 1e-2."""
    plain = node.unnest()
    return isinstance(plain, exp.Literal) and not plain.is_string and "e" in plain.name.lower()


def _bin_width(node: Node) -> Literal | None:
    """The w of FLOOR(x / w) * w."""
    if not isinstance(node, exp.Mul) or not isinstance(node.this, exp.Floor):
        return None
    inner = node.this.this
    width = literal(node.expression)
    if not isinstance(inner, exp.Div) or width is None or width != literal(inner.expression):
        return None
    return width if width.kind.is_numeric and width.value > 0 else None  # type: ignore[operator]
