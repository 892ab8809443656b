"""Quantiles by themselves, without a door: beside NumPy's selection, and their bare races."""

from fractions import Fraction

import numpy as np

from clock import side_by_side
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.noise.choice import Contest, choose
from query import rank_error
from show import Row

VALUES, CELLS, OF_A_CELL = 10_000_000, 1000, 100
LEVELS = (0.25, 0.5, 0.75)
TAUS = ("1/4", "1/2", "3/4")


def measure(size: int = VALUES, cells: int = CELLS, *, repeats: int = 3) -> list[Row]:
    """One large column, and many small cells; what each stands beside comes before it."""
    chance = np.random.default_rng(1)  # public test data, not noise
    values = chance.integers(0, 10**8, size)
    one = Quantiles.for_epsilon(4, taus=TAUS, low=0, high=10**8)
    places = [int(level * size) for level in LEVELS]
    rows = _beside(
        (f"numpy.partition of {size:,} values", lambda: np.partition(values, places)),
        ("quartiles", lambda: one.sample(values)),
        target=3,
        repeats=repeats,
    )
    rows[-1]["rank_error"] = rank_error(values.astype(float), tuple(one.sample(values).tolist()))
    small = list(chance.integers(0, 10**6, (cells, OF_A_CELL)))
    each = Quantiles.for_epsilon(1, taus=TAUS, low=0, high=10**6)
    contest = Contest(-np.arange(201), Fraction(1, 4), np.full(201, 1000))
    return rows + _beside(
        (f"{3 * cells:,} bare races", lambda: [choose(contest) for _ in range(3 * cells)]),
        (f"quartiles of {cells:,} cells", lambda: each.sample_cells(small)),
        target=4,
        repeats=repeats,
    )


def _beside(*pair: tuple[str, object], target: int, repeats: int) -> list[Row]:
    (base, ours), names = (
        side_by_side([run for _, run in pair], repeats=repeats),
        [n for n, _ in pair],
    )
    times = ours.cpu_ms / base.cpu_ms
    first: Row = {"way": names[0], "wall_ms": base.wall_ms, "cpu_ms": base.cpu_ms}
    second: Row = {
        "way": names[1],
        "wall_ms": ours.wall_ms,
        "cpu_ms": ours.cpu_ms,
        "times_wall": ours.wall_ms / base.wall_ms,
        "times_cpu": times,
        "target": f"{target} of CPU",
        "met": times <= target,
    }
    return [first, second]
