"""What SQL computes from one row, as expressions of the closed list."""

from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal
from noisegate.algebra.functions import function_named
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import (
    cast,
    literal,
)
from noisegate.sql.reading.values import calls, decimals, times
from noisegate.sql.reading.values.operands import Operands, both
from noisegate.sql.reading.words import Node, refusal, require_only

_QUIET: Final = ("safe", "typed", "ignore_nulls", "coalesce", "is_string", "date_part_boundary")
_SAME_NAME: Final[tuple[type[exp.Expr], ...]] = (  # functions of one value
    exp.Abs, exp.Sign, exp.Floor, exp.Ceil, exp.Trunc, exp.Sqrt, exp.Ln, exp.Exp, exp.Lower,
    exp.Upper, exp.Length, exp.Not, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.Hour,
    exp.Minute, exp.Second, exp.Reverse, exp.Week, exp.DayOfWeek, exp.DayOfYear,
)  # fmt: skip
_PLAIN: Final[dict[type[exp.Expr], tuple[str, tuple[str, ...]]]] = {
    **{each: (each.__name__.lower(), ("this",)) for each in _SAME_NAME},
    exp.Mul: ("multiply", ("this", "expression")),
    exp.Div: ("divide", ("this", "expression")),
    exp.Mod: ("modulo", ("this", "expression")),
    exp.Neg: ("negate", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Pow: ("power", ("this", "expression")),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.EndsWith: ("ends_with", ("this", "expression")),
    exp.Contains: ("contains", ("this", "expression")),
    exp.StrPosition: ("position", ("this", "substr")),
    exp.DateFromParts: ("make_date", ("year", "month", "day")),
    exp.DayOfMonth: ("day", ("this",)),
    exp.Repeat: ("repeat", ("this", "times")),
    exp.RegexpFullMatch: ("regexp_full_match", ("this", "expression")),
    exp.SimilarTo: ("regexp_full_match", ("this", "expression")),
    exp.WeekOfYear: ("week", ("this",)),
}
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
_BOTH: Final = ("this", "expression")
_METHODS: Final[dict[type[exp.Expr], tuple[str, tuple[str, ...]]]] = {
    exp.And: ("_logic", _BOTH),
    exp.Or: ("_logic", _BOTH),
    exp.Cast: ("_cast", ("this", "to", "action", *_QUIET)),
    exp.TryCast: ("_cast", ("this", "to", "action", *_QUIET)),
    exp.Date: ("_cast", ("this",)),
    exp.Case: ("_case", ("this", "ifs", "default")),
    exp.If: ("_if", ("this", "true", "false")),
    exp.Is: ("_is", _BOTH),
    exp.NullSafeEQ: ("_same", _BOTH),
    exp.NullSafeNEQ: ("_same", _BOTH),
    exp.Between: ("_between", ("this", "low", "high")),
    exp.In: ("_in", ("this", "expressions", "query")),
    exp.Anonymous: ("_named", ("this", "expressions")),
}
_READERS: Final = {**calls.READERS, **times.READERS}
_CALLED: Final = {
    "prefix": "starts_with", "suffix": "ends_with", "bin": "bin", "strlen": "strlen",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class ExpressionReader(Operands):
    """Reads expressions, each as its function says."""

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
            return self._alike(node)
        if type(node) in _READERS:
            return self._by_reader(node)
        if type(node) not in _METHODS:
            raise refusal(node)
        method, parts = _METHODS[type(node)]
        require_only(node, *parts)
        found: Expression = getattr(self, method)(node)
        return found

    def _alike(self, node: Node) -> Expression:
        """What needs operands of one kind."""
        require_only(node, "this", "expression", "expressions", *_QUIET)
        name = _ALIKE[type(node)]
        rest = [node.args["expression"]] if node.args.get("expression") else node.expressions
        if type(node) not in _COMPARISONS and type(node) is not exp.Nullif:
            return Call(name, self.agreed(node.this, *rest))
        if type(node) in _COMPARISONS and (spans := times.in_seconds(node, self)):
            return Call(name, spans)
        if type(node) in _IN_ORDER:
            self._in_order(node.this, *rest)
        return Call(name, self.compared(node.this, *rest))

    def _by_reader(self, node: Node) -> Expression:
        """What a reader of its own makes of it; the parser leaves open what a function lacks."""
        parts, reader = _READERS[type(node)]
        require_only(node, *parts)
        try:
            return reader(node, self)
        except KeyError:
            lacking = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
        raise Unsupported(
            f"{lacking} has too few arguments.", fix="Write all of them.", about="argument"
        )

    def _plain(self, node: Node) -> Expression:
        name, parts = _PLAIN[type(node)]
        require_only(node, *parts, *_QUIET)
        width = _bin_width(node)
        if width is not None:
            below = self.taken(node.this.this.this, Kind.NUMBER)
            if self.kind(below).is_numeric:
                return Call("bin", (below, width))
        taken = zip(parts, function_named(name).parameters, strict=False)
        args = tuple(
            self.operand(node.args[part], parameter.kinds[-1])
            for part, parameter in taken
            if node.args.get(part)
        )
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
        return Call(
            node.key, tuple(self.taken(part, Kind.BOOLEAN) for part in node.flatten(unnest=False))
        )

    def _cast(self, node: Node) -> Expression:
        """CAST(x AS type), and DATE(x)."""
        kind = node.args.get("to") or exp.DataType(this=exp.DType.DATE)
        return cast(self.raw(node.this), kind, self.schema)

    def _case(self, node: Node) -> Expression:
        subject = node.args.get("this")
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]] + (
            [default] if default else []
        )
        results = list(self.agreed(*values))
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
        values = [node.args[part] for part in ("true", "false") if node.args.get(part)]
        return Call("case", (self.taken(node.this, Kind.BOOLEAN), *self.agreed(*values)))

    def _is(self, node: Node) -> Expression:
        asked = literal(node.expression)
        if asked is None or asked.value not in (None, True, False):
            raise refusal(node)
        if asked.value is None:
            return Call("is_null", (self._read(node.this),))
        value = self.taken(node.this, Kind.BOOLEAN)
        return Call("is_true", (value if asked.value else Call("not", (value,)),))

    def _same(self, node: Node) -> Expression:
        """IS [NOT] DISTINCT FROM: NULL equals NULL."""
        one, other = self.compared(node.this, node.expression)
        neither = both(Call("is_null", (one,)), Call("is_null", (other,)))
        same = Call("coalesce", (Call("eq", (one, other)), neither))
        return Call("not", (same,)) if isinstance(node, exp.NullSafeNEQ) else same

    def _between(self, node: Node) -> Expression:
        parts = (node.this, node.args["low"], node.args["high"])
        self._in_order(*parts)
        value, low, high = self.compared(*parts)
        return Call("between", (value, low, high))

    def _in(self, node: Node) -> Expression:
        if node.args.get("query"):
            raise refusal("SUBQUERY")
        value, *listed = self.compared(node.this, *node.expressions)
        if all(type(one) is Literal and one.value is not None for one in listed):
            return Call("in", (value, *listed))
        return Call("or", tuple(Call("eq", (value, one)) for one in listed))

    def _named(self, node: Node) -> Expression:
        name, args = node.name.lower(), node.expressions
        if name in ("date_part", "datepart") and len(args) == 2 and args[0].is_string:
            return times.part(args[0].name, args[1], self)
        if name == "weekday" and len(args) == 1:
            return times.part(name, args[0], self)
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
            "A comparison is nested in a comparison.",
            fix="Put parentheses around the inner one.",
            about="nested",
        )


def _bin_width(node: Node) -> Literal | None:
    """The w of FLOOR(x / w) * w."""
    if not isinstance(node, exp.Mul) or not isinstance(node.this, exp.Floor):
        return None
    inner = node.this.this
    width = literal(node.expression)
    if not isinstance(inner, exp.Div) or width is None or width != literal(inner.expression):
        return None
    return width if width.kind.is_numeric and width.value > 0 else None  # type: ignore[operator]
