"""Running totals under continual observation: what was measured beside what the plan predicted.

The rows are papers by citations (HEPTH), taken as arrivals of one period after the other. Errors do
not depend on them. "As is" is the binary tree as published, without combining its nodes: its error
is known exactly. Geometric noise is for ε = 1, Gaussian noise for ρ = 1/2.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import sqrt
from statistics import mean

import numpy as np
import pyarrow as pa

import noisegate
from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Term
from noisegate.curator.series import Counter, questions
from noisegate.desk.terms.price import variance_of
from noisegate.noise.bits import SYSTEM
from noisegate.releases.forms.running import predicted, totals_of
from section import DATA, Effort, Shown, standard_error
from show import Column, Row

DATA_SET = "HEPTH"
PERIODS = (63, 365, 1023)
TRIALS = 20  # for each trial of the other sections: these are quick
SURE = 5  # standard errors
COLUMNS: tuple[Column, ...] = (
    ("periods", "periods", ",d"),
    ("noise", "noise", ""),
    ("factor", "factor", ""),
    ("measured RMS", "measured", ".3f"),
    ("predicted RMS", "predicted", ".3f"),
    ("mean square ÷ predicted", "ratio", ".3f"),
    ("±", "ratio_se", ".2g"),
    ("equal", "equal", "met"),
    ("tree as is", "plain", ".3f"),
    ("× lower than that", "lower", ".2f"),
)


def measure(effort: Effort) -> Iterator[Shown]:
    """Each factor at three lengths."""
    arrivals = np.load(DATA / "dpbench-1d" / "dpbench_1d_4096.npz")[DATA_SET].astype(np.int64)
    rows = [
        compared(
            arrivals[:periods], gaussian=gaussian, factor=factor, trials=effort.trials * TRIALS
        )
        for periods in PERIODS[: 1 if effort.quick else None]
        for gaussian, factor in ((False, "tree"), (True, "tree"), (True, "root"))
    ]
    yield Shown("Running totals: root mean square error of each", COLUMNS, rows)


def compared(arrivals: np.ndarray, *, gaussian: bool, factor: str, trials: int) -> Row:
    """One row of the table."""
    periods = arrivals.size
    counter = counter_of(periods, gaussian=gaussian, factor=factor)
    exact, weights = np.cumsum(arrivals), predicted(counter, periods)
    asked = [
        np.array([int(w @ arrivals[a : a + len(w)]) for a, w in _asked(counter, period)], np.int64)
        for period in range(periods)
    ]
    (epoch,) = counter.epochs
    noise, ends = counter.noise(epoch), np.cumsum([each.size for each in asked])[:-1]
    squares = []
    for _ in range(trials):
        noisy = noise.sample(np.concatenate(asked), bits=SYSTEM)
        off = totals_of(counter, np.split(noisy, ends)).values - exact
        squares.append(float((off**2).mean()))
    ratios = [each / float(weights.mean()) for each in squares]
    tree = counter_of(periods, gaussian=gaussian, factor="tree")
    nodes = mean(int(period).bit_count() for period in range(1, periods + 1))
    plain = sqrt(nodes * variance_of(tree.noise(tree.epochs[0])))
    measured, error = sqrt(mean(squares)), standard_error(ratios)
    return {
        "periods": periods,
        "noise": "Gaussian" if gaussian else "geometric",
        "factor": factor,
        "measured": measured,
        "predicted": sqrt(float(weights.mean())),
        "ratio": mean(ratios),
        "ratio_se": error,
        "equal": abs(mean(ratios) - 1) <= SURE * error,
        "plain": plain,
        "lower": plain / measured,
    }


def counter_of(periods: int, *, gaussian: bool, factor: str) -> Counter:
    """A counter of rows, one row a unit."""
    columns = {"t": {"type": "integer", "between": [0, periods - 1], "nullable": False}}
    gate = noisegate.open(
        pa.table({"t": [0]}), epsilon=1, columns=columns, table="arrivals", ledger=":memory:"
    )
    return Counter(
        relation=Table(gate.tables["arrivals"]),
        period=Field("t"),
        periods=tuple(range(periods)),
        term=Term(expression=Literal(1), grain=Fraction(1), low=0, high=1),
        rows_per_unit=None,
        amount=Fraction(1, 2) if gaussian else Fraction(1),
        gaussian=gaussian,
        horizon=periods,
        factor=factor,
    )


def _asked(counter: Counter, period: int) -> list[tuple[int, np.ndarray]]:
    return [(first, np.asarray(weights, np.int64)) for first, weights in questions(counter, period)]
