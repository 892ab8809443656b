"""Lower bounds beside what is reached: how near any private mechanism could come.

>>> [row.task for row in bounds(epsilon=1)][:2]
['one count', 'the best of 1,000 candidates']
>>> all(row.least <= row.reached for row in bounds(epsilon="0.1"))
True
"""

from math import exp, log
from typing import final

import numpy as np

from noisegate.exact import Number, positive
from noisegate.frozen import dataclass

_MANY = 1000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """No ε-private mechanism has an error below ``least``; ours has ``reached``."""

    task: str
    error: str
    least: float
    reached: float
    why: str


def bounds(*, epsilon: Number = 1, many: int = _MANY) -> list[Bound]:
    """Four tasks at an ε. Adjacency: add/remove one row; all in closed form, for pure ε."""
    price = float(positive(epsilon, name="epsilon"))
    return [_count(price), _best(price, many), _histogram(price, many), _subsets(price, many)]


def _count(epsilon: float) -> Bound:
    """Claim: some count errs by at least max over g of g / (2 (1 + e^(gε))), in the mean.

    Why: counts n and n + g differ in g rows, so whoever tells them apart errs with at least
        1 / (1 + e^(gε)) on one of them; an estimate nearer to the other is off by g/2 or more.
    """
    gaps = np.arange(1, max(2, int(10 / epsilon)) + 1)
    least = float((gaps / (2 * (1 + np.exp(gaps * epsilon)))).max())
    alpha = exp(-epsilon)
    return Bound(
        task="one count", error="mean error", least=least, reached=2 * alpha / (1 - alpha**2),
        why="two counts g apart; the geometric mechanism is optimal for every loss [GRS09]",
    )  # fmt: skip


def _best(epsilon: float, many: int) -> Bound:
    """Claim: a lead below ln(m/2) / ε is missed with one half on some table.

    Why: m tables with a lead of t for one candidate each are t rows from the empty one, so its
        choice is right with at most e^(tε) / m on one of them. Reached: e^(tε) / (e^(tε) + m - 1).
    """
    return Bound(
        task=f"the best of {many:,} candidates", error="lead that is found with one half",
        least=max(0.0, log(many / 2) / epsilon), reached=log(many - 1) / epsilon,
        why="packing: as many tables as candidates, all near the empty one [HT10]",
    )  # fmt: skip


def _histogram(epsilon: float, many: int) -> Bound:
    """Claim: the largest error of k counts is at least ln(k/2) / 2ε with one half.

    Why: the same tables; whoever has all cells within t/2 of the truth finds the cell of t rows.
        Reached: the median of the largest of k geometric errors.
    """
    alpha = exp(-epsilon)
    share = 1 - 0.5 ** (1 / many)  # of one cell to be beyond
    reached = log(2 / ((1 + alpha) * share)) / epsilon - 1
    return Bound(
        task=f"a histogram of {many:,} cells", error="median of the largest error",
        least=max(0.0, log(many / 2) / (2 * epsilon)), reached=reached,
        why="packing, as above; noise for each cell is within a factor of about 2",
    )  # fmt: skip


def _subsets(epsilon: float, many: int) -> Bound:
    """Claim: all subset sums of n bits cannot be within n / (4 (1 + e^ε)).

    Why: answers within E of all of them give all bits but 4 E [DN03], and an ε-private answer lets
        nobody know a bit with more than e^ε / (1 + e^ε): n / (1 + e^ε) are wrong in the mean.
        Reached: noise on each bit (randomised response), the worst subset.
    """
    true = exp(epsilon) / (1 + exp(epsilon))
    up = true * ((1 - true) / (2 * true - 1))
    return Bound(
        task=f"all subsets of {many:,} bits", error="error of the worst subset",
        least=many / (4 * (1 + exp(epsilon))), reached=many * up,
        why="reconstruction: too accurate answers give the bits away [DN03]",
    )  # fmt: skip
