"""A model of the cells of a grid as a released table."""

from dataclasses import dataclass
from typing import final

from noisegate.curator.curator import Curator
from noisegate.desk.price import Price
from noisegate.desk.rules import Rules
from noisegate.exact import Number
from noisegate.privacy.event import Event
from noisegate.privacy.guarantee import guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.estimate import Floats, whole
from noisegate.releases.grid import Grid
from noisegate.releases.making import Making
from noisegate.releases.table import TableRelease


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CellsRelease:
    """What there is to say about a model besides its numbers.

    ``used`` is what it took, ``promised`` what is promised of that, and ``known`` what it knew
    from elsewhere may have lost.
    """

    method: str
    price: Price
    used: Event
    promised: Event
    known: ApproxDP
    free: bool
    words: tuple[str, ...]
    question: str
    request_id: str

    def table(self, curator: Curator, rules: Rules, grid: Grid, cells: Floats) -> TableRelease:
        """The numbers, in grains, as a table."""
        values = cells.reshape(grid.shape) * float(grid.grain)
        making = Making(
            method=self.method,
            options={},
            workload="cells",
            price=self.price,
            moved=grid.moved,
            grain=grid.grain,
            whole=grid.whole,
            signed=grid.signed,
        )
        return TableRelease(
            sql=grid.sql,
            axes=grid.axes,
            values=whole(values) if grid.whole else values,
            value=grid.value,
            making=making,
            words=(*self.words, *grid.caveats),
            cost=ApproxDP(0) if self.free else curator.loss_of(self.used),
            remaining=curator.remaining(),
            guarantee=guarantee_of(curator.loss_of(self.promised) + self.known, grid.query.tables),
            question=self.question,
            request_id=self.request_id,
            practice=rules.practice,
            log=curator.ledger.log(),
        )


def price_of(curator: Curator, rules: Rules, given: Number | None) -> Price:
    """An ε as the account adds it up."""
    accountant = curator.ledger.balance(curator.account).accountant
    return Price.of(rules.price(given), accountant=accountant, sample=rules.sample)
