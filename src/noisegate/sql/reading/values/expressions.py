"""What SQL computes from one row, as expressions of the closed list."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.functions import function_named
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import (
    agreed,
    cast,
    is_moment,
    kind_of,
    literal,
)
from noisegate.sql.reading.untyped import Untyped, taken_for, together
from noisegate.sql.reading.values import calls, decimals, times
from noisegate.sql.reading.words import Node, attempt, mark, refusal, require_only

Hook: TypeAlias = Callable[[Node], Expression | None]

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
_CHOICES: Final = (exp.Coalesce, exp.Least, exp.Greatest, exp.Nullif)
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
            raise Unsupported(
                "A condition is not a boolean.", fix="Compare it with something.", about="boolean"
            )
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
            return Call(_ALIKE[type(node)], self.agreed(node.this, *rest))
        if type(node) in _READERS:
            return self._by_reader(node)
        if type(node) not in _METHODS:
            raise refusal(node)
        method, parts = _METHODS[type(node)]
        require_only(node, *parts)
        found: Expression = getattr(self, method)(node)
        return found

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

    def without_type(self, node: Node) -> Untyped | None:
        """The column without a type that a node is, or the choice of several that it is."""
        inner = node.unnest()
        if self.untyped and type(inner) in _CHOICES:
            rest = [inner.expression] if inner.args.get("expression") else inner.expressions
            parts = [self.without_type(part) for part in (inner.this, *rest)]
            return None if None in parts else together(inner.sql(dialect="duckdb"), parts)
        known = self.untyped and isinstance(inner, exp.Column)
        found = attempt(lambda: self.hook(inner)) if known else None
        return self.untyped.get(found.name) if type(found) is Field else None

    def taken(self, node: Node, kind: Kind) -> Expression:
        """What the node means, where a column without a type is taken for a kind."""
        untyped = self.without_type(node)
        if untyped is not None:
            untyped.take(kind)
        return self._read(node)

    def raw(self, node: Node) -> Expression:
        """The same, where such a column is the text that it is."""
        found = self.hook(node.unnest()) if self.without_type(node) is not None else None
        return self._read(node) if found is None else found

    def _in_order(self, *nodes: Node) -> None:
        """A column without a type beside a day in quotes is a date; else its texts are compared."""
        day = any(is_moment(literal(node)) for node in nodes)
        for untyped in map(self.without_type, nodes):
            if untyped is not None and day:
                untyped.take(Kind.TIMESTAMP)
            elif untyped is not None:
                untyped.mark(compared=True)

    def agreed(self, *nodes: Node) -> tuple[Expression, ...]:
        """Values that can stand beside each other."""
        values = [self._read(node) for node in nodes]
        open_ones = [self.without_type(node) for node in nodes]
        kind = taken_for(zip(values, open_ones, strict=True), self.schema)
        for place, untyped in enumerate(open_ones):
            if untyped is not None and kind is not None:
                values[place] = self.taken(nodes[place], kind)
        values = agreed(values, self.schema)
        if any(map(_is_double, nodes)):
            values = [decimals.doubled(value, self.schema) for value in values]
        return tuple(decimals.beside(values, self.schema))

    def compared(self, *nodes: Node) -> tuple[Expression, ...]:
        """Values that are told from each other, so decimals are exact."""
        untyped = [each for each in map(self.without_type, nodes) if each is not None]
        for each in untyped if len(untyped) > 1 else ():
            each.mark(compared=True)
        return tuple(decimals.exact(value, self.schema) for value in self.agreed(*nodes))

    def operand(self, node: Node, kind: Kind = Kind.NUMBER) -> Expression:
        """What is computed with: 1e-2 is a double in SQL, and makes doubles."""
        value = self.taken(node, kind)
        return Call("to_number", (value,)) if _is_double(node) else value

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
