"""DuckDB's own words: the reference that other engines are held to."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB as Words

from noisegate.algebra.expression import Expression, Schema
from noisegate.privacy.domain import WHOLE_MAX, Column, Kind
from noisegate.sources.writing import expressions
from noisegate.sources.writing.dialect import Dialect, Writer
from noisegate.sources.writing.words import TYPES, call, cast, whole

WHOLE_TYPES: Final = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
})  # fmt: skip
_PLAIN: Final = re.compile(r"[0-9]+\.[0-9]+")
_WIDE: Final = re.compile(r"-?([1-9][0-9]{10,17}|[1-8][0-9]{18})")  # beyond 32 bits, within 64


def _cast(words: Words.Generator, made: exp.Cast) -> str:
    """To the usual types without a look at all others, which takes longer than the rest."""
    name, value, tried = made.args["to"].this.value, made.this, isinstance(made, exp.TryCast)
    if name == "DOUBLE" and isinstance(value, exp.Literal) and _PLAIN.fullmatch(value.name):
        return f"{value.name}e0"  # the same double, by the parser
    if name not in ("BIGINT", "DOUBLE", "INT128"):
        return str(words.trycast_sql(made) if tried else words.cast_sql(made))
    text = str(words.sql(made, "this"))
    is_one = name == "BIGINT" and _WIDE.fullmatch(text)  # by itself
    return text if is_one else f"{'TRY_' if tried else ''}CAST({text} AS {name})"


@final
class DuckDB(Dialect):
    """See `Dialect`. Trees are in its words already."""

    name = "DuckDB"
    compares_raised = True
    octets = "STRLEN"
    verbatim = True
    # A numeric result of these is NaN or infinite where one of so many leading arguments is.
    keeps_spoilt = {  # noqa: RUF012 - never changed
        "add": 2, "subtract": 2, "multiply": 2, "divide": 1, "int_divide": 1, "modulo": 1,
        "negate": 1, "abs": 1, "floor": 1, "ceil": 1, "trunc": 1, "sqrt": 1, "ln": 1, "log10": 1,
        "log2": 1, "bin": 1,
    }  # fmt: skip
    # Their own results may be so, where their domain says that they make NULLs.
    spoils = frozenset({
        "add", "subtract", "multiply", "divide", "int_divide", "modulo", "exp", "power", "bin",
        "to_number",
    })  # fmt: skip

    @property
    def functions(self) -> Mapping[str, Writer]:
        """All of the list; loaded for calls only."""
        from noisegate.sources.duckdb.functions import WRITERS  # noqa: PLC0415

        return WRITERS

    def text(self, query: exp.Expr) -> str:
        """As it is. Nothing here inherits from sqlglot: where that is compiled, it must not."""
        words = Words.Generator(dialect="duckdb", comments=False)
        words._dispatch = {**words._dispatch, exp.Cast: _cast, exp.TryCast: _cast}  # noqa: SLF001
        return str(words.generate(query, copy=False))

    def read_as(self, column: Column, stored: str, value: exp.Expr) -> exp.Expr:
        """By a cast that is tried."""
        engine = TYPES[column.kind]
        if stored == engine:
            return value
        safe = column.kind is Kind.INTEGER and stored in WHOLE_TYPES
        return cast(value, engine, may_fail=not safe)

    def is_narrow(self, column: Column, stored: str) -> bool:
        """Whole numbers that are only widened on reading."""
        return column.kind is Kind.INTEGER and column.between is None and stored in WHOLE_TYPES

    def owner(self, value: exp.Expr, types: set[str]) -> exp.Expr:
        """A whole number where every table has them, else text."""
        return cast(value, "BIGINT" if types <= WHOLE_TYPES else "VARCHAR")

    def finite(self, value: exp.Expr) -> exp.Expr:
        """NULL of NULL."""
        return call("ISFINITE", value)

    def can_be_key(self, value: exp.Expr, kind: Kind) -> exp.Expr:
        """A text without NUL, a number as far as its negative."""
        if kind is Kind.TEXT:
            nul = call("CHR", exp.Literal.number(0))
            fits: exp.Expr = exp.not_(call("CONTAINS", value.copy(), nul))
        elif kind is Kind.INTEGER:
            fits = exp.GTE(this=value.copy(), expression=whole(-WHOLE_MAX))
        else:
            return exp.true()
        return exp.or_(exp.Is(this=value.copy(), expression=exp.null()), fits, copy=False)

    def times(self, value: exp.Expr, factor: exp.Expr) -> exp.Expr:
        """Products of doubles do not fail."""
        return exp.Mul(this=value, expression=factor)

    def rounded(self, value: exp.Expr) -> exp.Expr:
        """Its ROUND is so."""
        return exp.func("round", value)

    def on_grid(self, value: exp.Expr) -> exp.Expr:
        """Tried, since a statement that adds doubles may be about too many of them."""
        return cast(value, "BIGINT", may_fail=True)

    def wide(self, value: exp.Expr) -> exp.Expr:
        """Its 128 bits have room for all that are used."""
        return cast(value, "HUGEINT")

    def narrowed(self, total: exp.Expr) -> exp.Expr:
        """By a cast that is tried."""
        return exp.TryCast(this=total, to=exp.DataType.build("BIGINT"))

    def extreme(self, value: exp.Expr, kind: Kind, *, least: bool) -> exp.Expr:  # noqa: ARG002
        """Of any kind."""
        return (exp.Min if least else exp.Max)(this=value)

    def distinct(self, value: exp.Expr, *, window: bool) -> exp.Expr:  # noqa: ARG002
        """Windows count different values, too."""
        return exp.Count(this=exp.Distinct(expressions=[value]))

    def sha256(self, text: exp.Expr) -> exp.Expr:
        """Its own function."""
        return exp.Anonymous(this="sha256", expressions=[text])

    def choice(self, values: Sequence[exp.Expr], owner: exp.Expr) -> exp.Expr:
        """Its own hash, which is quick; only which values are kept depends on it."""
        return exp.func("hash", *values, owner)

    def with_heads(self, query: exp.Select, heads: Callable[[exp.Expr], exp.Expr]) -> exp.Select:
        """By QUALIFY."""
        found = query.copy()
        found.set("qualify", exp.Qualify(this=heads(exp.Window(this=exp.RowNumber()))))
        return found


DUCKDB: Final = DuckDB()


def write(expression: Expression, schema: Schema, field: Callable[[str], exp.Expr]) -> exp.Expr:
    """The expression in DuckDB's words, of the type of its kind; ``field`` writes a field."""
    return expressions.write(expression, schema, field, DUCKDB)
