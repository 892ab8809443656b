"""Numbers that a question about rows needs: measured first, then written into the question.

What is written is a noisy number, which is public; so the question is then one like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any, final

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.desk.terms.price import share_of
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.domain import WHOLE_MAX, Kind
from noisegate.privacy.release import Release
from noisegate.sql.outer.margins import HalfWidths
from noisegate.sql.question import Question

if TYPE_CHECKING:
    import pyarrow as pa


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """SQL as it was read, with the numbers that are measured before it."""

    sql: str
    question: Question
    firsts: "tuple[First, ...]" = ()

    @property
    def blocks(self) -> int:
        """How many blocks are measured, with those of the numbers."""
        return len(self.question.blocks) + sum(each.reading.blocks for each in self.firsts)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """A sub-query that gives a number, and the number, made up or as it was measured.

    ``terms`` are those of its own: a share of the price.
    """

    reading: Reading
    value: Expression
    is_known: bool = False
    shown: str = ""
    releases: tuple[Release, ...] = ()
    terms: Terms = field(default_factory=Terms)
    price: Fraction = Fraction(0)

    @property
    def sql(self) -> str:
        """The sub-query."""
        return self.reading.sql

    @property
    def words(self) -> str:
        """What the answer says about it."""
        if not self.reading.blocks:
            return f"({self.sql}) is about public rows, exact and free."
        used = f"{self.shown} is used" if self.is_known else "its noisy value is used"
        return (
            f"({self.sql}) is measured first, for ε = {float(self.price):g}, and {used}: the ± is "
            "about the question with that number, and does not include the number's own error."
        )


def shared(
    reading: Reading, terms: Terms, asked: Callable[[Fraction], Fraction], *, rho: bool
) -> tuple[Reading, Terms]:
    """The price in equal parts for all blocks: those of the numbers, and those of the question.

    ``asked`` says for which ε a part could be asked for.
    """
    count, own = reading.blocks, len(reading.question.blocks)
    if count == own:
        return reading, terms
    if terms.epsilon is None:
        raise SpecError(
            "A sub-query that is measured first is paid for with a share of ε.",
            fix="Give epsilon, not an error.",
        )

    def of(blocks: int) -> Terms:
        share = Fraction(blocks, count)
        step = share_of(terms.epsilon or Fraction(0), share, rho=rho)
        return replace(terms, epsilon=step, delta=(terms.delta or 0) * share)

    def first(each: First) -> First:
        own = of(each.reading.blocks)
        return replace(each, terms=own, price=asked(own.epsilon or Fraction(0)))

    return replace(reading, firsts=tuple(map(first, reading.firsts))), of(own)


def number_of(table: "pa.Table", widths: HalfWidths | None = None) -> tuple[Expression, str]:
    """The one number of a table as an expression, and as it is shown. No row is NULL."""
    import pyarrow as pa  # noqa: PLC0415

    kind = table.schema.types[0] if table.num_columns == 1 and table.num_rows <= 1 else None
    value = table.column(0)[0].as_py() if kind is not None and table.num_rows else None
    if kind is None or pa.types.is_nested(kind):
        raise Unsupported(
            "A sub-query returns more than one number.", fix="Aggregate its rows to one."
        )
    shown = f"{value} (± {widths[0]:.6g})" if widths and widths[0] is not None else f"{value}"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _double(value), shown
    kinds: list[tuple[Any, Kind]] = [
        (pa.types.is_integer, Kind.INTEGER),
        (pa.types.is_date, Kind.DATE),
        (pa.types.is_timestamp, Kind.TIMESTAMP),
    ]
    found = next((each for is_kind, each in kinds if is_kind(kind)), None)
    if found is None:
        raise Unsupported(
            "A sub-query does not return a number.", fix="Use COUNT or SUM of what it selects."
        )
    usable = isinstance(value, date | datetime) or (
        isinstance(value, int) and abs(value) <= WHOLE_MAX
    )
    return (Literal(value) if usable else Literal(None, found)), shown


def _double(value: Any) -> Expression:  # noqa: ANN401 - whatever Arrow gives
    """A double, as averages and ratios are in SQL; NULL where it has no value."""
    number = None if value is None or not isfinite(value) else Fraction(float(value))
    if number is None:
        return Literal(None, Kind.NUMBER)
    return Call("to_number", (Literal(number),))


def after_paying(refusal: Unsupported) -> Unsupported:
    """A refusal that comes too late to cost nothing."""
    words = "What was measured is paid for and stored: correct the question and ask again, free."
    return Unsupported(refusal.problem, fix=f"{refusal.fix} {words}", about="after-paying")
