"""Words that engines share whose sums are decimals, and whose doubles overflow to infinity."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from sqlglot import exp

from noisegate.privacy.domain import WHOLE_MAX, Column, Kind
from noisegate.sources.asked import doubles
from noisegate.sources.asked.sampled import with_heads
from noisegate.sources.writing.dialect import TEXT_MAX, Dialect
from noisegate.sources.writing.words import binary, call, case, cast, number, whole, within

WHOLE_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
# Stored types by kind (a decimal's without its digits), and what each may be declared as.
KIND_OF: Final = {
    **dict.fromkeys(WHOLE_TYPES, Kind.INTEGER),
    **dict.fromkeys(("float", "double", "decimal"), Kind.NUMBER),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), Kind.TIMESTAMP),
    "string": Kind.TEXT,
    "boolean": Kind.BOOLEAN,
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
_YEARS: Final = ("0001-01-01", "9999-12-31")


class DecimalDialect(Dialect):
    """See `Dialect`. Sums are DECIMAL(38, 0), times have no zone, texts are compared by bytes."""

    # A numeric result of these is NaN or infinite where one of so many leading arguments is.
    keeps_spoilt = {"add": 2, "subtract": 2, "multiply": 2, "negate": 1, "abs": 1}  # noqa: RUF012
    spoils = frozenset({"add", "subtract", "multiply", "divide", "int_divide", "modulo", "exp",
                        "power", "bin"})  # fmt: skip
    finds_places = False  # of a value in a short list

    def read_as(self, column: Column, stored: str, value: exp.Expr) -> exp.Expr:
        """Every stored value has a result: no cast here can fail."""
        kind = column.kind
        if kind is Kind.NUMBER:
            return doubles.one_zero(cast(value, kind))
        if kind is Kind.INTEGER and stored == "decimal":
            return cast(call("ROUND", value), kind, may_fail=True)
        if kind is Kind.INTEGER and KIND_OF[stored] is Kind.NUMBER:
            return doubles.whole_of(cast(value, Kind.NUMBER))
        if kind is Kind.BOOLEAN and stored != "boolean":
            return exp.paren(exp.NEQ(this=value, expression=exp.Literal.number(0)))
        if stored == "date" and kind is Kind.TIMESTAMP:  # which has fewer years
            first, last = (cast(exp.Literal.string(day), "DATE") for day in _YEARS)
            return case((within(value, first, last), cast(value.copy(), kind)))
        return _short(value) if stored == "string" else cast(value, kind)

    def is_narrow(self, column: Column, stored: str) -> bool:  # noqa: ARG002
        """Keys are compared with lists of one type."""
        return False

    def owner(self, value: exp.Expr, types: set[str]) -> exp.Expr:
        """A whole number where every table has them, else text; one that is too long is no id."""
        if types <= WHOLE_TYPES:
            return cast(value, "BIGINT")
        return _short(cast(value, Kind.TEXT))

    def finite(self, value: exp.Expr) -> exp.Expr:
        """Between the infinities."""
        return doubles.finite(value)

    def can_be_key(self, value: exp.Expr, kind: Kind) -> exp.Expr:
        """A text that can be told, a number as far as its negative."""
        if kind is Kind.TEXT:
            fits = self.is_told(value)
        elif kind is Kind.INTEGER:
            fits = exp.GTE(this=value.copy(), expression=whole(-WHOLE_MAX))
        else:
            return exp.true()
        missing = exp.Is(this=value.copy(), expression=exp.null())
        return exp.paren(exp.or_(missing, exp.paren(fits), copy=False))

    def is_told(self, value: exp.Expr) -> exp.Expr:
        """Whether a text has no NUL."""
        place = call("INSTR", value.copy(), call("CHR", exp.Literal.number(0)))
        return exp.EQ(this=place, expression=exp.Literal.number(0))

    @abstractmethod
    def split(self, texts: exp.Expr, size: int) -> exp.Select:
        """Rows (i, x) of so many texts between commas: of one constant, where VALUES has many."""

    def times(self, value: exp.Expr, factor: exp.Expr) -> exp.Expr:
        """Products of doubles do not fail."""
        return exp.Mul(this=value, expression=factor)

    def rounded(self, value: exp.Expr) -> exp.Expr:
        """Its ROUND is so."""
        return doubles.rounded(value)

    def on_grid(self, value: exp.Expr) -> exp.Expr:
        """Whole already."""
        return cast(value, "BIGINT")

    def wide(self, value: exp.Expr) -> exp.Expr:
        """By way of BIGINT, which CEIL makes anyhow on some."""
        most = number(Fraction((1 << 63) - 1024))  # the last double below
        return cast(cast(call("LEAST", cast(value, "DOUBLE"), most), "BIGINT"), "HUGEINT")

    def narrowed(self, total: exp.Expr) -> exp.Expr:
        """Tried."""
        inside = within(total, whole(-WHOLE_MAX - 1), whole(WHOLE_MAX))
        return case((inside, cast(total.copy(), "BIGINT", may_fail=True)))

    def added(self, value: exp.Expr) -> exp.Expr:
        """Under a name that is not made a sum of decimals."""
        return call("SUM", value)

    def extreme(self, value: exp.Expr, kind: Kind, *, least: bool) -> exp.Expr:  # noqa: ARG002
        """Of any kind."""
        return (exp.Min if least else exp.Max)(this=value)

    def distinct(self, value: exp.Expr, *, window: bool) -> exp.Expr:
        """Not in windows."""
        if window:
            raise self.refusal("COUNT(DISTINCT …) OVER (…)")
        return exp.Count(this=exp.Distinct(expressions=[value]))

    def choice(self, values: Sequence[exp.Expr], owner: exp.Expr) -> exp.Expr:
        """SHA-256 of the owner and the values, each as text, between bars."""
        texts = [cast(each, "VARCHAR") for each in (owner, *values)]
        return self.sha256(call("CONCAT_WS", exp.Literal.string("|"), *texts))

    def with_heads(self, query: exp.Select, heads: Callable[[exp.Expr], exp.Expr]) -> exp.Select:
        """By their place in an order: a task that runs again finds the same."""
        return with_heads(query, heads)


def _short(value: exp.Expr) -> exp.Expr:
    size = call("OCTET_LENGTH", value)
    return case((exp.LTE(this=size, expression=exp.Literal.number(TEXT_MAX)), value.copy()))


def same_or_missing(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Equal, or both missing, by plain equality: of keys, whose texts are equal where they are."""
    texts = [exp.Coalesce(this=cast(each, "VARCHAR"), expressions=[exp.Literal.string("")])
             for each in (one, other)]  # fmt: skip
    missing = [exp.paren(exp.Is(this=each.copy(), expression=exp.null())) for each in (one, other)]
    return exp.paren(exp.and_(binary(exp.EQ, *texts), binary(exp.EQ, *missing), copy=False))
