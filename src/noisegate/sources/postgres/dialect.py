"""The words of Postgres, from version 14 on."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, final

from sqlglot import exp

from noisegate.errors import Bug, Unsupported
from noisegate.privacy.domain import WHOLE_MAX, Column, Kind
from noisegate.sources.asked.sampled import with_heads
from noisegate.sources.postgres import doubles
from noisegate.sources.writing.dialect import TEXT_MAX, Dialect, Writer
from noisegate.sources.writing.words import and_, call, case, cast, number, whole, within

WHOLE_TYPES: Final = frozenset({"int2", "int4", "int8"})
# Stored types by kind, and what each kind may be declared as. Texts are not parsed: engines differ.
KIND_OF: Final = {
    **dict.fromkeys(WHOLE_TYPES, Kind.INTEGER),
    **dict.fromkeys(("float4", "float8", "numeric"), Kind.NUMBER),
    **dict.fromkeys(("text", "varchar", "bpchar", "uuid", "enum"), Kind.TEXT),
    **dict.fromkeys(("timestamp", "timestamptz"), Kind.TIMESTAMP),
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
}
READ_AS: Final = {
    Kind.TEXT: (Kind.TEXT,),
    Kind.INTEGER: (Kind.INTEGER, Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN),
    Kind.NUMBER: (Kind.NUMBER, Kind.INTEGER),
    Kind.BOOLEAN: (Kind.BOOLEAN, Kind.TEXT),
    Kind.DATE: (Kind.DATE, Kind.TIMESTAMP),
    Kind.TIMESTAMP: (Kind.DATE, Kind.TIMESTAMP),
}
_NUMERIC: Final = frozenset({"HUGEINT", "INT128", "UBIGINT"})
_SMALLEST: Final = "1e-300"  # a decimal nearer to zero is 0 as a double
_LARGEST: Final = "1e308"  # one further away has no double here
_TEXTS: Final = frozenset({"text", "varchar", "bpchar"})


@final
class Postgres(Dialect):
    """See `Dialect`. Sums are NUMERIC, texts are compared by their bytes (the collation "C")."""

    name = "Postgres"
    sends_values = True

    @property
    def functions(self) -> Mapping[str, Writer]:
        """Those that mean the same; loaded for calls only."""
        from noisegate.sources.postgres.functions import WRITERS  # noqa: PLC0415

        return WRITERS

    def text(self, query: exp.Expr) -> str:
        """With its own types, collations, null-safe equality and quotients."""
        held = exp.Paren(this=query)  # so that the whole of it can be replaced, too
        for quotient in reversed(list(held.find_all(exp.IntDiv))):
            if not any(kind.this.value in _NUMERIC for kind in quotient.find_all(exp.DataType)):
                quotient.replace(doubles.whole_quotient(quotient.this, quotient.expression))
        found = str(held.this.transform(_spoken, copy=False).sql(dialect="postgres", copy=False))
        if "\x00" in found:
            raise Unsupported(
                "A text has a NUL, which Postgres does not store.", fix="Leave it out.", about="nul"
            )
        return found

    def read_as(self, column: Column, stored: str, value: exp.Expr) -> exp.Expr:
        """Every stored value has a result: no cast here can fail."""
        kind = column.kind
        if stored == "numeric" and kind is Kind.NUMBER:
            return _double(value)
        if KIND_OF[stored] is Kind.NUMBER and kind is Kind.INTEGER:
            return _whole(value, exact=stored == "numeric")
        if kind is Kind.BOOLEAN and stored != "bool":
            return exp.paren(exp.NEQ(this=value, expression=exp.Literal.number(0)))
        if stored == "timestamptz":
            value = exp.paren(exp.AtTimeZone(this=value, zone=exp.Literal.string("UTC")))
        if stored == "date" and kind is Kind.TIMESTAMP:  # which has fewer years
            first, last = (cast(exp.Literal.string(d), "DATE") for d in _YEARS)
            return case((within(value, first, last), cast(value.copy(), kind)))
        return _short(value, kind) if stored in _TEXTS else cast(value, kind)

    def is_narrow(self, column: Column, stored: str) -> bool:  # noqa: ARG002
        """Keys are compared with lists of one type."""
        return False

    def owner(self, value: exp.Expr, types: set[str]) -> exp.Expr:
        """A whole number where every table has them, else text; one that is too long is no id."""
        if types <= WHOLE_TYPES:
            return cast(value, "BIGINT")
        return _short(cast(value, Kind.TEXT), Kind.TEXT)

    def finite(self, value: exp.Expr) -> exp.Expr:
        """Below infinity: NaN comes after it."""
        return doubles.finite(value)

    def can_be_key(self, value: exp.Expr, kind: Kind) -> exp.Expr:
        """Texts have no NUL; a whole number as far as its negative."""
        if kind is not Kind.INTEGER:
            return exp.true()
        missing = exp.Is(this=value.copy(), expression=exp.null())
        fits = exp.GTE(this=value.copy(), expression=whole(-WHOLE_MAX))
        return exp.paren(exp.or_(missing, fits, copy=False))

    def times(self, value: exp.Expr, factor: exp.Expr) -> exp.Expr:
        """A product that would round to zero is 0."""
        return doubles.multiplied(value, factor, safe=True, coarse=False)

    def rounded(self, value: exp.Expr) -> exp.Expr:
        """Its own ROUND takes halves to even."""
        return doubles.rounded(value)

    def on_grid(self, value: exp.Expr) -> exp.Expr:
        """Whole already."""
        return cast(value, "BIGINT")

    def wide(self, value: exp.Expr) -> exp.Expr:
        """By way of BIGINT: a double becomes a decimal of 15 digits otherwise."""
        most = number(Fraction((1 << 63) - 1024))  # the last double below
        return cast(cast(call("LEAST", value, most), "BIGINT"), "HUGEINT")

    def narrowed(self, total: exp.Expr) -> exp.Expr:
        """Sums are NUMERIC."""
        inside = within(total, whole(-WHOLE_MAX - 1), whole(WHOLE_MAX))
        return case((inside, cast(total.copy(), "BIGINT")))

    def extreme(self, value: exp.Expr, kind: Kind, *, least: bool) -> exp.Expr:
        """Of conditions by AND and OR."""
        if kind is Kind.BOOLEAN:
            return call("BOOL_AND" if least else "BOOL_OR", value)
        return (exp.Min if least else exp.Max)(this=value)

    def distinct(self, value: exp.Expr, *, window: bool) -> exp.Expr:
        """Not in windows."""
        if window:
            raise self.refusal("COUNT(DISTINCT …) OVER (…)")
        return exp.Count(this=exp.Distinct(expressions=[value]))

    def sha256(self, text: exp.Expr) -> exp.Expr:
        """Of its bytes; compared by its bytes."""
        digest = call("SHA256", call("CONVERT_TO", text, exp.Literal.string("UTF8")))
        return cast(call("ENCODE", digest, exp.Literal.string("hex")), "VARCHAR")

    def choice(self, values: Sequence[exp.Expr], owner: exp.Expr) -> exp.Expr:
        """Its own hash of the row that they make: equal values, such as both zeros, have one."""
        return call("HASH_RECORD_EXTENDED", call("ROW", owner, *values), whole(0))

    def with_heads(self, query: exp.Select, heads: Callable[[exp.Expr], exp.Expr]) -> exp.Select:
        """By their place in an order."""
        return with_heads(query, heads)


POSTGRES: Final = Postgres()
_YEARS: Final = ("0001-01-01", "9999-12-31")


def _short(value: exp.Expr, kind: Kind) -> exp.Expr:
    """A text, if it is short: 1 GB in a later step would be an error, and so a row would tell.

    The server knows how many bytes there are without reading them.
    """
    size = call("OCTET_LENGTH", value)
    return case((exp.LTE(this=size, expression=whole(TEXT_MAX)), cast(value.copy(), kind)))


def _double(value: exp.Expr) -> exp.Expr:
    """A decimal as the nearest double: 0 where it is tiny, NULL where it is too large, or NaN."""
    tiny = within(value, _decimal(f"-{_SMALLEST}"), _decimal(_SMALLEST))
    held = within(value.copy(), _decimal(f"-{_LARGEST}"), _decimal(_LARGEST))
    return case((tiny, number(0)), (held, cast(value.copy(), Kind.NUMBER)))


def _whole(value: exp.Expr, *, exact: bool) -> exp.Expr:
    """A stored number as BIGINT, NULL beyond it."""
    if exact:
        ends: tuple[exp.Expr, exp.Expr] = whole(-WHOLE_MAX - 1), whole(WHOLE_MAX)
        inside: exp.Expr = within(value, *ends)
    else:
        above = exp.GTE(this=value, expression=number(-(1 << 63)))
        inside = exp.paren(and_(above, exp.LT(this=value.copy(), expression=doubles.power(63))))
    return case((inside, cast(value.copy(), "BIGINT")))


def _decimal(text: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build("DECIMAL"))


def _spoken(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.TryCast):
        raise Bug("A cast that may fail has no words here.", fix="Please report the question.")
    if isinstance(node, exp.DataType) and node.this.value in _NUMERIC:
        return exp.DataType.build("DECIMAL")
    if isinstance(node, exp.NullSafeEQ):  # arrays can be hashed, and NULLs in them are equal
        one, other = (exp.Array(expressions=[side]) for side in (node.this, node.expression))
        return exp.EQ(this=one, expression=other)
    parent = node.parent
    if isinstance(node, exp.Cast) and node.to.this in exp.DataType.TEXT_TYPES:
        if isinstance(parent, exp.Collate):
            return node
        plain = exp.Identifier(this="C", quoted=True)
        return exp.paren(exp.Collate(this=node.copy(), expression=plain))
    return node
