"""The words of Apache DataFusion."""

from collections.abc import Mapping
from typing import Final, final

from sqlglot import Dialect as Grammar
from sqlglot import exp

from noisegate.sources.asked.decimals import divided, widened
from noisegate.sources.asked.dialect import DecimalDialect, same_or_missing
from noisegate.sources.writing.dialect import Writer
from noisegate.sources.writing.words import as_, call, cast

_BEYOND: Final = "10000-01-01"  # a year of five digits is not read, so this day is a number
_TIME: Final = "CAST(253402300800000000 AS BIGINT)"
_NUMBERS: Final = {
    exp.DType.DATE: "CAST(2932897 AS INT)",
    exp.DType.TIMESTAMP: _TIME,
    exp.DType.TIMESTAMPNTZ: _TIME,
}


class _Grammar(Grammar):
    """Plain SQL, where a missing value comes after all others."""

    NULL_ORDERING = "nulls_are_large"


@final
class DataFusion(DecimalDialect):
    """See `Dialect`. Whole numbers wrap where they overflow, so that none does; texts are UTF-8."""

    name = "DataFusion"
    sends_values = True
    correlates = False

    @property
    def functions(self) -> Mapping[str, Writer]:
        """Those that mean the same; loaded for calls only."""
        from noisegate.sources.datafusion.functions import WRITERS  # noqa: PLC0415

        return WRITERS

    def text(self, query: exp.Expr) -> str:
        """With its own types and division."""
        return _spoken(widened(query)).sql(dialect=_Grammar, copy=False)

    def split(self, texts: exp.Expr, size: int) -> exp.Select:
        """Lists that are unnested side by side are one table."""
        parts = call("STRING_TO_ARRAY", texts, exp.Literal.string(","))
        places = call("RANGE", *map(exp.Literal.number, (0, size)))
        return exp.select(as_(call("UNNEST", places), "i"), as_(call("UNNEST", parts), "x"))

    def sha256(self, text: exp.Expr) -> exp.Expr:
        """Of its bytes."""
        return call("ENCODE", call("SHA256", text), exp.Literal.string("hex"))


DATAFUSION: Final = DataFusion()


def _spoken(query: exp.Expr) -> exp.Expr:
    """The tree in its words. It is used up."""
    held = exp.Paren(this=query)  # so that the whole of it can be replaced, too
    for quotient in reversed(list(held.find_all(exp.IntDiv))):
        quotient.replace(divided(quotient))
    for same in list(held.find_all(exp.NullSafeEQ)):
        # it takes this for plain equality where several tables are joined so (55.0)
        same.replace(same_or_missing(same.this, same.expression))
    for place in list(held.find_all(exp.Window)):
        if isinstance(place.this, exp.RowNumber | exp.Rank | exp.DenseRank):
            place.replace(cast(place.copy(), "BIGINT"))  # else unsigned, which spreads
    for each in held.find_all(exp.Cast):
        if each.to.this in _NUMBERS and each.this == exp.Literal.string(_BEYOND):
            each.set("this", exp.maybe_parse(_NUMBERS[each.to.this]))
    for kind in list(held.find_all(exp.DataType)):
        if kind.this in _NUMBERS and kind.this is not exp.DType.DATE:
            kind.replace(exp.DataType.build("TIMESTAMP(6)"))  # that of nanoseconds has few years
    found: exp.Expr = held.this
    return found
