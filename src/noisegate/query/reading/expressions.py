"""What SQL computes from one row, as expressions of the closed list."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.query.reading import calendar, decimals
from noisegate.query.reading.literals import (
    agreed,
    as_text,
    cast,
    is_whole_in_sql,
    kind_of,
    literal,
    whole,
)
from noisegate.query.reading.words import Node, refusal, require_only

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
    exp.Week: ("week", ("this",)),
    exp.WeekOfYear: ("week", ("this",)),
    exp.DayOfWeek: ("dayofweek", ("this",)),
    exp.DayOfYear: ("dayofyear", ("this",)),
}
_PARTS: Final[dict[str, str]] = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute", "week")},
    "dow": "dayofweek", "dayofweek": "dayofweek", "weekday": "dayofweek", "doy": "dayofyear",
    "dayofyear": "dayofyear", "dayofmonth": "day", "weekofyear": "week",
}  # fmt: skip
_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
}  # fmt: skip
_ALIKE: Final[dict[type[exp.Expr], str]] = {
    **_COMPARISONS,
    exp.Coalesce: "coalesce", exp.Least: "least", exp.Greatest: "greatest", exp.Nullif: "nullif",
}  # fmt: skip
_TIGHT: Final = (
    *_COMPARISONS, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.ILike, exp.In,
    exp.Between,
)  # fmt: skip
_METHODS: Final[dict[type[exp.Expr], str]] = {
    exp.IntDiv: "_whole_division",
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
    exp.Like: "_like",
    exp.ILike: "_like",
    exp.Escape: "_escaped",
    exp.DPipe: "_pipe",
    exp.Concat: "_concat",
    exp.Trim: "_trim",
    exp.Log: "_log",
    exp.WidthBucket: "_bucket",
    exp.Anonymous: "_named",
}
_CALLED: Final = {"prefix": "starts_with", "suffix": "ends_with", "bin": "bin"}
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

    def read(self, node: Node) -> Expression:
        """The expression that the node means, checked against the schema."""
        found = self._read(node)
        domain_of(found, self.schema)
        return found

    def condition(self, node: Node) -> Expression:
        """The same for something that is true or false."""
        found = self.read(node)
        if self._kind(found) is not Kind.BOOLEAN:
            raise Unsupported("A condition is not true or false.", fix="Compare with something.")
        return found

    def _kind(self, value: Expression) -> Kind:
        return kind_of(value, self.schema)

    def _read(self, node: Node) -> Expression:  # noqa: PLR0911 - one case after the other
        known = self.hook(node)
        if known is not None:
            return known
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
                return Call(_ALIKE[type(node)], self._compared(node.this, *rest))
            return Call(_ALIKE[type(node)], self._agreed(node.this, *rest))
        if type(node) not in _METHODS:
            raise refusal(node)
        found: Expression = getattr(self, _METHODS[type(node)])(node)
        return found

    def _agreed(self, *nodes: Node) -> tuple[Expression, ...]:
        values = agreed([self._read(node) for node in nodes], self.schema)
        if any(map(_is_double, nodes)):
            values = [decimals.doubled(value, self.schema) for value in values]
        return tuple(decimals.beside(values, self.schema))

    def _compared(self, *nodes: Node) -> tuple[Expression, ...]:
        """Values that are told from each other, so decimals are exact."""
        return tuple(decimals.exact(value, self.schema) for value in self._agreed(*nodes))

    def _operand(self, node: Node) -> Expression:
        """What is computed with: 1e-2 is a double in SQL, and makes doubles."""
        value = self._read(node)
        return Call("to_number", (value,)) if _is_double(node) else value

    def _plain(self, node: Node) -> Expression:
        name, parts = _PLAIN[type(node)]
        require_only(node, *parts, *_QUIET)
        args = tuple(self._operand(node.args[part]) for part in parts if node.args.get(part))
        width = _bin_width(node)
        if width is not None:
            below = self._read(node.this.this.this)
            if self._kind(below).is_numeric:
                return Call("bin", (below, width))
        return self._called(name, args)

    def _called(self, name: str, args: tuple[Expression, ...]) -> Expression:
        """A call, in which decimals stay exact."""
        if not args or not all(self._kind(arg).is_numeric for arg in args):
            return Call(name, args)
        if name in ("negate", "abs"):
            return Call(name, args)
        if name == "multiply":
            return decimals.computed(name, args[0], args[1], self.schema)
        if name == "modulo":
            return decimals.rest(args[0], args[1], self.schema)
        if name == "round" and self._kind(args[0]) is Kind.NUMBER:
            digits = args[1].value if len(args) > 1 and type(args[1]) is Literal else 0
            if type(digits) is int and (len(args) == 1 or type(args[1]) is Literal):
                scaled = decimals.scale_of(args[0], self.schema) is not None
                return (
                    decimals.rounded(args[0], digits, self.schema) if scaled else Call(name, args)
                )
        return Call(name, tuple(decimals.exact(arg, self.schema) for arg in args))

    def _whole_division(self, node: Node) -> Expression:
        """Whole numbers only: DuckDB's // of others is a plain division."""
        require_only(node, "this", "expression")
        parts = (self._read(node.this), self._read(node.expression))
        for part in parts:
            if self._kind(part) is not Kind.INTEGER or not is_whole_in_sql(part):
                raise Unsupported(
                    "// divides numbers that are not whole.", fix="Use FLOOR(x / y), or a cast."
                )
        return Call("int_divide", parts)

    def _logic(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        return Call(node.key, tuple(self._read(part) for part in node.flatten(unnest=False)))

    def _sum(self, node: Node) -> Expression:
        """Sums and differences, where dates count in days."""
        require_only(node, "this", "expression", *_QUIET)
        back = isinstance(node, exp.Sub)
        first, second = node.this, node.expression
        if isinstance(first, exp.Interval) and not back:
            first, second = second, first
        left = self._operand(first)
        if isinstance(second, exp.Interval):
            return self._moved(left, second, back=back)
        right = self._operand(second)
        kinds = (self._kind(left), self._kind(right))
        if kinds == (Kind.DATE, Kind.DATE) and back:
            return Call("date_diff", (Literal("day"), right, left))
        if kinds == (Kind.DATE, Kind.INTEGER):
            return self._later(left, right, back=back)
        if kinds == (Kind.INTEGER, Kind.DATE) and not back:
            return self._later(right, left, back=False)
        if not all(kind.is_numeric for kind in kinds):
            return Call("subtract" if back else "add", (left, right))
        return decimals.computed("subtract" if back else "add", left, right, self.schema)

    def _later(self, moment: Expression, days: Expression, *, back: bool) -> Expression:
        if back:
            constant = type(days) is Literal and type(days.value) is int
            days = Literal(-days.value) if constant else Call("negate", (days,))  # type: ignore[union-attr,operator]
        return calendar.later_days(moment, days)

    def _moved(self, moment: Expression, interval: exp.Interval, *, back: bool) -> Expression:
        """A date and an INTERVAL of days, weeks, months or years."""
        count, unit = _words(interval)
        months = _MONTHS.get(unit)
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
        count = self._read(text)
        return count if unit == 1 else Call("multiply", (count, Literal(unit)))

    def _date_add(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        if not isinstance(node.expression, exp.Interval):
            raise refusal(node)
        return self._moved(self._read(node.this), node.expression, back=False)

    def _calendar(self, node: Node) -> Expression:
        """Days and months by other names than numbers."""
        require_only(node, "this")
        moment = self._read(node.this)
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
            return calendar.iso_weekday(self._read(node))
        if part is None:
            raise Unsupported(
                f"The part {name!r} of a date is not offered.",
                fix=f"Use one of {', '.join(sorted(set(_PARTS.values())))}.",
            )
        return Call(part, (self._read(node),))

    def _truncated(self, node: Node) -> Expression:
        require_only(node, "this", "unit", *_QUIET)
        unit = Literal(node.args["unit"].name.lower())
        return Call("date_trunc", (unit, self._read(node.this)))

    def _difference(self, node: Node) -> Expression:
        require_only(node, "this", "expression", "unit", *_QUIET)
        unit = Literal(node.text("unit").lower() or "day")
        return Call("date_diff", (unit, *self._agreed(node.expression, node.this)))

    def _cast(self, node: Node) -> Expression:
        require_only(node, "this", "to", "action", *_QUIET)
        return cast(self._read(node.this), node.args["to"], self.schema)

    def _to_date(self, node: Node) -> Expression:
        require_only(node, "this")
        return cast(self._read(node.this), exp.DataType(this=exp.DType.DATE), self.schema)

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
                self._read(asked) if subject is None else Call("eq", self._compared(subject, asked))
            )
            args.append(value)
        return Call("case", (*args, results[-1]) if default else tuple(args))

    def _if(self, node: Node) -> Expression:
        require_only(node, "this", "true", "false")
        values = [node.args[part] for part in ("true", "false") if node.args.get(part)]
        return Call("case", (self._read(node.this), *self._agreed(*values)))

    def _is(self, node: Node) -> Expression:
        require_only(node, "this", "expression")
        asked = literal(node.expression)
        value = self._read(node.this)
        if asked is None or asked.value not in (None, True, False):
            raise refusal(node)
        if asked.value is None:
            return Call("is_null", (value,))
        return Call("is_true", (value if asked.value else Call("not", (value,)),))

    def _same(self, node: Node) -> Expression:
        """IS [NOT] DISTINCT FROM: NULL equals NULL."""
        require_only(node, "this", "expression")
        one, other = self._compared(node.this, node.expression)
        neither = both(Call("is_null", (one,)), Call("is_null", (other,)))
        same = Call("coalesce", (Call("eq", (one, other)), neither))
        return Call("not", (same,)) if isinstance(node, exp.NullSafeNEQ) else same

    def _between(self, node: Node) -> Expression:
        require_only(node, "this", "low", "high")
        value, low, high = self._compared(node.this, node.args["low"], node.args["high"])
        return Call("between", (value, low, high))

    def _in(self, node: Node) -> Expression:
        if node.args.get("query"):
            raise refusal("SUBQUERY")
        require_only(node, "this", "expressions")
        value, *listed = self._compared(node.this, *node.expressions)
        if all(type(one) is Literal and one.value is not None for one in listed):
            return Call("in", (value, *listed))
        return Call("or", tuple(Call("eq", (value, one)) for one in listed))

    def _escaped(self, node: Node) -> Expression:
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise refusal(node)
        return self._like(node.this, self._read(node.expression))

    def _like(self, node: Node, *escape: Expression) -> Expression:
        require_only(node, "this", "expression", "negate")
        name = "ilike" if isinstance(node, exp.ILike) else "like"
        found = Call(name, (self._read(node.this), self._read(node.expression), *escape))
        return Call("not", (found,)) if node.args.get("negate") else found

    def _texts(self, nodes: list[Node]) -> list[Expression]:
        return [as_text(self._read(node), self.schema) for node in nodes]

    def _pipe(self, node: Node) -> Expression:
        require_only(node, "this", "expression", *_QUIET)
        return Call("concat", tuple(self._texts([node.this, node.expression])))

    def _concat(self, node: Node) -> Expression:
        """CONCAT leaves NULLs out, unlike ||."""
        require_only(node, "expressions", *_QUIET)
        texts = self._texts(node.expressions)
        filled: list[Expression] = [
            Call("coalesce", (text, Literal(""))) if domain_of(text, self.schema).nullable else text
            for text in texts
        ]
        return Call("concat", tuple(filled))

    def _trim(self, node: Node) -> Expression:
        require_only(node, "this", "position")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.text("position"), "trim")
        return Call(name, (self._read(node.this),))

    def _log(self, node: Node) -> Expression:
        """LOG(x) is to base 10, LOG(base, x) to a base."""
        require_only(node, "this", "expression")
        if not node.args.get("expression"):
            return Call("log10", (self._read(node.this),))
        base, value = literal(node.this), self._read(node.expression)
        named = {2: "log2", 10: "log10"}.get(base.value) if base is not None else None  # type: ignore[arg-type]
        if named is None:
            return Call("divide", (Call("ln", (value,)), Call("ln", (self._read(node.this),))))
        return Call(named, (value,))

    def _bucket(self, node: Node) -> Expression:
        """WIDTH_BUCKET(x, low, high, n): 0 below, 1 to n, n + 1 from high on."""
        require_only(node, "this", "min_value", "max_value", "num_buckets")
        low, high = literal(node.args["min_value"]), literal(node.args["max_value"])
        count = whole(node.args["num_buckets"], "The number of buckets")
        ends = [end for end in (low, high) if end is not None and end.kind.is_numeric]
        if low is None or high is None or len(ends) < 2 or count < 1 or low.value >= high.value:  # type: ignore[operator]
            raise Unsupported("WIDTH_BUCKET needs two numbers in order.", fix="Write low, high.")
        width = Fraction(high.value) - Fraction(low.value)  # type: ignore[arg-type]
        value = self._read(node.this)
        moved = Call("multiply", (Call("subtract", (value, low)), Literal(count)))
        share = Call("divide", (moved, Literal(width)))
        kept = Call("greatest", (Literal(-1), Call("least", (Literal(count), share))))
        place = Call("add", (Call("to_integer", (Call("floor", (kept,)),)), Literal(1)))
        return Call("case", (Call("not", (Call("is_null", (value,)),)), place))

    def _named(self, node: Node) -> Expression:
        name, args = node.name.lower(), node.expressions
        if name in ("date_part", "datepart") and len(args) == 2 and args[0].is_string:
            return self._part(args[0].name, args[1])
        if name == "weekday" and len(args) == 1:
            return self._part(name, args[0])
        if name in _CALLED:
            return Call(_CALLED[name], tuple(self._read(arg) for arg in args))
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
