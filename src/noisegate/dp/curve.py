"""What a run of steps costs, as a curve: ε for a δ, δ for an ε, and the trade-off of a test.

>>> from noisegate.privacy.distance import L2
>>> from noisegate.privacy.event import GaussianEvent
>>> step = Curve(GaussianEvent(variance=Fraction(100), sensitivity=L2(squared=1)))
>>> [round((step * 100).epsilon("1e-6", by=by), 3) for by in ("zcdp", "pld", "gaussian")]
[5.222, 4.887, 4.887]
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import exp, inf, nextafter
from typing import Any, Final, final

from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.planning.reports import METHODS, Row, flattened, report
from noisegate.privacy.event import Event, Repeated, Sequential

CERTIFIED: Final = tuple(name for name in METHODS if name != "pld")  # proven and rounded up
_DELTAS: Final = tuple(Fraction(1, 2**place) for place in range(1, 34))
_EXP_MAX: Final = 700  # its power is a double; more says nothing of rates that matter
_DIGITS: Final = 2**10  # of a δ that is searched for


@final
class Curve:
    """Steps that are taken one after the other, fixed beforehand. ``+`` and ``*`` compose.

    Claim: every (ε, δ) it tells holds for all steps together, under add/remove adjacency of what
        the events call a unit. Why: the theorems of `planning.reports`, each where it applies; of
        several true bounds the least is true. Numbers are rounded up, but for ``by="pld"``, which
        is in floating point. A run whose steps depend on answers needs a `Filter`.
    """

    def __init__(self, *events: Event) -> None:
        self._steps: Mapping[Event, int] = dict(flattened(events))

    @property
    def event(self) -> Event:
        """All of it as one event."""
        steps = (Repeated(event=each, count=count) for each, count in self._steps.items())
        return Sequential(events=tuple(steps))

    def __add__(self, other: "Curve") -> "Curve":
        return _made(Counter(self._steps) + Counter(other._steps))

    def __mul__(self, count: int) -> "Curve":
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise SpecError("A run is repeated a whole number of times.", fix="Use curve * 100.")
        return _made({each: count * found for each, found in self._steps.items() if count})

    __rmul__ = __mul__

    def __repr__(self) -> str:
        steps = sum(self._steps.values())
        return f"<Curve of {steps:,} step{'s'[: steps != 1]}, {len(self._steps)} different>"

    def report(self, delta: Number) -> list[Row]:
        """ε at δ by every method, and why one has none."""
        return report([self.event], delta=delta)

    def epsilon(self, delta: Number = 0, *, by: str | None = None) -> float:
        """The least ε that is proven at δ; or that of one method, of `noisegate ledger report`."""
        return _float_up(self._least(fraction(delta, name="delta"), by))

    def _least(self, delta: Fraction, by: str | None) -> Fraction:
        names = CERTIFIED if by is None else (by,)
        rows = report([self.event], delta=delta, methods=names)
        found = [row.epsilon for row in rows if row.epsilon is not None]
        if not found:
            raise Unsupported(
                f"There is no bound at this δ: {rows[-1].note}",
                fix="Allow a larger δ, or use another method.", about="curve",
            )  # fmt: skip
        return min(found)

    def delta(self, epsilon: Number, *, by: str | None = None) -> float:
        """The least δ, to three digits, at which ε is proven; 1.0 where none is."""
        wanted = fraction(epsilon, name="epsilon")
        if self._holds(wanted, Fraction(0), by):
            return 0.0
        high = Fraction(1)
        while high > Fraction(1, 10**300) and self._holds(wanted, high / 2, by):
            high /= 2
        low = high / 2
        for _ in range(_DIGITS.bit_length()):
            middle = (low + high) / 2
            low, high = (low, middle) if self._holds(wanted, middle, by) else (middle, high)
        return _float_up(high)

    def _holds(self, epsilon: Fraction, delta: Fraction, by: str | None) -> bool:
        try:
            return delta < 1 and self._least(delta, by) <= epsilon
        except Unsupported:
            return False

    def tradeoff(self, alphas: Sequence[float], *, by: str | None = None) -> list[float]:
        """The least false-negative rate of a test with each false-positive rate.

        Claim: nobody who tells two neighbours apart from all the outputs does better. Why: a test
            at level α of an (ε, δ)-private run misses with a rate of at least
            max(1 - δ - e^ε α, e^-ε (1 - δ - α)) [KOV15]; the largest over several pairs holds.
        """
        pairs = list(self._pairs(by))
        return [
            max([0.0, *(max(1 - d - exp(e) * a, exp(-e) * (1 - d - a)) for e, d in pairs)])
            for a in alphas
        ]

    def _pairs(self, by: str | None) -> Iterable[tuple[float, float]]:
        for delta in (Fraction(0), *_DELTAS):
            try:
                epsilon = self.epsilon(delta, by=by)
            except Unsupported:
                continue
            if epsilon < _EXP_MAX:
                yield epsilon, float(delta)

    def plot(self, *, by: str | None = None) -> Any:  # noqa: ANN401 - altair may be missing
        """The trade-off beside that of perfect privacy: an altair chart."""
        from noisegate.desk.display.drawing import altair  # noqa: PLC0415 - only when asked for

        alt, alphas = altair(), [place / 100 for place in range(101)]
        none = [1 - a for a in alphas]
        rows = [
            {"false positives": a, "false negatives": b, "curve": name}
            for name, betas in (("this run", self.tradeoff(alphas, by=by)), ("nothing told", none))
            for a, b in zip(alphas, betas, strict=True)
        ]
        return (
            alt.Chart(alt.Data(values=rows))
            .mark_line()
            .encode(
                x=alt.X("false positives:Q"),
                y=alt.Y("false negatives:Q"),
                color=alt.Color("curve:N", sort=None, title=None),
            )
        )


def _made(steps: Mapping[Event, int]) -> Curve:
    return Curve(*(Repeated(event=each, count=count) for each, count in steps.items()))


def _float_up(value: Fraction) -> float:
    found = float(value)
    return found if Fraction(found) >= value else nextafter(found, inf)
