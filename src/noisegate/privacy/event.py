"""What happened, without a price: one frozen record per kind of private step.

The ledger stores events, so a better accountant tomorrow can report yesterday more sharply. Names
are stable: fields are only ever added, with a default; a meaning never changes; an unknown name
stops a ledger from opening. Every event is a statement under add/remove adjacency of one unit.

>>> event = GeometricEvent(scale=2, sensitivity=L1(1))
>>> encode(event)
{'event': 'geometric/1', 'scale': '2', 'sensitivity': '1'}
>>> decode(encode(event)) == event
True
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, final

from noisegate.errors import LedgerError, SpecError
from noisegate.exact import fraction, shown
from noisegate.frozen import dataclass, fields
from noisegate.privacy.distance import L1, L2, LInf1


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. ``name`` is how the ledger knows the kind."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Numbers are exact and above 0, counts are whole, parts are events."""
        for field in fields(self):
            if field.type is Fraction:
                _store_positive(self, field.name)
            elif field.type is int:
                _require_count(getattr(self, field.name), field.name)
            elif field.name == "events":
                _store_events(self, getattr(self, field.name))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NothingEvent(Event):
    """No data was looked at."""

    name: ClassVar[str] = "nothing/1"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricEvent(Event):
    """Two-sided geometric (discrete Laplace) noise on an integer vector [GRS09]."""

    name: ClassVar[str] = "geometric/1"
    scale: Fraction
    sensitivity: L1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent(Event):
    """Continuous Laplace noise, exactly rounded to a public grid [DMNS06]."""

    name: ClassVar[str] = "laplace/1"
    scale: Fraction
    sensitivity: L1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BoxNoiseEvent(Event):
    """Noise of mass e^(-max|z| / scale) on each cell of an integer vector [HT10]."""

    name: ClassVar[str] = "box-noise/1"
    scale: Fraction
    sensitivity: LInf1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianEvent(Event):
    """Discrete Gaussian noise of parameter sigma² on an integer vector [CKS20]."""

    name: ClassVar[str] = "discrete-gaussian/1"
    variance: Fraction
    sensitivity: L2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent(Event):
    """Continuous Gaussian noise, exactly rounded to a public grid."""

    name: ClassVar[str] = "gaussian/1"
    variance: Fraction
    sensitivity: L2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialEvent(Event):
    """One choice by the exponential mechanism; its log-ratios have range ``epsilon`` [MT07]."""

    name: ClassVar[str] = "exponential/1"
    epsilon: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopKEvent(Event):
    """``k`` choices by one round of Gumbel noise: k exponential mechanisms in a row [DR19]."""

    name: ClassVar[str] = "top-k/1"
    k: int
    epsilon_each: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteAndFlipEvent(Event):
    """One choice by permute-and-flip [MS20]."""

    name: ClassVar[str] = "permute-and-flip/1"
    epsilon: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThresholdEvent(Event):
    """A whole run of the sparse vector technique, up to ``cutoff`` positive answers [LSL17]."""

    name: ClassVar[str] = "above-threshold/1"
    epsilon_threshold: Fraction
    epsilon_queries: Fraction
    cutoff: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelectionEvent(Event):
    """Which undeclared keys may be shown: an (ε, δ)-private choice of keys [DVGM22]."""

    name: ClassVar[str] = "key-selection/1"
    epsilon: Fraction
    delta: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdedGaussianEvent(Event):
    """Keys with counts that discrete Gaussian noise takes above a threshold.

    A unit holds at most ``keys``; one that it holds alone shows with a chance of ``delta`` at most,
    all of them together.
    """

    name: ClassVar[str] = "thresholded-gaussian/1"
    variance: Fraction
    keys: int
    delta: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdCountsEvent(Event):
    """Counts of a secret sample, those below ``crowd`` not shown [GHLP12].

    Each unit is in the sample independently with ``probability``. Such a step has a whole curve of
    (ε, δ); ``epsilon`` is the point of it that is charged.
    """

    name: ClassVar[str] = "crowd-counts/1"
    probability: Fraction
    crowd: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.probability >= 1:
            raise SpecError(
                "The sampling probability is not below 1.", fix="Use a probability below 1."
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothStudentEvent(Event):
    """Student's t noise, three degrees, times ``scale`` and a secret β-smooth bound [NRS07]."""

    name: ClassVar[str] = "smooth-student/1"
    scale: Fraction
    beta: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothLaplaceEvent(Event):
    """Laplace noise times ``scale`` and a secret β-smooth bound [NRS07].

    Such a step has a whole curve of (ε, δ); ``epsilon`` is the point of it that is charged.
    """

    name: ClassVar[str] = "smooth-laplace/1"
    scale: Fraction
    beta: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.epsilon < 1 / self.scale + self.beta:
            raise SpecError(
                "epsilon is below what the noise costs.", fix="Use ε >= 1/scale + beta."
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothLognormalEvent(Event):
    """Laplace times e^(σY), Y normal, times ``scale`` and a secret β-smooth bound [BS19]."""

    name: ClassVar[str] = "smooth-lognormal/1"
    scale: Fraction
    beta: Fraction
    sigma: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeTestReleaseEvent(Event):
    """A noisy test whether a proposed bound is safe, and a release if it seems so [DL09].

    ``delta`` is how likely the test passes where the bound does not hold.
    """

    name: ClassVar[str] = "propose-test-release/1"
    epsilon_test: Fraction
    epsilon_release: Fraction
    delta: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredEvent(Event):
    """A step known only by its proven (ε, δ); prefer the event that says what happened."""

    name: ClassVar[str] = "declared/1"
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", fraction(self.epsilon, name="epsilon"))
        object.__setattr__(self, "delta", fraction(self.delta, name="delta"))
        if self.epsilon < 0 or not 0 <= self.delta <= 1:
            raise SpecError("The declared loss is negative.", fix="Use ε >= 0 and 0 <= δ <= 1.")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredZCDPEvent(Event):
    """A step known only by its proven ρ-zCDP."""

    name: ClassVar[str] = "declared-zcdp/1"
    rho: Fraction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential(Event):
    """Steps on the same units, each free to depend on the answers before it."""

    name: ClassVar[str] = "sequential/1"
    events: tuple[Event, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Event):
    """Steps on disjoint sets of units, so that one unit takes part in only one of them.

    The parts must be fixed without looking at the data or by an already paid step (AR only).
    """

    name: ClassVar[str] = "parallel/1"
    events: tuple[Event, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(Event):
    """The same step ``count`` times in sequence."""

    name: ClassVar[str] = "repeated/1"
    event: Event
    count: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Event):
    """The step as it protects ``size`` units together."""

    name: ClassVar[str] = "group/1"
    event: Event
    size: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonSampled(Event):
    """The step on a secret sample that holds each unit independently with ``probability``."""

    name: ClassVar[str] = "poisson-sampled/1"
    event: Event
    probability: Fraction

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        if self.probability > 1:
            raise SpecError("probability is above 1.", fix="Use a probability in (0, 1].")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InPart(Event):
    """The step on one ``part`` of a ``partition`` of all units; `ledger/parts.py` has its price.

    Both are names: of a rule that puts each unit into one part at most by the unit's own rows.
    """

    name: ClassVar[str] = "part/1"
    event: Event
    partition: str
    part: str


_KINDS: Final = (
    NothingEvent, GeometricEvent, LaplaceEvent, BoxNoiseEvent, DiscreteGaussianEvent,
    GaussianEvent, ExponentialEvent, TopKEvent, PermuteAndFlipEvent, AboveThresholdEvent,
    KeySelectionEvent, ThresholdedGaussianEvent, CrowdCountsEvent, SmoothStudentEvent,
    SmoothLaplaceEvent, SmoothLognormalEvent, ProposeTestReleaseEvent, DeclaredEvent,
    DeclaredZCDPEvent, Sequential, Parallel, Repeated, Group, PoissonSampled, InPart,
)  # fmt: skip
EVENTS: Final[Mapping[str, type[Event]]] = MappingProxyType({kind.name: kind for kind in _KINDS})

Encoded: TypeAlias = dict[str, Any]


def encode(event: Event) -> Encoded:
    """The event as plain JSON values; every number is text, so nothing is rounded."""
    record: Encoded = {"event": event.name}
    for field in fields(event):
        record[_key(field.name)] = _encode_value(getattr(event, field.name))
    return record


def decode(record: Mapping[str, Any]) -> Event:
    """The event a record stands for; refuses names and fields it does not know."""
    kind = EVENTS.get(str(record.get("event")))
    newer = "Use a newer version of noisegate."
    if kind is None:
        raise LedgerError(
            f"The event {record.get('event')!r} is unknown.", fix=newer, about="event"
        )
    known = {_key(field.name): field for field in fields(kind)}
    if unknown := set(record) - set(known) - {"event"}:
        raise LedgerError(f"{kind.name} has unknown fields {sorted(unknown)}.", fix=newer)
    given = {key: field for key, field in known.items() if key in record}
    try:
        return kind(
            **{field.name: _decode_value(field.type, record[key]) for key, field in given.items()}
        )
    except (TypeError, ValueError, AttributeError, ZeroDivisionError, SpecError):
        raise LedgerError(f"A record of {kind.name} is damaged.", fix="Restore a backup.") from None


def _key(field: str) -> str:
    """In JSON ``event`` is the kind; an event inside another stands under ``of``."""
    return "of" if field == "event" else field


def _encode_value(value: object) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Event):
        return encode(value)
    if isinstance(value, tuple):
        return [_encode_value(item) for item in value]
    if isinstance(value, L1 | LInf1):
        return str(value.value)
    if isinstance(value, L2):
        return str(value.squared)
    return str(value)


def _decode_value(kind: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    if kind is Event:
        return decode(value)
    if kind in (L1, LInf1):
        return kind(value)
    if kind is L2:
        return L2(squared=value)
    if kind in (int, Fraction, str) and isinstance(value, str):
        return kind(value)
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    raise ValueError  # numbers are text in a record, so that nothing is rounded


def _store_events(event: Event, parts: Iterable[Event]) -> None:
    events = tuple(parts)
    if not all(isinstance(part, Event) for part in events):
        raise SpecError("A part is not an event.", fix="Give a list of events.")
    object.__setattr__(event, "events", events)


def _store_positive(event: Event, field: str) -> None:
    exact = fraction(getattr(event, field), name=field)
    if exact <= 0:
        raise SpecError(f"{field} is {shown(exact)}.", fix=f"Give {field} a value above 0.")
    object.__setattr__(event, field, exact)


def _require_count(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(
            f"{name} is {value!r}.", fix=f"Use a whole {name} of at least 1.", about="size"
        )
