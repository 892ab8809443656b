"""A lower bound on ε from runs on two neighbours: learn on one half of them, count on the other."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike

from noisegate.audit.confidence import (
    Floats,
    ceiling,
    epsilon_lower,
    finite,
    ratio_of,
    split_alpha,
)
from noisegate.audit.distinguisher import Score, chosen, learned
from noisegate.errors import SpecError
from noisegate.frozen import dataclass

DIRECTIONS: Final = ("first over second", "second over first")
LEAST_TRIALS: Final = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """ε is at least ``epsilon`` at this δ, but for a share ``alpha`` of all experiments.

    ``hits`` are how often the event occurred on the neighbour where it is likely and on the other,
    each out of ``trials`` runs that the distinguisher never saw. ``ceiling`` is the bound that a
    perfect test would have reached with as many, had the mechanism spent all of its claim.
    """

    delta: float
    claim: float
    epsilon: float
    ceiling: float
    direction: str
    hits: tuple[int, int]
    trials: int
    alpha: float

    @property
    def is_violation(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon > self.claim

    @property
    def share(self) -> float:
        """The bound as a share of the claim."""
        return ratio_of(self.claim, max(self.epsilon, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "delta": self.delta, "claim": self.claim, "lower_bound": finite(self.epsilon),
            "ceiling": self.ceiling, "direction": self.direction, "hits": list(self.hits),
            "held_out_trials": self.trials, "alpha": self.alpha,
        }  # fmt: skip


def bound(  # noqa: PLR0913 - each is a choice of the auditor
    ones: ArrayLike,
    others: ArrayLike,
    *,
    claims: Mapping[float, float],
    alpha: float = 1e-6,
    boosted: bool = False,
    scores: Sequence[Score] = (),
    event: Score | None = None,
) -> list[Bound]:
    """Lower bounds on ε, the better of both directions at each δ of ``claims``.

    Args:
        ones: Outputs of independent runs on one of two neighbours, a run a row.
        others: As many on the other neighbour.
        claims: The claimed ε at each δ.
        alpha: How likely any of these bounds may be too high; shared out equally.
        boosted: Also train boosted trees, for outputs whose columns depend on each other.
        scores: Further scores to choose from, such as an exact log-likelihood ratio.
        event: Or an event that was fixed before any run, as a score that is positive where it
            occurs, likelier on the first neighbour: then nothing is learned and all runs count.

    A quarter of the runs trains several scores, a quarter chooses one and its threshold, and the
    rest counts. So the bound holds whatever was learned.
    """
    first, second = as_outputs(ones), as_outputs(others)
    runs = min(len(first), len(second))
    if runs < LEAST_TRIALS or first.shape[1] != second.shape[1]:
        raise SpecError(
            f"There are {runs} runs to compare.",
            fix=f"Give at least {LEAST_TRIALS} runs of equal length for each neighbour.",
        )
    if event is not None:
        return _known(event, first[:runs], second[:runs], claims=claims, alpha=alpha)
    parts = [slice(0, runs // 4), slice(runs // 4, runs // 2), slice(runs // 2, runs)]
    train, choose, count = ((first[part], second[part]) for part in parts)
    share = split_alpha(alpha, len(DIRECTIONS) * len(claims))
    known = [*learned(*train, boosted=boosted), *scores]
    found = []
    for delta, claim in claims.items():
        both = [
            _counted(known, choose[::turn], count[::turn], delta=delta, alpha=share)
            for turn in (1, -1)
        ]
        turn = int(both[1][0] > both[0][0])
        found.append(
            Bound(
                delta=delta, claim=claim, epsilon=both[turn][0], hits=both[turn][1],
                direction=DIRECTIONS[turn], trials=len(count[0]), alpha=share,
                ceiling=ceiling(claim, delta, trials=len(count[0]), alpha=share),
            )
        )  # fmt: skip
    return found


def _known(
    event: Score, ones: Floats, others: Floats, *, claims: Mapping[float, float], alpha: float
) -> list[Bound]:
    """Bounds from one event that was fixed beforehand, in the one direction that it is for."""
    hits = int((event(ones) > 0).sum()), int((event(others) > 0).sum())
    share, runs = split_alpha(alpha, len(claims)), len(ones)
    return [
        Bound(
            delta=delta, claim=claim, hits=hits, direction=DIRECTIONS[0], trials=runs, alpha=share,
            epsilon=float(epsilon_lower(*hits, trials=runs, alpha=share, delta=delta)),
            ceiling=ceiling(claim, delta, trials=runs, alpha=share),
        )
        for delta, claim in claims.items()
    ]  # fmt: skip


def _counted(
    scores: list[Score],
    choose: tuple[Floats, ...],
    count: tuple[Floats, ...],
    *,
    delta: float,
    alpha: float,
) -> tuple[float, tuple[int, int]]:
    """The bound of one direction: an event is fixed on some runs and counted on others."""
    score, threshold = chosen(scores, *choose, alpha=alpha, delta=delta)
    hits = int((score(count[0]) >= threshold).sum()), int((score(count[1]) >= threshold).sum())
    found = epsilon_lower(*hits, trials=len(count[0]), alpha=alpha, delta=delta)
    return float(found), hits


def as_outputs(outputs: ArrayLike) -> Floats:
    """A table of numbers with a run a row; a plain list is one column."""
    table = np.asarray(outputs, np.float64)
    return table.reshape(-1, 1) if table.ndim == 1 else table.reshape(len(table), -1)
