"""A digital-goods auction: one public price for all, chosen by the revenue it would have.

Everybody may buy one copy, and copies cost nothing to make. The revenue of a price is the price
times the number of bids of at least that much; one bid changes it by at most the highest price, and
never lowers it [MT07, Sec. 4.1].
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import ClassVar, Final, TypedDict, final

from noisegate.desk.desk import Desk
from noisegate.desk.order import JobOrder
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.privacy.domain import TableDomain
from noisegate.sql.choices.choice import Choice, ChoiceExpected, ChoiceJob, ChoiceOrder, Method
from noisegate.sql.spelling import decimal, table_named

PRICES_MAX: Final = 2000
_FORM: Final = "For example: prices=range(5, 101, 5)."


class AuctionTerms(TypedDict, total=False):
    """What is said beside the column; see `AuctionOrder`."""

    prices: Sequence[Number]
    table: str | None
    where: str | None
    epsilon: Number | None
    method: Method
    rows_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionOrder(JobOrder[Choice, ChoiceExpected]):
    """One price for all, of a public list, whose revenue over the bids is nearly the highest.

    ``column`` holds what each row would pay at most; ``prices`` are the candidates.
    """

    kind: ClassVar[str] = "auction"
    column: str
    prices: Sequence[Number]
    table: str | None = None
    where: str | None = None
    epsilon: Number | None = None
    method: Method = "auto"
    rows_per_unit: int | None = None

    def job(self, desk: Desk) -> ChoiceJob:
        """The choice among prices by their revenue."""
        return self.choice(desk.curator.tables).job(desk)

    def choice(self, tables: Mapping[str, TableDomain]) -> ChoiceOrder:
        """The choice that it is."""
        exact = sorted({positive(price, name="price") for price in self.prices})
        if not 2 <= len(exact) <= PRICES_MAX or len(exact) < len(self.prices):
            raise SpecError(
                f"There are {len(self.prices):,} prices.",
                fix=f"Give at least 2 and at most {PRICES_MAX:,} different prices. {_FORM}",
                about="prices",
            )
        step = _step(exact)
        where = "" if self.where is None else f" WHERE {self.where}"
        bid = f"BIN({self.column}, {decimal(step)})"
        sql = (
            f"SELECT SUM(CASE WHEN {bid} >= price THEN price ELSE 0 END) "  # noqa: S608 - it is read, not run
            f"FROM {table_named(tables, self.table)}{where}"
        )
        return ChoiceOrder(
            sql=sql, candidates={"price": [_shown(price) for price in exact]}, method=self.method,
            epsilon=self.epsilon, rows_per_unit=self.rows_per_unit,
        )  # fmt: skip


def _step(prices: Sequence[Fraction]) -> Fraction:
    """The widest step that all prices are multiples of: bids within one are worth the same."""
    scale = lcm(*(price.denominator for price in prices))
    return Fraction(gcd(*(int(price * scale) for price in prices)), scale)


def _shown(price: Fraction) -> int | float:
    return int(price) if price.denominator == 1 else float(price)
