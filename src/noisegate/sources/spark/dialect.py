"""The words of Spark SQL, from version 4 on; also those of servers that speak Spark Connect."""

from collections.abc import Mapping
from typing import Final, final

from sqlglot import exp

from noisegate.sources.asked.decimals import widened
from noisegate.sources.asked.dialect import DecimalDialect
from noisegate.sources.writing.dialect import Writer
from noisegate.sources.writing.words import as_, call, col


class Spark(DecimalDialect):
    """See `Dialect`. Its ROUND goes by way of decimals, which a half is among."""

    name = "Spark"
    correlates = False
    finds_places = True

    @property
    def functions(self) -> Mapping[str, Writer]:
        """Those that mean the same; loaded for calls only."""
        from noisegate.sources.spark.functions import WRITERS  # noqa: PLC0415

        return WRITERS

    def text(self, query: exp.Expr) -> str:
        """With its own types."""
        found = widened(query)
        for each in found.find_all(exp.TryCast):
            each.set("safe", 1)  # else it is written as a plain cast
        return found.sql(dialect="spark", copy=False)

    def split(self, texts: exp.Expr, size: int) -> exp.Select:  # noqa: ARG002
        """By a function of rows."""
        parts = call("POSEXPLODE", call("SPLIT", texts, exp.Literal.string(",")))
        rows = exp.select(parts).subquery("p", copy=False)
        return exp.select(as_(col("pos", "p"), "i"), as_(col("col", "p"), "x")).from_(rows)

    def is_told(self, value: exp.Expr) -> exp.Expr:
        """UTF-8 without NUL: its texts may be any bytes."""
        return exp.and_(super().is_told(value), call("IS_VALID_UTF8", value.copy()), copy=False)

    def sha256(self, text: exp.Expr) -> exp.Expr:
        """Of its bytes."""
        return call("SHA2", text, exp.Literal.number(256))


@final
class OnStages(Spark):
    """Of Spark itself: one aggregation less is one stage of a job less. Sail has no such stages."""

    places_rows = True


STAGED: Final = OnStages()
SPARK: Final = Spark()
