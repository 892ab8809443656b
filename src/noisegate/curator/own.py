"""Counts and sums that a mechanism of a researcher's own makes noisy, on the researcher's word.

It sees exact numbers, and nothing here can check its law. So only a policy that says so allows it,
no face of a service has a way to it, and all that is promised says on whose word. What is checked:
that it is priced by an event of the library, of noise for the sensitivity of the question or
declared and above 0; that the charge comes first; and that what it gives back is whole numbers in
the form of the question.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from threading import Thread
from typing import Any, ClassVar, Final, Protocol, final

import numpy as np

from noisegate.algebra.tally import Sums
from noisegate.curator.kept import Kept
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.frozen import dataclass, field, fields, is_dataclass
from noisegate.noise.bits import Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy import event as events
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import Event
from noisegate.sources.source import Source
from noisegate.transforms.query import Query

CAPABILITY: Final = "own_mechanisms"
_NOISE: Final = (
    events.GeometricEvent,
    events.LaplaceEvent,
    events.DiscreteGaussianEvent,
    events.GaussianEvent,
)
_DECLARED: Final = (events.DeclaredEvent, events.DeclaredZCDPEvent)
_FREE: Final = events.DeclaredEvent(epsilon=Fraction(0))
_WORDS_MAX: Final = 200


class OwnMechanism(Protocol):
    """What a researcher writes: a frozen dataclass whose fields are the parameters.

    ``event`` is given the sensitivity of the question in the norm that it ``takes``, "L1" or "L2",
    and says what one use is. ``sample`` is given the exact whole numbers, one for each cell, and
    the same sensitivity. Both are in grains of the question, which may be small parts of a row.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    claimed_by: ClassVar[str]
    takes: ClassVar[str]

    def event(self, sensitivity: Any, /) -> Event:  # noqa: ANN401 - L1 or L2, as it takes
        """What one use is, for accounting."""

    def sample(self, exact: Int64Array, sensitivity: Any, /) -> Int64Array:  # noqa: ANN401 - as above
        """One draw for the given exact integers."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMeasurement:
    """One sum over declared cells, and the mechanism that is vouched for.

    What it is and what it costs are read from the mechanism once, here.
    """

    query: Query
    mechanism: OwnMechanism
    seconds: int = 60
    stated: Event = field(init=False)
    record: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        tally = self.query.tally if type(self.query) is Query else None
        plain = isinstance(tally, Sums) and self.query.asks == "cells"
        if not plain or len(self.query.l1s) != 1 or self.query.sample is not None:
            raise Unsupported(
                "A mechanism of your own takes one count or sum over declared groups, of all rows.",
                fix="For example: SELECT ward, COUNT(*) FROM visits GROUP BY ward.",
                about="own",
            )
        if type(self.seconds) is not int or not 0 < self.seconds <= 86_400:
            raise SpecError("seconds is not a number of seconds.", fix="Use 1 to 86400.")
        object.__setattr__(self, "record", record_of(self.mechanism))
        object.__setattr__(self, "stated", _stated(self.mechanism, self.sensitivity))

    @property
    def sensitivity(self) -> L1 | L2:
        """How far one unit moves all cells together, in the norm that the mechanism takes."""
        return self.query.l1s[0] if self.record["takes"] == "L1" else self.query.l2s[0]

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses."""
        return frozenset({CAPABILITY})

    @property
    def claim(self) -> str:
        """What the researcher says."""
        kind, who = f"{self.record['name']} {self.record['version']}", self.record["claimed_by"]
        return f"the mechanism {kind!r} is what it states, as claimed by {who}"

    def event(self) -> Event:
        """What one use is, for accounting.

        Claim: this event, provided that `claim` is true. Adjacency: add/remove one unit.
        Why: the query bounds how far a unit moves all cells (`Query.l1s`, `Query.l2s`); what the
            mechanism makes of numbers that far apart, failing and taking its time among it, is the
            researcher's word. Rounding: none here.
        """
        return self.stated

    def question(self) -> str:
        """Canonical text: name, version and parameters of the mechanism, and what it states."""
        record = {"query": self.query.to_record(), "own": {**self.record},
                  "event": events.encode(self.stated)}  # fmt: skip
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def draw(
        self, source: Source, _bits: Bits, kept: Kept | None = None
    ) -> tuple[Int64Array, None]:
        """The noisy numbers of the cells in one row, or none at all. Reads rows; call it once paid.

        A mechanism that fails, is late or gives anything but one whole number for each cell has
        given its answer, which is that there is none: it is settled like any other, so that nobody
        draws twice for one charge, and it says the same whatever went wrong.
        """
        (exact,) = (kept or source).sums(self.query.tally)  # type: ignore[arg-type]  # of these
        return self._sampled(np.array(exact, np.int64))[None], None

    def _sampled(self, exact: Int64Array) -> Int64Array:
        return _drawn(lambda: self.mechanism.sample(exact, self.sensitivity), exact, self.seconds)


def _drawn(draw: Callable[[], Any], exact: Int64Array, seconds: int) -> Int64Array:
    """What a mechanism makes of the exact numbers, in a thread that may be left behind."""
    shape, told = exact.shape, list[Any]()

    def work() -> None:
        try:
            told.append(draw())
        except BaseException:  # noqa: BLE001 - its words may quote what it was given
            told.append(None)

    thread = Thread(target=work, daemon=True)
    thread.start()
    with suppress(KeyboardInterrupt):  # which is a failure like others: nobody draws twice
        thread.join(seconds)
    found = told[0] if told else None
    if type(found) is not np.ndarray or found.dtype != np.int64 or found.shape != shape:
        return np.empty(0, np.int64)
    return found.copy()


def record_of(mechanism: OwnMechanism) -> Mapping[str, Any]:
    """Name, version, who claims it and all parameters: what makes it another question."""
    kind: Any = type(mechanism)
    frozen = is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009 - of any
    names = {each: getattr(mechanism, each, None) for each in ("name", "version", "claimed_by")}
    said = all(isinstance(each, str) and 0 < len(each) <= _WORDS_MAX for each in names.values())
    takes, callable_ = getattr(mechanism, "takes", None), ("event", "sample")
    if not (frozen and said and takes in ("L1", "L2")) or not all(
        callable(getattr(mechanism, each, None)) for each in callable_
    ):
        raise SpecError(
            "This is not a mechanism of your own.",
            fix='Use a frozen dataclass with name, version, claimed_by, takes ("L1" or "L2"), '
            "event(sensitivity) and sample(exact, sensitivity).",
            about="own",
        )
    given = {each.name: getattr(mechanism, each.name) for each in fields(kind)}
    return {**names, "takes": takes, "parameters": {n: _plain(v) for n, v in given.items()}}


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """A parameter as JSON has it, exact; refuses what has no fixed text."""
    if type(value) in (bool, str, type(None)):
        return value
    if type(value) in (int, Fraction):
        return {"number": str(value)}
    if type(value) is tuple:
        return [_plain(each) for each in value]
    raise SpecError(
        "A parameter of the mechanism is not a plain value.",
        fix="Use whole numbers, fractions, text, True or False, and tuples of these.",
        about="own",
    )


def _stated(mechanism: OwnMechanism, sensitivity: L1 | L2) -> Event:
    """What one use is: an event of the library itself, at the sensitivity of the question."""
    found: Event | None = None
    try:
        found = events.decode(
            events.encode(mechanism.event(sensitivity))
        )  # equal, and of our own classes
    except (NoisegateError, ArithmeticError, AttributeError, TypeError, ValueError):
        found = None
    if found is None or not _fits(found, sensitivity):
        raise Unsupported(
            "The mechanism states no event that can be priced for this question.",
            fix="Return an event of noisegate.dp made with the sensitivity that it was given: of "
            "geometric, Laplace or Gaussian noise, declared, or several of these in sequence.",
            about="own",
        )
    return found


def _fits(event: Event, sensitivity: L1 | L2) -> bool:
    """Whether an event is of the closed list, and its noise for this sensitivity."""
    if isinstance(event, events.Sequential):
        return bool(event.events) and all(_fits(each, sensitivity) for each in event.events)
    if isinstance(event, events.Repeated):
        return _fits(event.event, sensitivity)
    if isinstance(event, _NOISE):
        return event.sensitivity == sensitivity
    return isinstance(event, _DECLARED) and event != _FREE
