"""Draws from mechanisms, as audits need them: many runs on one exact input, and audits of them.

Events may be fixed before any run: where exact laws say that runs will tell most.

The law of smooth noise is known: its distribution function, at the width and the place that the
rows of each neighbour give. So no run is spent on learning, and how much of a claim an event can
reach, and how likely a broken copy is missed, are sums of that law and not estimates.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import log
from typing import Any, Final, TypeAlias, final

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.bounds import as_outputs
from noisegate.audit.confidence import Floats, claims_of, epsilon_lower
from noisegate.audit.runs import Draw
from noisegate.errors import Bug
from noisegate.frozen import dataclass, fields, replace
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.base import Mechanism, Repeatable
from noisegate.mechanisms.smooth.smooth import SmoothNoise

Cells: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[Cells, Cells]
Copies: TypeAlias = tuple[Mechanism[Any], Mechanism[Any]]  # honest, broken

_FIFTH: Final = "a fifth too little noise"
_NOTHING: Final = -1.0  # where an output is shorter than the longest
# A copy with a fifth too little noise: fields of mechanisms, and what they are multiplied by.
_WEAKER: Final[Mapping[str, Fraction]] = {
    "scale": Fraction(4, 5), "threshold_scale": Fraction(4, 5), "query_scale": Fraction(4, 5),
    "test_scale": Fraction(4, 5), "sigma": Fraction(4, 5), "blur": Fraction(4, 5),
    "variance": Fraction(16, 25), "factor": Fraction(5, 4), "epsilon": Fraction(5, 4),
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Many:
    """Independent cells of one draw: each run is ``exact`` of them, all drawn at once.

    Honest where a mechanism treats cells (or blocks of so many) independently, as noise does.
    """

    mechanism: Mechanism[Any]
    exact: tuple[int, ...]

    def __call__(self, count: int) -> Floats:
        """So many runs."""
        cells = np.tile(np.array(self.exact, np.int64), count)
        return self.mechanism.sample(cells).reshape(count, -1).astype(np.float64)


@final
@dataclass(frozen=True, slots=True)
class Blocks:
    """Independent uses in one call, of a mechanism on disjoint parts of its cells: a use a run."""

    mechanism: Mechanism[Any]
    exact: tuple[int, ...]  # of one part

    def __call__(self, count: int) -> Floats:
        """So many runs; a call of the mechanism has a fixed number of parts."""
        cells, found = np.array(self.exact, np.int64), list[Floats]()
        parts = int(np.prod(self.mechanism.shape)) // cells.size  # type: ignore[attr-defined]
        while sum(map(len, found)) < count:
            drawn = self.mechanism.sample(np.tile(cells, parts)).astype(np.float64)
            found.append(drawn - np.arange(parts) * cells.size)
        return np.concatenate(found)[:count, None]


@final
@dataclass(frozen=True, slots=True)
class Repeats:
    """All runs of a mechanism that draws many uses together."""

    mechanism: Repeatable[Any]
    exact: tuple[int, ...]

    def __call__(self, count: int) -> Floats:
        """So many runs."""
        cells = np.array(self.exact, np.int64)
        return self.mechanism.uses(cells, count).astype(np.float64)


@final
@dataclass(frozen=True, slots=True)
class Each:
    """One use of a mechanism for each run; outputs are cut or filled up to ``width`` numbers."""

    mechanism: Mechanism[Any]
    exact: tuple[int, ...]
    width: int = 1

    def __call__(self, count: int) -> Floats:
        """So many runs."""
        cells = np.array(self.exact, np.int64)
        if isinstance(self.mechanism, Repeatable):
            return self.mechanism.uses(cells, count)[:, : self.width].astype(np.float64)
        found = np.full((count, self.width), _NOTHING)
        for run in range(count):
            drawn = self.mechanism.sample(cells).reshape(-1)[: self.width]
            found[run, : drawn.size] = drawn
        return found


def weaker(mechanism: Any) -> Any:  # noqa: ANN401 - a mechanism of its kind
    """A copy with a fifth too little noise."""
    changed: dict[str, Any] = {}
    for field in fields(mechanism):
        value = getattr(mechanism, field.name)
        if field.name in _WEAKER and not isinstance(mechanism, CrowdCounts):
            changed[field.name] = value * _WEAKER[field.name]
        elif field.name in ("epsilon_levels", "factors"):
            changed[field.name] = tuple(each * Fraction(5, 4) for each in value)
        elif field.name == "probability":
            changed[field.name] = 1 - (1 - value) * Fraction(4, 5)
    if not changed:
        raise Bug(
            f"How to weaken the noise of {mechanism.name} is not known.", fix="Add a rule for it."
        )
    return replace(mechanism, **changed)


def many(
    name: str,
    of: Mechanism[Any] | Copies,
    cells: Pair,
    neighbours: str,
    **terms: Any,  # noqa: ANN401 - those of Audit
) -> Audit:
    """An audit of a mechanism, and of its broken copy, that draws all runs at once.

    The copy has a fifth too little noise, unless it is given.
    """
    kind, pair = terms.pop("kind", Many), _copies(of)
    draws, broken = (tuple(kind(each, side) for side in cells) for each in pair)
    return _audit(name, pair[0], (draws, broken), neighbours, {"trials": 400_000} | terms)


def each(
    name: str,
    of: Mechanism[Any] | Copies,
    cells: Pair,
    neighbours: str,
    *,
    width: int = 1,
    **terms: Any,  # noqa: ANN401 - those of Audit
) -> Audit:
    """An audit of a mechanism, and of its broken copy, that draws run by run."""
    pair = _copies(of)
    draws, broken = (tuple(Each(each, side, width) for side in cells) for each in pair)
    return _audit(name, pair[0], (draws, broken), neighbours, {"trials": 7_000} | terms)


def _copies(of: Mechanism[Any] | Copies) -> Copies:
    return of if isinstance(of, tuple) else (of, weaker(of))


def _audit(
    name: str,
    mechanism: Mechanism[Any],
    draws: Any,  # noqa: ANN401 - two pairs of draws
    neighbours: str,
    terms: dict[str, Any],
) -> Audit:
    """``moved`` is the sensitivity between the neighbours, from which the claim follows."""
    said = dict(terms)
    moved = said.pop("moved", 1)
    claims = said.pop("claims", None) or claims_of(mechanism.event(moved))
    return Audit(
        name=name, claims=claims, draws=draws[0], broken=draws[1], neighbours=neighbours,
        broken_words=said.pop("broken_words", _FIFTH), **said,
    )  # fmt: skip


_BINS: Final = 4000
_WIDTHS: Final = 40.0  # how far out outputs are told apart


@final
@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Some of many intervals of outputs; each holds its upper end."""

    ends: Floats
    kept: np.ndarray
    column: int = 0

    def __call__(self, outputs: Floats) -> Floats:
        """Positive where it occurs."""
        return self.kept[np.searchsorted(self.ends, outputs[:, self.column])].astype(np.float64)

    def chance(self, noise: SmoothNoise, row: tuple[int, ...]) -> float:
        """How likely it is, exactly but for doubles, for a number and its reaches."""
        return float(_masses(noise, row, self.ends)[self.kept].sum())


def best_region(
    pair: tuple[SmoothNoise, SmoothNoise],
    rows: tuple[tuple[int, ...], tuple[int, ...]],
    claims: Mapping[float, float],
    *,
    trials: int,
    alpha: float = 1e-8,
) -> tuple[Region, float]:
    """The event by which a broken copy is caught most surely, and its share of the honest claim.

    That is where the bound to be expected of so many runs, less four standard errors, is highest
    for the second of the pair. Where there are several claims, it is for the first. Why: by Neyman
    and Pearson it holds the outputs whose likelihood ratio is above some number.
    """
    delta, ends = next(iter(claims)), _ends(pair[0], rows)
    first, second = (_masses(pair[1], row, ends) for row in rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.nan_to_num(np.log(first / second), nan=-np.inf), kind="stable")
    p, q = (np.clip(np.cumsum(each[order]), 1e-300, 1) * trials for each in (first, second))
    found = epsilon_lower(p, q, trials=trials, alpha=alpha, delta=delta)
    most = int((found - 4 * np.sqrt(1 / p + 1 / q)).argmax())
    kept = np.zeros(ends.size + 1, np.bool_)
    kept[order[: most + 1]] = True
    region = Region(ends, kept)
    own = [region.chance(pair[0], row) for row in rows]
    shares = (log((own[0] - delta) / own[1]) / claim for delta, claim in claims.items())
    return region, max(shares)


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """The first number is this or more."""

    value: float

    def __call__(self, outputs: Floats) -> Floats:
        """Positive where it occurs."""
        return (outputs[:, 0] >= self.value).astype(np.float64)


def best_threshold(
    draws: tuple[Draw, Draw], claims: Mapping[float, float], *, trials: int, alpha: float = 1e-8
) -> AtLeast:
    """Where to cut a likelihood ratio, so that a broken copy is caught most surely.

    As in `best_region`, from runs of that copy that are not counted, a fifth of as many.
    """
    (delta,) = claims
    first, second = (np.sort(as_outputs(draw(trials // 5))[:, 0]) for draw in draws)
    at = np.unique(first)
    at = at[np.linspace(0, at.size - 1, min(at.size, _BINS)).astype(np.int64)]
    p, q = (
        (each.size - np.searchsorted(each, at - 1e-9) + 0.5) * trials / (each.size + 1)
        for each in (first, second)
    )
    found = epsilon_lower(p, q, trials=trials, alpha=alpha, delta=delta)
    return AtLeast(float(at[int((found - 4 * np.sqrt(1 / p + 1 / q)).argmax())]) - 1e-9)


def _ends(noise: SmoothNoise, rows: tuple[tuple[int, ...], tuple[int, ...]]) -> Floats:
    """Whole numbers on both sides of both numbers, as far out as is told apart."""
    far = _WIDTHS * max(float(noise.width(row[1:])) for row in rows)
    low = max(min(row[0] for row in rows) - far, noise.low)
    high = min(max(row[0] for row in rows) + far, noise.high - 1)
    return np.unique(np.rint(np.linspace(low, high, _BINS)))


def _masses(noise: SmoothNoise, row: tuple[int, ...], ends: Floats) -> Floats:
    """How likely each interval is; what is kept inside the range falls into the outer two."""
    x = (ends + 0.5 - row[0]) / float(noise.width(row[1:]))
    tail = noise.shape.tail(-np.abs(x), upper=False)
    below = np.concatenate([[0.0], np.where(x < 0, tail, 1 - tail), [1.0]])
    return np.diff(below)
