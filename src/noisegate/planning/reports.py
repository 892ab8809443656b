"""Yesterday's events under sharper theorems. Reports inform; they never authorise.

The theorems here assume that the list of events was fixed beforehand, or are valid at one order
only; after an adaptive run they describe what was spent, not what may still be spent. An allowance
that was never closed is on record by what it reserved, which bounds what was drawn under it in its
account's own measure only: read it by that accountant. A method that cannot read the events keeps
its row and says why.

>>> from noisegate.privacy.distance import L1
>>> count = GeometricEvent(scale=Fraction(10), sensitivity=L1(1))
>>> rows = report([count] * 100, delta=Fraction(1, 10**6), methods=("basic", "optimal"))
>>> [(row.method, float(round(row.epsilon, 6))) for row in rows]
[('basic', 10.0), ('optimal', 4.774568)]
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil, inf, nextafter
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeAlias, final

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.renyi import renyi_loss
from noisegate.accounting.search import least
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.exact import Number, fraction, sqrt_down, sqrt_up
from noisegate.extras import extra
from noisegate.frozen import dataclass
from noisegate.planning.calibrate import gaussian_delta_up
from noisegate.planning.composition import (
    advanced_mixed_up,
    exponential_epsilon_up,
    optimal_epsilon_up,
)
from noisegate.privacy.conversion import approx_of_zcdp, epsilon_at_order_up
from noisegate.privacy.distance import L2
from noisegate.privacy.event import (
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GeometricEvent,
    InPart,
    NothingEvent,
    Parallel,
    PoissonSampled,
    Repeated,
    Sequential,
)
from noisegate.privacy.loss import ZCDP, ApproxDP

ORDERS: Final = tuple(
    Fraction(order)
    for order in ("5/4", "3/2", "7/4", "2", "5/2", *range(3, 33), 40, 48, 64, 96, 128, 192, 256)
)
EXPONENTIAL_MAX: Final = 200  # the exact formula takes count² steps
GRID: Final = 1e-4  # of the privacy-loss distribution
FFT_ERROR: Final = Fraction(1, 10**15)  # of δ, per step

Leaves: TypeAlias = Mapping[Event, int]
Method: TypeAlias = Callable[[Leaves, Fraction], tuple[Fraction, str]]


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One method's ε at the report's δ, or why it has none."""

    method: str
    epsilon: Fraction | None
    note: str


def report(
    events: Iterable[Event], *, delta: Number, methods: Iterable[str] | None = None
) -> list[Row]:
    """The events' ε at δ by every method, in the order of `METHODS`."""
    exact = fraction(delta, name="delta")
    if not 0 <= exact < 1:
        raise SpecError(
            "delta is not a small probability.", fix="Use 0 <= delta < 1, such as 1e-6."
        )
    leaves = flattened(events)
    return [_row(name, leaves, exact) for name in (METHODS if methods is None else methods)]


def flattened(events: Iterable[Event]) -> Leaves:
    """Sequences and repetitions opened up, equal steps counted together."""
    counts: Counter[Event] = Counter()
    for event in _together(events):
        match event:
            case NothingEvent():
                pass
            case Sequential():
                counts.update(flattened(event.events))
            case Repeated():
                inner = flattened([event.event])
                counts.update({leaf: event.count * count for leaf, count in inner.items()})
            case _:
                counts[event] += 1
    return counts


def _together(events: Iterable[Event]) -> Iterator[Event]:
    """The same with steps on parts of one partition as parallel ones; see `ledger/parts.py`."""
    parts: dict[str, dict[str, list[Event]]] = {}
    for event in events:
        if isinstance(event, InPart):
            parts.setdefault(event.partition, {}).setdefault(event.part, []).append(event.event)
        else:
            yield event
    for found in parts.values():
        each = [Sequential(events=tuple(events)) for events in found.values()]
        yield each[0] if len(each) == 1 else Parallel(events=tuple(each))


def _row(name: str, leaves: Leaves, delta: Fraction) -> Row:
    method = METHODS.get(name)
    if method is None:
        raise SpecError(
            f"There is no method {name!r}.", fix=f"Use one of {', '.join(METHODS)}.", about="method"
        )
    if not leaves:
        return Row(name, Fraction(0), "nothing was asked")
    try:
        return Row(name, *method(leaves, delta))
    except NoisegateError as refusal:
        return Row(name, None, refusal.problem)


def _basic(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    losses = {leaf: pure_loss(leaf) for leaf in leaves}
    spent = _sum(loss.delta * leaves[leaf] for leaf, loss in losses.items())
    _require_room(spent, delta, strictly=False)
    return _sum(loss.epsilon * leaves[leaf] for leaf, loss in losses.items()), "sums of ε"


def _advanced(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    losses = [loss for leaf, count in leaves.items() for loss in [pure_loss(leaf)] * count]
    return advanced_mixed_up(losses, delta=delta), "deviation of the summed loss"


def _optimal(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    losses = {pure_loss(leaf) for leaf in leaves}
    if len(losses) != 1:
        raise Unsupported("The steps differ in ε or δ.", fix="See the pld row.")
    (loss,) = losses
    count = sum(leaves.values())
    found = optimal_epsilon_up(loss.epsilon, count=count, delta=delta, delta_each=loss.delta)
    return found, f"{count} equal steps"


def _exponential(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    if len(leaves) != 1 or not isinstance(leaf := next(iter(leaves)), ExponentialEvent):
        raise Unsupported(
            "The events are not a run of equal exponential mechanisms.", fix="See the zcdp row."
        )
    if (count := leaves[leaf]) > EXPONENTIAL_MAX:
        raise Unsupported(
            f"There are more than {EXPONENTIAL_MAX} choices.", fix="See the zcdp row."
        )
    found = exponential_epsilon_up(leaf.epsilon, count=count, delta=delta)
    return found, "only if all choices were fixed beforehand"


def _zcdp(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    losses = {leaf: zcdp_loss(leaf) for leaf in leaves}
    rho = _sum(loss.rho * leaves[leaf] for leaf, loss in losses.items())
    own = _sum(loss.delta * leaves[leaf] for leaf, loss in losses.items())
    _require_room(own, delta)
    found = approx_of_zcdp(ZCDP(rho, own), delta=(delta - own) / (1 - own))
    return found.epsilon, f"{ZCDP(rho)}"


def _renyi(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    found: list[tuple[Fraction, Fraction]] = []
    refusal: Unsupported | None = None
    for order in ORDERS:
        try:
            found.append((_renyi_at(leaves, order, delta), order))
        except Unsupported as refused:  # sampled noise has whole orders only
            refusal = refused
    if refusal is not None and not found:
        raise refusal
    epsilon, order = min(found)
    return max(epsilon, Fraction(0)), f"best of {len(found)} orders: {order}"


def _renyi_at(leaves: Leaves, order: Fraction, delta: Fraction) -> Fraction:
    losses = {leaf: renyi_loss(leaf, order=order) for leaf in leaves}
    amount = _sum(loss[0] * leaves[leaf] for leaf, loss in losses.items())
    own = _sum(loss[1] * leaves[leaf] for leaf, loss in losses.items())
    _require_room(own, delta)
    return epsilon_at_order_up(amount, order, delta=(delta - own) / (1 - own))


def _gaussian(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    """The exact ε of Gaussian noise alone.

    Claim: steps of Gaussian noise lose together what one step of noise σ² = 1 / Σ sᵢ²/σᵢ² on a
        sensitivity of 1 does. Why: the log-ratio of normal densities adds up to a normal one of
        that mean and variance [DRS22, Cor. 3.3]; its δ is that of [BW18, Thm 8]. Rounding: up.
    """
    squares = Fraction(0)
    for leaf, count in leaves.items():
        if not isinstance(leaf, GaussianEvent):
            raise Unsupported("The events are not Gaussian noise alone.", fix="See the zcdp row.")
        squares += count * leaf.sensitivity.squared / leaf.variance
    if not squares:
        return Fraction(0), "Gaussian noise on constants"
    _require_room(Fraction(0), delta)

    def holds(epsilon: Fraction) -> bool:
        one = L2(squared=1)
        return gaussian_delta_up(epsilon, variance=1 / squares, sensitivity=one) <= delta

    if holds(Fraction(0)):
        return Fraction(0), "exact for Gaussian noise"
    return least(holds, guess=max(squares, Fraction(1))), "exact for Gaussian noise"


def _pld(leaves: Leaves, delta: Fraction) -> tuple[Fraction, str]:
    """Privacy-loss distributions of dp-accounting, in floating point [DGKKM22].

    The library rounds losses up on its grid, but convolves masses by FFT, whose errors add to δ:
    against the exact optimum they were measured at 1.2e-17 per step. Eighty times as much is taken
    off δ first, and a δ that would lose half of itself that way gets no row.
    """
    slack = sum(leaves.values()) * FFT_ERROR
    if slack * 2 > delta:
        raise Unsupported("δ is too small for floating point.", fix="See the other rows.")
    library = extra("dp_accounting.pld.privacy_loss_distribution", "Such reports", "report")
    grid = _grid(leaves)
    total = library.identity(value_discretization_interval=grid)
    for leaf, count in leaves.items():
        total = total.compose(_pld_of(leaf, library, grid).self_compose(count))
    epsilon = total.get_epsilon_for_delta(nextafter(float(delta - slack), 0))
    if epsilon == inf:
        raise SpecError("The steps' own δ is above the report's δ.", fix="Allow a larger δ.")
    return Fraction(nextafter(epsilon, inf)), "floating point, rounded up on a grid; not certified"


def _pld_of(event: Event, library: ModuleType, grid: float) -> Any:  # noqa: ANN401 - foreign
    """The distribution of a pair that dominates the event.

    A discrete Gaussian on an integer vector of squared L2 sensitivity below 2 moves one coordinate
    by one, so the scalar distribution is exact; wider vectors have no proven dominating pair. The
    continuous Gaussian is rotation invariant. Everything else is dominated by the two-point pair of
    its (ε, δ) [KOV15], which is exact for geometric noise on counts.
    """
    match event:
        case PoissonSampled(event=GaussianEvent() as inner):
            return _pld_of_gaussian(inner, event.probability, library, grid)
        case GaussianEvent():
            return _pld_of_gaussian(event, Fraction(1), library, grid)
        case DiscreteGaussianEvent():
            return _pld_of_discrete_gaussian(event, library, grid)
        case _:
            return _pld_of_pair(pure_loss(event), library, grid)


def _pld_of_gaussian(
    event: GaussianEvent, probability: Fraction, library: ModuleType, grid: float
) -> Any:  # noqa: ANN401
    if event.sensitivity.squared == 0:
        return library.identity(value_discretization_interval=grid)
    return library.from_gaussian_mechanism(
        nextafter(float(sqrt_down(event.variance)), 0),
        sensitivity=nextafter(float(sqrt_up(event.sensitivity.squared)), inf),
        sampling_prob=min(1.0, nextafter(float(probability), inf)),
        value_discretization_interval=grid,
    )


def _pld_of_discrete_gaussian(
    event: DiscreteGaussianEvent, library: ModuleType, grid: float
) -> Any:  # noqa: ANN401
    if event.sensitivity.squared >= 2:
        raise Unsupported(
            "A discrete Gaussian on a vector has no proven dominating pair here.",
            fix="See the zcdp row.",
        )
    if event.sensitivity.squared < 1:
        return library.identity(value_discretization_interval=grid)
    return library.from_discrete_gaussian_mechanism(
        nextafter(float(sqrt_down(event.variance)), 0), 1, value_discretization_interval=grid
    )


def _pld_of_pair(loss: ApproxDP, library: ModuleType, grid: float) -> Any:  # noqa: ANN401
    pair = library.common.DifferentialPrivacyParameters(
        _float_up(loss.epsilon), min(_float_up(loss.delta), 1.0)
    )
    return library.from_privacy_parameters(pair, value_discretization_interval=grid)


def _float_up(value: Fraction) -> float:
    return nextafter(float(value), inf) if value else 0.0


def _grid(leaves: Leaves) -> float:
    """A grid on which the two-point loss of a repeated pure step falls exactly, if there is one."""
    if len(leaves) == 1 and isinstance(leaf := next(iter(leaves)), GeometricEvent):
        epsilon = float(pure_loss(leaf).epsilon)
        if epsilon > 0:
            return nextafter(epsilon, inf) / ceil(epsilon / GRID)
    return GRID


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def _require_room(own: Fraction, delta: Fraction, *, strictly: bool = True) -> None:
    if own > delta or (strictly and own == delta):
        raise SpecError(
            f"The steps' own δ is {float(own):.3g}, and the report's δ leaves no room for it.",
            fix="Allow a larger δ.",
        )


METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "basic": _basic,
        "advanced": _advanced,
        "optimal": _optimal,
        "exponential": _exponential,
        "zcdp": _zcdp,
        "renyi": _renyi,
        "gaussian": _gaussian,
        "pld": _pld,
    }
)
