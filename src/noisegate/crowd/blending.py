"""What blending in a crowd promises: by itself, and after a secret sample.

>>> blending = Blending(crowd=50)
>>> sampled = blending.sampled("1/10", counts=True)
>>> loss = sampled.loss("1e-6")
>>> float(round(loss.epsilon, 4)), sampled.delta(loss.epsilon) <= loss.delta
(0.0786, True)

Samples may take some people more often than others: by a declared key, their stratum.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, TypeAlias, final

from noisegate.accounting.biased import biased_crowd, biased_delta
from noisegate.accounting.crowd import (
    CROWD_MAX,
    blended_delta,
    change_one,
    histogram_delta,
    least_crowd,
    least_loss,
)
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive, shown
from noisegate.frozen import dataclass
from noisegate.ledger.ledger import Ledger
from noisegate.mechanisms.additive.biased_crowd import BiasedCrowd
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.axes import Axis
from noisegate.sql.laws.sampling import chance_of


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Blending:
    """A (``crowd``, ``within``)-crowd-blending mechanism [GHLP12].

    For each person in any data: either at least ``crowd`` people, the person included, are alike to
    the mechanism up to a factor e^within, or the mechanism is as if the person was not there, up to
    that factor. This restricts the mechanism, not its output, which is what k-anonymity does. It is
    no differential privacy, and two such releases together promise nothing.
    """

    crowd: int
    within: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "within", fraction(self.within, name="within"))
        if type(self.crowd) is not int or not 1 <= self.crowd <= CROWD_MAX or self.within < 0:
            raise SpecError(
                "The crowd is out of range.",
                fix=f"Use a crowd from 1 to {CROWD_MAX}, and within >= 0.",
            )

    def sampled(self, probability: Number, *, counts: bool = False) -> "Sampled":
        """The mechanism on a secret sample; ``counts``: counts of cells are all it shows."""
        return Sampled(blending=self, probability=fraction(probability), counts=counts)

    def __str__(self) -> str:
        up_to = f" up to a factor e^{shown(self.within)}" if self.within else ""
        return (
            f"({self.crowd}, {shown(self.within)})-crowd-blending: each person has "
            f"{self.crowd - 1} others who could take their place unnoticed{up_to}, or does not "
            "count at all."
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A crowd-blending mechanism on a sample that holds each person with ``probability``.

    The coins are independent and secret. Whoever knows the sample is promised ``blending`` only.
    """

    blending: Blending
    probability: Fraction
    counts: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise SpecError(
                "The sampling probability is out of range.", fix="Use one between 0 and 1."
            )
        if self.counts and self.blending.within:
            raise SpecError(
                "Two units blend in a count only if it is exactly equal.", fix="Use within=0."
            )

    def delta(self, epsilon: Number) -> Fraction:
        """The δ at an ε, for adding or removing one person. Rounding: up."""
        point, crowd = positive(epsilon, name="epsilon"), self.blending.crowd
        if self.counts:
            return histogram_delta(self.probability, crowd, point)
        return blended_delta(self.probability, crowd, self.blending.within, point)

    def loss(self, delta: Number) -> ApproxDP:
        """The least ε at a δ, for adding or removing one person. Rounding: up."""
        allowed = positive(delta, name="delta")
        within = None if self.counts else self.blending.within
        epsilon = least_loss(self.probability, self.blending.crowd, allowed, within=within)
        return ApproxDP(epsilon, allowed)

    def change_one(self, delta: Number) -> ApproxDP:
        """The same for changing one person's row."""
        return change_one(self.probability, self.loss(delta))

    def curve(self, epsilons: Iterable[Number]) -> list[ApproxDP]:
        """Points of the trade-off between ε and δ."""
        return [ApproxDP(each, self.delta(each)) for each in epsilons]

    def plot(self, epsilons: Iterable[Number]) -> Any:  # noqa: ANN401 - altair may be missing
        """The trade-off as a picture."""
        from noisegate.desk.display.drawing import altair  # noqa: PLC0415 - only when asked for

        alt = altair()
        points: list[dict[str, Any]] = [
            {"ε": float(loss.epsilon), "δ": float(loss.delta)} for loss in self.curve(epsilons)
        ]
        title = f"crowd of {self.blending.crowd}, sampled with {shown(self.probability)}"
        line = alt.Chart(alt.InlineData(values=points), title=title).mark_line(point=True)
        return line.encode(x="ε:Q", y=alt.Y("δ:Q", scale=alt.Scale(type="log")))

    def __str__(self) -> str:
        return (
            "On a secret sample that holds each person with probability "
            f"{shown(self.probability)}: {self.blending} If the sample becomes known, only this "
            "is left."
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBlending:
    """A mechanism that a steward runs elsewhere, on a secret sample of its own, and vouches for.

    Nothing of it is checked here: that ``mechanism`` is crowd-blending, that the sample held each
    person independently with the probability, that nobody knows it, and that it was used once.
    """

    mechanism: str
    blending: Blending
    probability: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        for name in ("probability", "delta"):
            object.__setattr__(self, name, positive(getattr(self, name), name=name))
        if not self.mechanism.strip():
            raise SpecError(
                "The mechanism has no name.", fix="Give its name and the source of its proof."
            )

    @property
    def loss(self) -> ApproxDP:
        """What it costs, if all that was declared is true.

        Claim: the general theorem of crowd-blending on a sample, see `blended_delta`. Adjacency:
            add/remove one person. Rounding: up.
        """
        return self.blending.sampled(self.probability).loss(self.delta)

    def charge(self, ledger: Ledger, table: TableDomain, *, request_id: str) -> Guarantee:
        """Charge the table's own account before it is run; the same ``request_id`` charges once."""
        if table.unit is None:
            raise SpecError(f"{table.name!r} is public.", fix="Name a table of people.")
        loss = self.loss
        entry = ledger.reserve(
            f"{table.dataset}: declared {request_id}",
            question=f"{table.name}: {self}",
            event=DeclaredEvent(epsilon=loss.epsilon, delta=loss.delta),
            account=table.dataset,
            kind="measurement",
        )
        entry.settle(str(self).encode())
        then = f" elsewhere, as its steward declares: {self}".removesuffix(".")
        return guarantee_of(loss, [table], "what was made of", then)

    def __str__(self) -> str:
        return (
            f"{self.mechanism!r} is ({self.blending.crowd}, {shown(self.blending.within)})-crowd-"
            "blending and ran once, on a secret sample that held each person with probability "
            f"{shown(self.probability)}. This is declared, not checked."
        )


def solved(
    probability: Fraction,
    *,
    crowd: int | None = None,
    epsilon: Fraction | None = None,
    delta: Fraction | None = None,
) -> tuple[int, ApproxDP]:
    """The crowd and the guarantee of counts, where two of the three are given.

    >>> crowd, loss = solved(Fraction(1, 10), epsilon=Fraction(1, 5), delta=Fraction(1, 10**6))
    >>> crowd, float(loss.epsilon)
    (19, 0.2)
    """
    if [crowd, epsilon, delta].count(None) != 1:
        raise SpecError(
            "Two of crowd, epsilon and delta determine the third.",
            fix="Give exactly two of them.",
        )
    if crowd is None:
        target = ApproxDP(epsilon or 0, delta or 0)
        return least_crowd(probability, target), target
    sampled = Blending(crowd=crowd).sampled(probability, counts=True)
    if epsilon is None:
        return crowd, sampled.loss(delta or 0)
    return crowd, ApproxDP(epsilon, sampled.delta(epsilon))


Bias: TypeAlias = Mapping[str, Mapping[str, Number]]  # by a column, its keys' probabilities
Noise: TypeAlias = CrowdCounts | BiasedCrowd


def column_of(bias: Bias) -> str:
    """The one column that the probabilities follow from."""
    if len(bias) != 1 or not all(isinstance(each, Mapping) and each for each in bias.values()):
        raise SpecError(
            "A biased sample follows one column.",
            fix='For example: biased={"ward": {"west": "1/2"}}; all others have the probability.',
            about="biased",
        )
    return str(next(iter(bias)))


def strata_of(bias: Bias, axes: Sequence[Axis], usual: Fraction) -> tuple[int, list[Fraction]]:
    """The place of the column among the axes, and the probability of each of its keys."""
    column = column_of(bias)
    place = next((at for at, axis in enumerate(axes) if axis.name == column), None)
    if place is None:
        raise SpecError(
            f"The question does not group by {column!r}.",
            fix="With SQL, group by the column of the strata, or give columns= instead.",
            about="biased",
        )
    said: dict[Any, Number] = {str(key): chance for key, chance in bias[column].items()}
    pairs = zip(axes[place].keys, axes[place].labels, strict=True)
    keys = [label if key is not None else None for key, label in pairs]
    if unknown := said.keys() - set(keys):
        raise SpecError(
            f"{column!r} has no declared group {min(unknown)!r}.",
            fix=f"Its groups: {', '.join(str(key) for key in keys[:20] if key is not None)}.",
            about="biased",
        )
    return place, [chance_of(said[key]) if key in said else usual for key in keys]


def biased_noise(
    strata: tuple[int, list[Fraction]],
    sizes: Sequence[int],
    *,
    apart: bool,
    crowd: int | None,
    epsilon: Fraction | None,
    delta: Fraction | None,
) -> BiasedCrowd:
    """The mechanism of a biased sample; two of crowd, ε and δ are given, as in `solved`."""
    place, chances = strata
    least, most = min(chances), max(chances)
    merged = not apart and least < most
    if [crowd, epsilon, delta].count(None) != 1:
        solved(least, crowd=crowd, epsilon=epsilon, delta=delta)  # refuses
    if epsilon is None and merged:
        raise SpecError(
            "A biased sample whose strata are not shown needs an ε.",
            fix="Give epsilon and the crowd, or epsilon and delta.",
            about="biased",
        )
    if epsilon is None:
        epsilon = max(solved(p, crowd=crowd, delta=delta)[1].epsilon for p in set(chances))
    if crowd is None:
        target = ApproxDP(epsilon, delta or 0)
        apart_ones = (least_crowd(p, target) for p in set(chances))
        crowd = biased_crowd(least, most, target) if merged else max(apart_ones)
    return BiasedCrowd(
        probabilities=tuple(chances), inner=prod(sizes[place + 1 :]), apart=apart, crowd=crowd,
        epsilon=epsilon,
    )  # fmt: skip


def delta_at(noise: Noise, epsilon: Number) -> Fraction:
    """The δ of a crowd at an ε, whatever its sample. Rounding: up."""
    point = fraction(epsilon)
    if isinstance(noise, CrowdCounts):
        return histogram_delta(noise.probability, noise.crowd, point)
    chances = set(noise.probabilities)
    if noise.apart or len(chances) == 1:
        return max(histogram_delta(p, noise.crowd, point) for p in chances)
    return biased_delta(min(chances), max(chances), noise.crowd, point)


def range_of(noise: Noise) -> tuple[Fraction, Fraction]:
    """The least and the largest probability."""
    if isinstance(noise, CrowdCounts):
        return noise.probability, noise.probability
    return min(noise.probabilities), max(noise.probabilities)


def said_range(noise: Noise) -> str:
    """The probability in words; of several, their ends."""
    least, most = range_of(noise)
    return shown(least) if least == most else f"{shown(least)} to {shown(most)}"
