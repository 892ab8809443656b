"""Draws from mechanisms, as audits need them: many runs on one exact input, and audits of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias, final

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats, claims_of
from noisegate.errors import Bug
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.base import Mechanism, Repeatable

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
