"""Audits of whole recipes: what the door was asked in one real run, drawn again and again.

A recipe asks many questions, each chosen by the answers so far. It is run once for real, on the
rows with the unit, and every draw behind the door is noted: mechanism, exact numbers, what was
said. It is then run on the rows without the unit and *told the same answers*: had it looked at
anything else than answers, it would ask something else, and the audit stops with a bug. So for each
draw of the path the exact numbers of both neighbours are known. `PathRuns` draws the whole path
anew, thousands of times, with the mechanisms themselves. The claim is what the ledger charged.

The joint law of a path's answers is that of a recipe which always asks these questions, which the
door would have charged the same. A path is fixed before the runs that are counted.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from math import exp, sqrt
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats
from noisegate.audit.door import Open
from noisegate.audit.draws import best_region, best_threshold, weaker
from noisegate.errors import Bug
from noisegate.frozen import dataclass, replace
from noisegate.gate import Gate
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.base import Mechanism, Repeatable
from noisegate.mechanisms.catalogue import all_kinds
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric, Summarised
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.mechanisms.smooth.graph_numbers import GraphNumber, LocalGraph
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile
from noisegate.mechanisms.smooth.smooth import SmoothNoise
from noisegate.privacy.event import Event
from noisegate.root import Rehearsal

Run: TypeAlias = Callable[[Gate], object]  # all of a release, a fit, a session
Exact: TypeAlias = tuple[Any, ...]  # what a mechanism was given
Pair: TypeAlias = tuple[pa.Table, pa.Table]

_FIFTH: Final = "a fifth too little noise in every draw"
# Noise on every number by itself, and a choice by exact odds: what they say has a known likelihood.
_KNOWN: Final = (Geometric, DiscreteGaussian, BoxNoise, FourierCut)
# They work out a number, or its reaches, and hand it to a noise: which is what is heard.
_HANDING: Final = (GraphNumber, LocalGraph, LocalQuantile, LeastSum, Unevenness)
_WIDEST: Final = 10  # numbers of an output that are kept as they are; more become one pattern


@final
@dataclass(frozen=True, slots=True)
class Use:
    """One draw of a path: the mechanism, and what it was given on each neighbour."""

    mechanism: Mechanism[Any]
    one: Exact
    other: Exact

    @property
    def tells(self) -> bool:
        """Whether the neighbours differ here at all."""
        return any(not np.array_equal(a, b) for a, b in zip(self.one, self.other, strict=True))

    @property
    def adds(self) -> bool:
        """Whether it is noise on numbers, or a choice, whose likelihoods are known."""
        return isinstance(self.mechanism, _KNOWN)

    @property
    def loss(self) -> float:
        """Of added noise, the most that any answer tells: ε, or ρ where it is Gaussian."""
        if isinstance(self.mechanism, FourierCut):
            return float(_log_ratios(self).max())
        away = np.abs((self.one[0] - self.other[0]).astype(np.float64)).reshape(-1)
        if isinstance(self.mechanism, DiscreteGaussian):
            return float((away**2).sum() / (2 * self.mechanism.variance))
        assert isinstance(self.mechanism, Geometric | BoxNoise)  # noqa: S101 - of added noise
        return float(_norm(self.mechanism, away[None])[0] / float(self.mechanism.scale))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PathRuns:
    """A path drawn anew, on one of the neighbours: a `Draw`.

    A run is the exact log-likelihood ratio of all answers with added noise, the honest one, which
    no other function of them can beat; and what each other mechanism said.
    """

    uses: tuple[Use, ...]
    first: bool  # neighbour
    broken: bool = False

    def __call__(self, count: int) -> Floats:
        """So many runs, a run a row."""
        ratio, columns = np.zeros(count), list[Floats]()
        for use in self.uses:
            drawn = weaker(use.mechanism) if self.broken else use.mechanism
            exact = use.one if self.first else use.other
            if use.adds:
                ratio += _ratios(use, drawn, exact[0], count)
            else:
                columns.append(_said(use, drawn, exact, count))
        return np.column_stack([ratio, *columns])


def _ratios(use: Use, drawn: Mechanism[Any], exact: Any, count: int) -> Floats:  # noqa: ANN401 - an array
    """The log-likelihood ratio of each of so many draws of a mechanism with added noise."""
    if isinstance(drawn, FourierCut):
        places = np.searchsorted([int(cut) for cut in drawn.cuts], drawn.uses(exact, count))
        return _log_ratios(use)[places[:, 0]]
    own, one, other = (
        np.asarray(each, np.int64).reshape(-1) for each in (exact, *use.one, *use.other)
    )
    moved = one != other
    if isinstance(use.mechanism, BoxNoise):
        moved = moved.reshape(-1, use.mechanism.width).any(axis=1).repeat(use.mechanism.width)
    own, one, other = own[moved], one[moved], other[moved]
    said = drawn.sample(np.tile(own, count)).reshape(count, -1).astype(np.float64)
    noise = use.mechanism
    if isinstance(noise, DiscreteGaussian):
        square: Floats = ((said - other) ** 2 - (said - one) ** 2).sum(axis=1)
        return square / float(2 * noise.variance)
    assert isinstance(noise, Geometric | BoxNoise)  # noqa: S101 - of added noise
    return (_norm(noise, said - other) - _norm(noise, said - one)) / float(noise.scale)


def _log_ratios(use: Use) -> Floats:
    """Of each choice: of its probability on one neighbour, and on the other."""
    cut, logs = use.mechanism, list[Floats]()
    assert isinstance(cut, FourierCut)  # noqa: S101 - the one choice that is known
    for exact in (use.one[0], use.other[0]):
        cost = float(cut.factor) * (cut.tails(exact) + np.array([float(n) for n in cut.noises]))
        logs.append(-cost - np.logaddexp.reduce(-cost))
    return logs[0] - logs[1]


def _norm(noise: Geometric | BoxNoise, away: Floats) -> Floats:
    """What the likelihood falls with."""
    if isinstance(noise, BoxNoise):
        found: Floats = np.abs(away).reshape(len(away), -1, noise.width).max(axis=2).sum(axis=1)
        return found
    return np.abs(away).sum(axis=1)  # type: ignore[no-any-return]


def _said(use: Use, drawn: Mechanism[Any], exact: Exact, count: int) -> Floats:
    """What any other mechanism says, so many times: few numbers as they are, many as a pattern."""
    if isinstance(drawn, CrowdCounts):  # cells by themselves
        own = exact[0].reshape(-1)[(use.one[0] != use.other[0]).reshape(-1)]
        return drawn.sample(np.tile(own, count)).reshape(count, -1).astype(np.float64)
    if isinstance(drawn, SparseGeometric):
        return _shown(use, drawn, exact, count)
    said = _uses(drawn, exact, count)
    if all(each.size == said[0].size <= _WIDEST for each in said):
        return np.stack(said).astype(np.float64)
    return np.array([[float(zlib.crc32(each.tobytes()))] for each in said])


def _uses(drawn: Mechanism[Any], exact: Exact, count: int) -> list[np.ndarray]:
    if isinstance(drawn, Repeatable):
        (numbers,) = exact
        return list(drawn.uses(numbers, count))
    return [np.asarray(drawn.sample(*exact)).reshape(-1) for _ in range(count)]


def _shown(use: Use, drawn: SparseGeometric, exact: Exact, count: int) -> Floats:
    """What is shown of the unit's cell; so many in one summary, as cells are independent."""
    (cell,) = {cell for cell, _ in _held(use.one) ^ _held(use.other)}
    rows = dict(_held(exact)).get(cell, 0)
    cells = np.arange(count if rows else 0, dtype=np.uint64)
    shown, numbers = replace(drawn, domain=count).summary(cells, np.full(cells.size, rows))
    found = np.zeros((count, 1))
    found[shown.astype(np.int64), 0] = numbers
    return found


def _held(exact: Exact) -> set[tuple[int, int]]:
    cells, counts = exact
    return set(zip(np.asarray(cells).tolist(), np.asarray(counts).tolist(), strict=True))


def path_audit(  # noqa: PLR0913 - each is a choice
    name: str,
    ask: Run,
    *,
    opened: Open,
    pair: Pair,
    neighbours: str,
    table: str = "data",
    tries: int = 3,
    **terms: Any,  # noqa: ANN401 - those of Audit
) -> Audit:
    """An audit of all that a release, a fit or a session draws behind the door.

    Args:
        name: What it is called.
        ask: All of it, once, with ``fresh=True`` wherever that can be said.
        opened: Opens a gate for its declared facts.
        pair: The rows with the unit, and without.
        neighbours: The same in words.
        table: Whose rows they are; other tables are public or empty.
        tries: Paths to choose from, before any run that counts: the one that tells most.
        terms: Those of `Audit`.
    """
    doors = [Rehearsal(opened(), {table: rows}) for rows in pair]
    path = max((_path(doors, ask) for _ in range(tries)), key=lambda each: each.told)
    telling = tuple(use for use in path.uses if use.tells)
    sums = tuple(use for use in telling if use.adds)
    honest, broken = (
        tuple(PathRuns(uses=sums or telling, first=first, broken=weak) for first in (True, False))
        for weak in (False, True)
    )
    claims = path.claims(without_choices=bool(sums))
    reach = min(1.0, path.told / float(path.charged - path.choices)) if sums else 1.0
    said: dict[str, Any] = {
        "trials": 200_000 if sums else 12_000, "why": path.words if sums else "", "reachable": reach
    } | terms  # fmt: skip
    if sums and len(claims) == 1:
        said["event"] = best_threshold((broken[0], broken[1]), claims, trials=said["trials"])
    elif len(telling) == 1 and isinstance(noise := telling[0].mechanism, SmoothNoise):
        own = tuple(tuple(each[0].tolist()) for each in (telling[0].one, telling[0].other))
        region, said["reachable"] = best_region(
            (noise, weaker(noise)), (own[0], own[1]), claims, trials=said["trials"]
        )
        said["event"] = replace(region, column=1)  # the first is for sums
    return Audit(
        name=name, claims=claims, draws=(honest[0], honest[1]), broken=(broken[0], broken[1]),
        neighbours=neighbours, broken_words=_FIFTH, **said,
    )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """Draws of one run, what was charged for it (ε, or ρ) and for its choices."""

    uses: tuple[Use, ...]
    charged: Fraction
    delta: Fraction
    choices: Fraction
    gaussian: bool

    @property
    def told(self) -> float:
        """What the added noise tells at most."""
        return sum(use.loss for use in self.uses if use.adds)

    def claims(self, *, without_choices: bool) -> dict[float, float]:
        """The claim for all that was drawn; where there are sums, the price without choices."""
        amount = self.charged - (self.choices if without_choices else 0)
        if not self.gaussian:
            return {float(self.delta): float(amount)}
        return gaussian_claims(float(amount))

    @property
    def words(self) -> str:
        """Where the claim is not all that was charged."""
        if not self.choices:
            return ""
        share = float(self.choices / self.charged)
        return f"the claim is for the sums; choices, {share:.0%} of the price, are audited alone"


def gaussian_claims(rho: float) -> dict[float, float]:
    """Points of the exact curve of Gaussian noise that costs ρ, sharper than any conversion."""
    mu = sqrt(2 * rho)
    epsilons = (mu * mu / 2, mu * mu / 2 + mu)
    return {
        float(ndtr(mu / 2 - each / mu) - exp(each) * ndtr(-mu / 2 - each / mu)): each
        for each in epsilons
    }


def _path(doors: list[Rehearsal], ask: Run) -> _Path:
    """One real run, and the same answers told about the rows without the unit."""
    heard, repeated = Ears(()), Ears(())
    gate = doors[0].gate(max_epsilon=False)
    with heard.listening():
        ask(gate)
    repeated = Ears(tuple(heard.said))
    with repeated.listening():
        ask(doors[1].gate(max_epsilon=False))
    if heard.mechanisms != repeated.mechanisms:
        raise Bug(
            "Given the same answers, the recipe asked something else without the unit.",
            fix="Find out what other than the answers decides the next question.",
            about="path",
        )
    uses = tuple(map(Use, heard.mechanisms, heard.given, repeated.given))
    balance = gate.ledger.balance(gate.door.dataset)
    gaussian = balance.accountant == "zcdp"
    prices = tuple(_price(event, gaussian=gaussian) for event in heard.events)
    choices = [price for use, price in zip(uses, prices, strict=True) if not use.adds]
    return _Path(
        uses=uses, charged=Fraction(balance.charge.amount, GRAINS_PER_ONE),
        delta=Fraction(balance.charge.delta, GRAINS_PER_ONE),
        choices=sum(choices, start=Fraction(0)), gaussian=gaussian,
    )  # fmt: skip


def _price(event: Event | None, *, gaussian: bool) -> Fraction:
    if event is None:
        return Fraction(0)
    return zcdp_loss(event).rho if gaussian else pure_loss(event).epsilon


@final
class Ears:
    """Hears every draw of every mechanism in this process; tells ``answers`` instead, if given."""

    def __init__(self, answers: tuple[Any, ...]) -> None:
        self._answers, self._inside = list(answers), False
        self.mechanisms: list[Mechanism[Any]] = []
        self.given: list[Exact] = []
        self.said: list[Any] = []
        self.events: list[Event | None] = []  # what each was priced as
        self._priced: dict[Mechanism[Any], Event] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """For as long as one run takes; the classes are as they were afterwards."""
        kinds = [kind for kind in all_kinds().values() if kind not in _HANDING]
        draws = [(kind, "summary" if issubclass(kind, Summarised) else "sample") for kind in kinds]
        places = [*draws, *((kind, "event") for kind in kinds)]
        before = [(kind, name, kind.__dict__.get(name)) for kind, name in places]
        methods = [getattr(kind, name) for kind, name in places]
        for (kind, name), method in zip(places, methods, strict=True):
            setattr(kind, name, (self._noted if name == "event" else self._heard)(method))
        try:
            yield
        finally:
            for kind, name, own in before:
                delattr(kind, name) if own is None else setattr(kind, name, own)

    def _noted(self, event: Callable[..., Event]) -> Callable[..., Event]:
        def wrapped(mechanism: Mechanism[Any], *moved: Any) -> Event:  # noqa: ANN401
            self._priced[mechanism] = found = event(mechanism, *moved)
            return found

        return wrapped

    def _heard(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(mechanism: Mechanism[Any], *exact: Any, **terms: Any) -> Any:  # noqa: ANN401
            if self._inside:  # a mechanism that is made of others
                return draw(mechanism, *exact, **terms)
            place = len(self.mechanisms)
            self.mechanisms.append(mechanism)
            self.events.append(self._priced.get(mechanism))
            self.given.append(tuple(np.array(each) for each in exact))
            if place < len(self._answers):
                return self._answers[place]
            self._inside = True
            try:
                self.said.append(draw(mechanism, *exact, **terms))
            finally:
                self._inside = False
            return self.said[-1]

        return wrapped
