"""Multiplicative weights with the exponential mechanism: ask what the table has worst.

Each round chooses a question whose answer the present table has nearly the worst, measures it, and
moves the table towards what was measured; then all measurements are gone through again [HLM12].

Each measured number also shows how far the table was off there, before it learnt of it. A choice
prefers what is far off, so that these differences are in the mean no smaller than those of all
questions, whatever the rows are; those of the last rounds tell how far the last table is off.
"""

from fractions import Fraction
from math import log, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.weights import Weights
from noisegate.transforms.strategy import Block, Groups, Matrix

ROUNDS_MAX: Final = 500
REPLAYS: Final = 50
STEPS_MAX: Final = 1 << 15
TOTAL_SHARE: Final = Fraction(1, 20)
_OFTEN: Final = 2  # rounds for each question
_BOUND: Final = 2.5  # the bound's second term, 10 T ln|Q| / ε, in shortfalls of a choice
_LAST: Final = 2  # one in so many rounds shows how far the last table is off,
_LAST_LEAST: Final = 4  # but no fewer


class FittedTable(NamedTuple):
    """A table, and how far its answers are off.

    ``off`` is the root mean square over the questions, as the last rounds show it. ``noise`` is the
    variance of the total.
    """

    cells: Floats
    words: tuple[str, ...]
    off: float
    noise: float


def build(  # noqa: PLR0913 - the options of the method
    ask: Ask,
    block: Block,
    *,
    rounds: int | None = None,
    total: float | None = None,
    replays: int = REPLAYS,
    average: bool = False,
    kept: Fraction = Fraction(0),
) -> FittedTable:
    """A table for the questions of a block of 0 and 1.

    Args:
        ask: Whom to ask.
        block: The questions.
        rounds: How many are measured; by default as many as make the proven bound least, and at
            most two for each question.
        total: The sum of all cells, if it is public; else a twentieth of the price measures it.
        replays: How often past measurements are gone through after each round; 0 is the textbook.
            Of very many rounds it is fewer times, for about `STEPS_MAX` steps in all.
        average: Give the mean of all rounds' tables, which the proof is about, not the last.
        kept: The share of the price that is left for `checked`.
    """
    require_block(block)
    cells = int(np.prod(ask.shape))
    left, count, noise = 1 - kept, total, 0.0
    if count is None:
        (noisy,) = ask.sums([_set(np.ones(cells, np.bool_))], [TOTAL_SHARE])
        left, count, noise = left - TOTAL_SHARE, float(noisy.values[0]), noisy.variance
    count = max(1.0, count)
    times = rounds
    if times is None:
        times = best_rounds(ask, block.size, cells, count, left)
    share = left / (2 * times)
    replays = min(replays, max(1, STEPS_MAX // (times * (times + 1) // 2)))
    table = Weights(np.full(cells, count / cells))
    told: list[tuple[int, float]] = []
    away = np.zeros(times)
    tables = np.zeros(cells)
    for done in range(times):
        ask.done(0.05 + 0.9 * done / times, f"round {done + 1} of {times}")
        guesses = np.rint(answers(block, table.cells)).astype(np.int64)
        chosen = ask.furthest(block, guesses, share)
        mask = row_of(block, chosen)
        (noisy,) = ask.sums([_set(mask)], [share])
        told.append((table.add(mask), float(noisy.values[0])))
        away[done] = told[-1][1] - guesses[chosen]
        table.step(told[-1:])
        table.step(told, replays)
        tables += table.cells
    if replays:
        table.step(told, REPLAYS)
    found = tables / times if average else table.cells
    said = "1 question" if block.size == 1 else f"{block.size:,} questions"
    words = f"{times} rounds, each for the one of {said} that the table had worst"
    seen = times if average else min(times, max(_LAST_LEAST, -(-times // _LAST)))
    off = _off(away[-seen:], noisy.variance)
    return FittedTable(found.reshape(ask.shape), (words,), off, noise)


def checked(ask: Ask, block: Block, cells: Floats, share: Fraction) -> tuple[float, float]:
    """How far a table is off at the question that it has nearly the worst, and that noise's σ.

    Claim: at confidence 1 - β, no question of the block is off by more than the first, plus what
        noise of σ reaches and what the choice falls short of the worst, each at β/2, and 1/2 for
        the rounding of guesses. Why: union bound; the table is public by now.
    """
    guesses = np.rint(answers(block, cells.ravel())).astype(np.int64)
    chosen = ask.furthest(block, guesses, share / 2)
    (noisy,) = ask.sums([_set(row_of(block, chosen))], [share / 2])
    return abs(float(noisy.values[0]) - float(guesses[chosen])), sqrt(noisy.variance)


def best_rounds(ask: Ask, questions: int, cells: int, total: float, left: Fraction) -> int:
    """The rounds that make the bound 2n √(ln|X| / T) + 10 T ln|Q| / ε least [HLM12, Thm 2.2].

    Under zCDP a round's ε is that of its choice, which falls with √T only. At most two for each
    question: more would divide the price without gain.
    """
    everything = _set(np.ones(cells, np.bool_))

    def bound(times: int) -> float:
        variance = ask.variance(everything, left / (2 * times))
        epsilon = 2 / sqrt(variance) if ask.gaussian else sqrt(2 / variance)
        shortfall = 2 * log(max(2, questions)) / epsilon
        return 2 * total * sqrt(log(max(2, cells)) / times) + _BOUND * shortfall

    tried = sorted({max(1, round(1.2**power)) for power in range(35)} | {ROUNDS_MAX})
    return min(_OFTEN * questions, min(tried, key=bound))


def require_block(block: Block) -> None:
    """Refuse coefficients other than 0 and 1."""
    if isinstance(block, Matrix) and not np.all(block.matrix.data == 1):
        raise SpecError(
            "The questions have weights other than 0 and 1.", fix="Ask for counts.", about="weights"
        )


def answers(block: Block, table: Floats) -> Floats:
    """What a table says to all questions."""
    if isinstance(block, Matrix):
        found: Floats = block.matrix @ table
        return found
    held = block.labels >= 0
    return np.bincount(block.labels[held], table[held], block.size).astype(np.float64)


def row_of(block: Block, place: int) -> NDArray[np.bool_]:
    """The cells that a question counts."""
    if isinstance(block, Groups):
        inside: NDArray[np.bool_] = block.labels == place
        return inside
    mask = np.zeros(block.cells, np.bool_)
    matrix = block.matrix
    mask[matrix.indices[matrix.indptr[place] : matrix.indptr[place + 1]]] = True
    return mask


def _off(away: Floats, noise: float) -> float:
    """The root mean square of differences without their noise; or what may hide in that."""
    found = max(noise, float((away**2).mean()))
    return sqrt(max(found - noise, found * min(1.0, sqrt(2 / away.size))))


def _set(mask: NDArray[np.bool_]) -> Groups:
    return Groups(np.where(mask, 0, -1).astype(np.int32), 1)
