"""What a bound loses of sums, as draws: how far off groups, weighted sums and averages may be.

`tails.py` draws what is lost of all rows. The model of how that spreads over groups is that large
units do so about as all rows do, each unit by itself.
"""

from fractions import Fraction
from math import log, log10
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass, replace
from noisegate.sql.estimates.unseen import drawn, even_laplace, even_normal
from noisegate.sql.laws.laws import Floats

# How far large units differ from others; and where norms say that units are in one group, or in
# all alike. By how much what aeroplanes lose differs from their rows by group
# (`bench/truth_worlds.py`, caps that lose .2 to .5): .02 by month, .3 by hour, .2 to .4 by origin,
# .5 to .6 by destination, 1 by carrier; and averages of large ones differ from others as much. Of
# made-up tables it is 0.
STRANGERS, STRANGE_ONE, STRANGE_ALL = 0.33, 0.6, 0.15
_SHARES: Final = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 48)])  # between: a straight line
_NOISE: Final = 39  # the dimension of draws of noise: others are those of units and groups
_FEW: Final = 0.01  # of all draws: those that quantiles are read off
_TWO: Final = 1.96  # standard deviations at 95 %
_AROUND: Final = (0.15, 0.3, 0.6, 1.2, 2.4, 4.8)  # of how far draws are off their middle, usually
_LEAST: Final = 100  # draws that are to count when they are told what was measured
_STANDS: Final = 3.0  # scales of noise from which on a sum stands clear of it
_SURE: Final = Fraction(95, 100)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loss:
    """What a bound ``cap`` loses, in rows' worth: ``kept`` and ``lost`` add up to all there is.

    ``drawn`` are even draws of what may be lost, and ``lost`` is their median. ``squares`` are Σ e²
    over units that lose e, in each draw: how unevenly they may spread over groups. ``near``: what
    part of the distance between draws and their median bars hold, beside the doubt ``within`` bins:
    of a draw with a hidden group of units, all of it if the look is coarse. ``held`` are what is
    kept in each draw. ``about``: what is lost, in place of the median.
    """

    cap: float
    kept: float
    drawn: Floats
    squares: Floats
    unlike: float = STRANGERS
    near: Floats | float = 1.0
    within: float = 0.0
    held: Floats | None = None
    about: float | None = None

    @property
    def lost(self) -> float:
        """What is lost, about: as likely less as more, unless another number was shown."""
        return median(self.drawn) if self.about is None else self.about

    @property
    def factor(self) -> float:
        """What bounded sums are multiplied by, so that they estimate all there is."""
        return 1 + self.lost / self.kept

    @property
    def share(self) -> float:
        """What is lost, of all there is."""
        return self.lost / (self.kept + self.lost)

    def given(self, kept: float, noise: float, *, about: float) -> "Loss":
        """The same, if ``kept`` is what was measured, with Laplace noise of about such a scale.

        What is lost is still taken to be ``about`` what it was: noise that adds to a sum speaks for
        a longer tail, so both would be off to the same side.

        Why: each draw says what a bound keeps of it and what it loses. By Bayes' rule those that
            keep about what was measured are the likelier ones. So a bounded sum tells how much lies
            between the last clear bin and the bound, which the look alone leaves to the model, and
            by that how a tail goes on. A draw stands for others around it, as far around as it
            takes to leave the weight of `_LEAST`; where all are far away, none tells more than
            another. A sum that stands clear of its noise is what is kept, else draws tell more.
        """
        assert self.held is not None  # noqa: S101 - all but those of made-up losses have it
        off, wide = np.abs(self.held - kept), median(np.abs(self.held - median(self.held)))
        for around in _AROUND:
            fit = -off / max(float(np.hypot(noise, around * wide)), 1e-9)
            weight = np.exp(fit - fit.max())
            if weight.sum() ** 2 >= _LEAST * (weight @ weight):
                break
        else:
            fit = np.zeros_like(off)
        at = drawn(fit, off.size)
        held = self.held[at]
        known = kept if kept >= _STANDS * noise else max(median(held), self.kept / 2)
        near = self.near[at] if isinstance(self.near, np.ndarray) else self.near
        return replace(
            self, kept=known, drawn=self.drawn[at], squares=self.squares[at], near=near, held=held,
            about=about,
        )  # fmt: skip

    def off(
        self,
        share: Floats,
        confidence: Fraction,
        *,
        signed: bool = False,
        noise: Floats | float = 0.0,
    ) -> Floats:
        """How far from its share of `lost` a sum may lose, below or above, in rows' worth.

        ``noise`` are half-widths of what is added to it, at this confidence: of Laplace noise,
        about, or of noise with lighter tails. Many groups are read off a curve, and half-widths are
        added in squares, which is more.
        """
        at, off = self._offs(share, signed=signed)
        failure = float(1 - confidence)
        if share.size != at.size:
            alone = _read(share, at, _quantile(np.abs(off), failure))
            return np.hypot(alone, noise)
        return within(off, noise, failure)

    def most(self, share: Floats, confidence: Fraction) -> Floats:
        """How much a sum may lose at most."""
        at, off = self._offs(share, signed=False)
        drawn = np.abs(off + at[:, None] * self.lost)
        return _read(share, at, _quantile(drawn, float(1 - confidence)))

    def ends(
        self, share: Floats, confidence: Fraction, *, signed: bool = False
    ) -> tuple[Floats, Floats]:
        """How far below and how far above, for half of the failure each."""
        at, off = self._offs(share, signed=signed)
        ends = (_quantile(side * off, float(1 - confidence) / 2) for side in (-1, 1))
        down, up = (_read(share, at, np.maximum(end, 0.0)) for end in ends)
        return down, up

    def _offs(self, share: Floats, *, signed: bool) -> tuple[Floats, Floats]:
        """Draws of what sums lose beyond their shares of `lost`, for some shares.

        Why: let each of the units that lose e be in a group by itself with chance p, the group's
            share. What the group loses has mean p Σe and variance p (1 - p) Σe². Large units may be
            unlike others: their odds of being in the group are e^x times those of others, about, x
            normal, which moves p by p (1 - p) x; of all rows nothing is in another group. Sums of
            either sign may lose e or -e for each unit, whatever they are themselves.
        """
        held = np.clip(np.abs(share), 0.0, 1.0)
        at = held if held.size <= _SHARES.size else _SHARES
        part = at[:, None]
        rest = 1 - part
        apart = np.ones_like(part) if signed else part * rest
        differ = self.unlike * rest * even_normal(1)
        near = self._near_drawn
        drawn = part * near * (1 + differ) + np.sqrt(apart * self.squares) * even_normal(2)
        return at, drawn - part * self.lost

    def contrast(self, share: Floats, weights: Floats, *, signed: bool) -> Floats:
        """Draws of what a weighted sum over groups loses beyond its share of `lost`.

        Why: as in `_offs`. With shares p of the groups and weights c (0 of the rest), the mean
            loss is s = Σ c p of all that is lost, and its variance is (Σ c² p - s²) Σe². If large
            units are unlike others, p moves by up to x Σ p |c - s| / 2 of what is lost: p (1 - p) x
            for one group. Where s is 0, as of a ratio, what all groups lose cancels. Draws are in
            the order of what all rows lose, so that those of two looks may be added.
        """
        held = np.clip(np.abs(share), 0.0, 1.0)
        held = np.append(held / max(1.0, float(held.sum())), 0.0)
        held[-1] = 1 - held.sum()
        each = np.append(weights, 0.0)
        mean = float(each @ held)
        apart = float(each @ each if signed else max(each**2 @ held - mean**2, 0.0))
        differ = self.unlike * float(np.abs(each - mean) @ held) / 2
        order = np.argsort(self._near_drawn)
        near, squares = self._near_drawn[order], self.squares[order]
        drawn = near * (mean + differ * even_normal(1)) - mean * self.lost
        found: Floats = drawn + np.sqrt(apart * squares) * even_normal(2)
        return found

    @property
    def _near_drawn(self) -> Floats:
        """Draws of what all rows lose, as far off as bars hold."""
        near: Floats = self.lost + self.near * (self.drawn - self.lost)
        return near + np.maximum(1 - self.near, 0.0) * self.within * even_normal(3)

    def average_off(self, share: Floats) -> Floats:
        """A standard deviation of averages of a group, of values whose own one is 1.

        Why: the average of all is that of the rest, moved by (lost share) times the difference of
            what was lost. That is an average over few units, each in the group with chance p.
        """
        held = np.clip(np.abs(share), 1e-9, 1.0)
        at = held if held.size <= _SHARES.size else _SHARES[1:]
        among = np.hypot(np.sqrt(self.squares / at[:, None]), self.unlike * self.drawn)
        off = among / (self.kept + self.drawn) * np.abs(even_normal(1))
        found: Floats = np.quantile(off, float(_SURE), axis=1) / _TWO
        return _read(share, at, found)


def within(off: Floats, noise: Floats | float, failure: float) -> Floats:
    """Half-widths of draws of losses, a row each, and of Laplace noise with such half-widths."""
    both = off + np.reshape(noise, (-1, 1)) / log(1 / failure) * even_laplace(_NOISE)
    return np.maximum(_quantile(np.abs(both), failure), noise)


def median(drawn: Floats) -> float:
    """The same as `numpy.median`, in a tenth of the time: bounds are chosen by dozens of them."""
    middle = drawn.size // 2
    lower, upper = np.partition(drawn, (middle - 1, middle))[middle - 1 : middle + 1]
    return float((lower + upper) / 2)


def _read(share: Floats, at: Floats, found: Floats) -> Floats:
    """What was found at some shares, at those that are asked for."""
    held = np.clip(np.abs(share), 0.0, 1.0)
    return found if held.size == at.size else np.interp(held, at, found)


def _quantile(off: Floats, failure: float) -> Floats:
    """What draws exceed with a chance of ``failure``, a row each.

    Few of them tell of less than one in a hundred: from there on a tail falls as it did before.
    """
    usual, rare, asked = np.quantile(off, [1 - 10 * _FEW, 1 - _FEW, 1 - failure], axis=1)
    if failure >= _FEW:
        return np.asarray(asked, np.float64)
    falling = rare + np.maximum(rare - usual, 0.0) * log10(_FEW / failure)
    found: Floats = np.maximum(falling, asked)
    return found
