"""Draws per second of every law beside its NumPy counterpart, first use, and memory."""

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from clock import Timing, once, side_by_side
from noisegate.noise.binomials import binomial
from noisegate.noise.choice import Contest, choose
from noisegate.noise.coins import bernoulli
from noisegate.noise.continuous import Gaussian, Laplace, StudentT, rounded
from noisegate.noise.gaussian import discrete_gaussian
from noisegate.noise.geometric import discrete_laplace, geometric

CELLS = 10_000_000
HISTOGRAM_CELLS = 64_909
OPENDP_GAUSSIAN_PER_S = 78_000  # on a machine of the same kind; bench-peers measures it anew
SHORT_CELLS = 100_000  # runs of fewer cells are short, and repeated more often
SMALL_BYTES = 1 << 20  # what any draw needs besides its output is no multiple of a small output

Row = dict[str, Any]
Draw = Callable[[int], Any]
rng = np.random.default_rng()


@dataclass(frozen=True)
class Target:
    """A stated aim, in words and as a test of a row."""

    text: str
    met: Callable[[Row], bool]


AS_FAST_AS_NUMPY = Target("≥ 1 × NumPy", lambda row: row["times_numpy"] >= 1)
HUNDRED_OPENDP = Target("≥ 7.8 M/s", lambda row: row["draws_per_s"] >= 100 * OPENDP_GAUSSIAN_PER_S)
UNDER_5_MS = Target("< 5 ms", lambda row: row["wall_ms"] < 5)
THREE_ARRAYS = Target("≤ 3 arrays", lambda row: row["peak_arrays"] <= 3)


@dataclass(frozen=True)
class Case:
    """One law: how we draw it, how NumPy draws its nearest relative, what is aimed at."""

    law: str
    draw: Draw
    numpy: str
    divisor: int = 1  # of the number of cells, for slower laws
    item_bytes: int = 8  # of the output; of the scores, where one of them is chosen
    target: Target | None = None

    def size(self, cells: int) -> int:
        return max(1, cells // self.divisor)


def _histogram(cells: int) -> Any:
    return _counts(cells) + discrete_laplace(1, cells)


def _choose(cells: int) -> Any:
    return choose(Contest(_counts(cells), Fraction(1, 100)))


@cache
def _counts(cells: int) -> Any:
    return rng.integers(0, 1000, cells)


NUMPY: dict[str, Draw] = {
    "laplace": lambda n: rng.laplace(size=n),
    "normal": lambda n: rng.normal(size=n),
    "geometric": lambda n: rng.geometric(0.1, n),
    "random < p": lambda n: rng.random(n) < 1 / 3,
    "cauchy": rng.standard_cauchy,
    "standard_t": lambda n: rng.standard_t(3, n),
    "binomial small": lambda n: rng.binomial(100, 0.3, n),
    "binomial large": lambda n: rng.binomial(10**9, 0.3, n),
    "gumbel, argmax": lambda n: np.argmax(_counts(n) * 0.01 + rng.gumbel(size=n)),
    "counts + laplace": lambda n: _counts(n) + rng.laplace(size=n),
}

CASES = (
    Case("discrete Laplace, scale 1/2", partial(discrete_laplace, "1/2"), "laplace"),
    Case("… 1", partial(discrete_laplace, 1), "laplace", target=AS_FAST_AS_NUMPY),
    Case("… 4", partial(discrete_laplace, 4), "laplace"),
    Case("… 1000", partial(discrete_laplace, 1000), "laplace", target=AS_FAST_AS_NUMPY),
    Case("… 2^20", partial(discrete_laplace, 2**20), "laplace"),
    Case("… 2^40", partial(discrete_laplace, 2**40), "laplace"),
    Case("geometric, scale 10", partial(geometric, 10), "geometric"),
    Case("discrete Gaussian, σ 1", partial(discrete_gaussian, 1), "normal", target=HUNDRED_OPENDP),
    Case("… 10", partial(discrete_gaussian, 10), "normal", target=HUNDRED_OPENDP),
    Case("… 64", partial(discrete_gaussian, 64), "normal", target=HUNDRED_OPENDP),
    Case("… 65", partial(discrete_gaussian, 65), "normal", target=HUNDRED_OPENDP),
    Case("… 1000", partial(discrete_gaussian, 1000), "normal", target=HUNDRED_OPENDP),
    Case("coins of bias 1/3", partial(bernoulli, "1/3"), "random < p", item_bytes=1),
    Case("rounded Laplace, scale 1024", partial(rounded, Laplace(), 1024), "laplace", 10),
    Case("rounded Gaussian, scale 1024", partial(rounded, Gaussian(), 1024), "normal", 10),
    Case("rounded Cauchy, scale 1024", partial(rounded, StudentT(1), 1024), "cauchy", 10),
    Case("rounded t3, scale 1024", partial(rounded, StudentT(3), 1024), "standard_t", 10),
    Case("choice among the cells", _choose, "gumbel, argmax", 10),
    Case("binomial, 100 trials", partial(binomial, 100, "3/10"), "binomial small"),
    Case("binomial, 10^9 trials", partial(binomial, 10**9, "3/10"), "binomial large", 100_000),
)
HISTOGRAM = Case("noised histogram, scale 1", _histogram, "counts + laplace", target=UNDER_5_MS)


def measure(
    cells: int = CELLS, *, repeats: int = 5, cases: tuple[Case, ...] = CASES
) -> dict[str, list[Row]]:
    """The speed table and the table of first use and memory."""
    speed = [_speed(case, case.size(cells), repeats) for case in cases]
    speed.append(_speed(HISTOGRAM, min(cells, HISTOGRAM_CELLS), repeats))
    return {"speed": speed, "room": [_room(case, case.size(cells)) for case in cases]}


def warm(draw: Draw, cells: int, *, repeats: int) -> Timing:
    """One of our laws alone, its table built beforehand."""
    return side_by_side([partial(draw, cells)], repeats=repeats)[0]


def _speed(case: Case, size: int, repeats: int) -> Row:
    runs = repeats if size >= SHORT_CELLS else 5 * repeats
    ours, theirs = side_by_side(
        [partial(case.draw, size), partial(NUMPY[case.numpy], size)], repeats=runs
    )
    row: Row = {
        "law": case.law,
        "size": size,
        "wall_ms": ours.wall_ms,
        "cpu_ms": ours.cpu_ms,
        "draws_per_s": size / ours.cpu_ms * 1e3,
        "numpy": case.numpy,
        "numpy_wall_ms": theirs.wall_ms,
        "numpy_cpu_ms": theirs.cpu_ms,
        "times_numpy": theirs.cpu_ms / ours.cpu_ms,
    }
    return _judged(row, case.target)


def _room(case: Case, size: int) -> Row:
    """First use with every cache of the package empty, then the peak of memory of a warm draw."""
    first_size = min(size, 1 << 16)
    forget_tables()
    first = once(partial(case.draw, first_size))
    again = once(partial(case.draw, first_size))
    row: Row = {
        "law": case.law,
        "size": size,
        "first_ms": first.wall_ms,
        "again_ms": again.wall_ms,
        "peak_arrays": peak_bytes(partial(case.draw, size)) / (case.item_bytes * size),
    }
    return _judged(row, THREE_ARRAYS if case.item_bytes * size >= SMALL_BYTES else None)


def _judged(row: Row, target: Target | None) -> Row:
    row["target"] = target.text if target else None
    row["met"] = target.met(row) if target else None
    return row


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most that was allocated at once, output included, beyond what was there before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def forget_tables() -> None:
    """Empty every function cache of the package."""
    ours = [module for name, module in sys.modules.items() if name.startswith("noisegate.")]
    for module in ours:
        for thing in list(vars(module).values()):
            if hasattr(thing, "cache_clear"):
                thing.cache_clear()
