"""What each part of a table has been asked inside one allowance, and what that has lost so far.

Losses are kept, not added up anew: a question costs the same work however many came before.

Claim: `PartAccount.loss` is, for each account, the price of `PartAccount.used()` before rounding,
    to the last digit. Adjacency: add/remove one unit, as for that event.
Why: every accountant reads steps in sequence as a sum and parallel ones as a componentwise maximum
    (`accounting/rules.py`), of exact fractions. One more summand adds itself, whatever the order. A
    maximum is at least as large as before where one part rose, and then only that part can have
    passed it; where a part fell, all are compared. So what changes lies on the way up to the whole.
    The ledger prices `used` as one event when the allowance closes, and gives nothing back if that
    is more than was reserved. Rounding: none.

A recipe refines where it pays: it asks a few cells more closely than others, round after round, and
which ones follows from the answers. What one unit loses is then what its own cells were asked.

Claim: questions about the cells of one tally, chosen adaptively, are together the event of the cell
    that was asked most. Adjacency: add/remove one unit, which moves the cells by v, ‖v‖₁ ≤ Δ.
Why: given the answers so far, a block A with geometric noise of scale s has a log-ratio of at most
    ‖A v‖₁ / s ≤ Σ_j |v_j| ‖A_j‖₁ / s. The log-ratio of all answers is the sum over the rounds, at
    most Σ_j |v_j| ε_j, where ε_j adds up ‖A_j‖₁ / s over the blocks; that is at most Δ max ε_j,
    whatever was chosen, since the sum is held down at every moment. With Gaussian noise a round has
    ρ ≤ Σ_b (Σ_j |v_j| ‖A_bj‖₂)² / 2σ_b² ≤ Δ² Σ_j p_j Σ_b ‖A_bj‖₂² / 2σ_b², p = |v| / ‖v‖₁, by
    Jensen; ρ adds up along the unit's own cells, and a bound on the sum that holds at every moment
    is a filter [FZ21]. Rounding: none; sums are exact fractions.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.rules import Pair, added, largest
from noisegate.curator.measurement import Measurement
from noisegate.errors import Bug
from noisegate.frozen import dataclass, field
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import Key
from noisegate.privacy.event import (
    DeclaredEvent,
    DeclaredZCDPEvent,
    Event,
    NothingEvent,
    Parallel,
    Sequential,
)

Cost: TypeAlias = tuple[Fraction, Fraction]  # ε, ρ


@final
@dataclass(frozen=True, slots=True, eq=False)
class CellAccount:
    """The costs of all cells. Cells with one history share an entry of ``costs``."""

    entries: NDArray[np.int64]
    costs: tuple[Cost, ...]

    @classmethod
    def empty(cls, cells: int) -> "CellAccount":
        """Nothing has been asked."""
        return cls(np.zeros(cells, np.int64), ((Fraction(0), Fraction(0)),))

    def after(self, measurement: Measurement) -> "CellAccount":
        """The account with one more measurement on it."""
        found, query = self, measurement.query
        if query.asks != "combinations":
            raise Bug("This is not a question about groups of cells.", fix="Please report it.")
        for block, noise in zip(query.combinations.blocks, measurement.mechanisms, strict=True):
            one, two = block.columns
            if type(noise) is Geometric:
                found = found.plus(one, (query.moved / noise.scale, Fraction(0)))
            elif type(noise) is DiscreteGaussian:
                found = found.plus(two, (Fraction(0), query.moved**2 / (2 * noise.variance)))
            else:
                raise Bug("The account cannot be kept for this noise.", fix="Please report it.")
        return found

    def plus(self, norms: NDArray[np.int64], price: Cost) -> "CellAccount":
        """Each cell pays the price times its norm."""
        kinds, kind = _numbered(norms)
        steps = [(norm * price[0], norm * price[1]) for norm in kinds.tolist()]
        pairs, entries = _numbered(self.entries * kinds.size + kind)
        costs = []
        for pair in pairs.tolist():
            (pure, rho), (more, more_rho) = self.costs[pair // kinds.size], steps[pair % kinds.size]
            costs.append((pure + more, rho + more_rho))
        return CellAccount(entries, tuple(costs))

    def event(self) -> Event:
        """What all of it is, for accounting."""
        pure, rho = (max(cost[place] for cost in self.costs) for place in (0, 1))
        events: list[Event] = []
        if pure:
            events.append(DeclaredEvent(epsilon=pure, delta=Fraction(0)))
        if rho:
            events.append(DeclaredZCDPEvent(rho=rho))
        if len(events) == 1:
            return events[0]
        return Sequential(events=tuple(events)) if events else NothingEvent()


def _numbered(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different values, rising, and which of them each is. Small ones need no sorting."""
    most = int(values.max(initial=0))
    if most >= values.size:
        kinds, kind = np.unique(values, return_inverse=True)
        return kinds, kind.ravel().astype(np.int64)
    seen = np.bincount(values, minlength=most + 1) > 0
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


Losses: TypeAlias = Mapping[str, Pair]  # by account
Step: TypeAlias = "tuple[PartAccount | Cut, Losses]"


@final
@dataclass(eq=False, slots=True)
class PartAccount:
    """What has been asked about one part, and the cuts below it. Only the allowance touches it."""

    where: tuple[tuple[str, Key], ...]
    loss: Losses
    cut: "Cut | None" = None  # that it is a part of
    events: list[Event] = field(default_factory=list)
    cells: dict[str, tuple[CellAccount, Losses]] = field(default_factory=dict)  # by the tally
    cuts: "list[Cut]" = field(default_factory=list)
    closed: bool = False  # of the whole: kept here, so that copies of an allowance close with it

    def used(self) -> Event:
        """All of it, as one event."""
        asked = [account.event() for account, _ in self.cells.values()]
        cuts = [Parallel(events=tuple(part.used() for part in cut.parts)) for cut in self.cuts]
        events = (*self.events, *asked, *cuts)
        return Sequential(events=events) if events else NothingEvent()

    def after(self, more: Losses, less: Losses) -> list[Step]:
        """What this and all above it will have lost with ``more`` for ``less``; last the whole."""
        part, loss = self, _changed(self.loss, more, less)
        found: list[Step] = [(part, loss)]
        while (cut := part.cut) is not None:
            dearest = cut.dearest(part, loss)
            part, loss = cut.of, _changed(cut.of.loss, dearest, cut.loss)
            found += [(cut, dearest), (part, loss)]
        return found


@final
@dataclass(eq=False, slots=True)
class Cut:
    """Disjoint parts of a part. Its loss is that of the dearest."""

    of: PartAccount
    loss: Losses
    parts: tuple[PartAccount, ...] = ()

    def dearest(self, part: PartAccount, loss: Losses) -> Losses:
        """The componentwise maximum once ``part`` has lost ``loss``."""
        if _each(largest, loss, part.loss) == loss:  # it fell nowhere
            return _each(largest, loss, self.loss)
        return _each(largest, loss, *(each.loss for each in self.parts if each is not part))


def _changed(loss: Losses, more: Losses, less: Losses) -> Losses:
    return _each(added, loss, more, _each(_negative, less))


def _negative(pairs: list[Pair]) -> Pair:
    ((amount, delta),) = pairs
    return -amount, -delta


def _each(rule: Callable[[list[Pair]], Pair], *losses: Losses) -> Losses:
    return {name: rule([each[name] for each in losses]) for name in losses[0]}
