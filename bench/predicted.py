"""How far each recipe says that it is off, before paying and with its release, and how far it is.

Before paying, a recipe that can tell predicts the root mean square error of its questions, before
numbers are mended; others say what it is at most, or by noise alone. With the release, every answer
has a ± at 95 %: by the noise, or by a model of the rows where it depends on them. Intervals are at
99.9 %, over the trials.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import stdtrit

from noisegate.desk.terms.price import Price
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.releases.ask.transcript import Listening, Told
from noisegate.releases.cells.axes import Axis
from noisegate.releases.forms.provenance import Making, Spec, workload_of
from noisegate.releases.forms.table import TableRelease
from noisegate.releases.recipes import RECIPES, recipe
from section import DATA, Effort, Shown, released, sample, standard_error
from show import Column, Row
from trials import TrialAsk

EPSILON, CONFIDENCE, SURE = Fraction(1, 10), 0.95, 0.999
ROWS = 100_000
COLUMNS: tuple[Column, ...] = (
    ("recipe", "recipe", ""),
    ("data", "data", ""),
    ("asked for", "workload", ""),
    ("predicted", "predicted", ".4g"),
    ("at most", "most", ".4g"),
    ("noise alone", "noise", ".4g"),
    ("measured", "measured", ".4g"),
    ("measured / predicted", "ratio", ".3f"),
    ("from", "low", ".3f"),
    ("to", "high", ".3f"),
    ("1 is inside", "inside", "met"),
    ("have a ±", "told", ".3f"),
    ("within ±", "within", ".3f"),
    ("up to", "within_high", ".3f"),
    ("95 % is inside", "held", "met"),
    ("± / needed", "wider", ".2f"),
)


@dataclass(frozen=True)
class Case:
    """What a recipe is tried on."""

    data: str = "HEPTH"
    size: tuple[int, ...] = (256,)
    workload: Spec = "ranges"
    options: dict[str, Any] = field(default_factory=dict)
    gaussian: bool = False

    @property
    def price(self) -> Price:
        """As much as an account of either kind pays."""
        amount = EPSILON**2 / 2 if self.gaussian else EPSILON
        return Price(amount=amount, gaussian=self.gaussian)


LINE, MAP = Case(), Case("GOWALLA", (32, 32))
CASES: dict[str, Case] = {
    "cells": Case(workload="cells"),
    "convex": Case(size=(64,), gaussian=True),
    "adaptive": Case(workload="cells"),
    "ahp": Case(workload="cells"),
    "sketch": Case(workload="cells"),
    "sensing": Case(workload="cells"),
    "mwem": Case(size=(64,)),
    "totals": Case(
        workload="cells", options={"parents": (tuple((np.arange(256) // 16).tolist()),)}
    ),
    "marginals": Case("GOWALLA", (16, 16), "marginals"),
    "seasonal": Case("GOWALLA", (16, 16), "cells"),
    "direct": Case(
        workload={"lows": [[0], [20], [100]], "highs": [[127], [59], [255]], "words": "3 ranges"}
    ),
    **dict.fromkeys(
        ("quadtree", "kdtree", "hybrid", "privtree", "uniform-grid", "adaptive-grid"), MAP
    ),
}


def measure(effort: Effort) -> Iterator[Shown]:
    """Every recipe on a table that suits it."""
    rows = []
    for name in RECIPES:
        row = compared(name, CASES.get(name, LINE), effort.trials)
        rows.append(row)
        effort.say(f"{name}: within ± {row['within'] if row['within'] is not None else '?'}")
    yield Shown(f"Stated and measured error, {ROWS:,} rows, ε = {float(EPSILON):g}", COLUMNS, rows)


def compared(name: str, case: Case, trials: int) -> Row:
    """One recipe: its prediction beside its error, and how many answers lie within their ±."""
    asked = workload_of(case.workload, case.size)
    ask = Told(case.price, shape=case.size, moved=1)
    before = recipe(name, **case.options).predict(ask, asked)
    predicted = before.rms
    squares, told, within, ratios = [], [], [], []
    for trial in range(trials):
        table = sample(shape_of(case), ROWS, trial)
        raw, release = made(name, case, table)
        exact = asked.answers(table)
        squares.append(float(np.mean((asked.answers(raw) - exact) ** 2)))
        widths = np.array(release.widths(asked, CONFIDENCE) or [None] * asked.size, np.float64)
        known = np.isfinite(widths)
        told.append(float(known.mean()))
        if known.any():
            away = np.abs(asked.answers(release.values) - exact)[known]
            within.append(float(np.mean(away <= widths[known])))
            ratios.append(away / np.maximum(widths[known], 0.5))
    row = {"recipe": name, "data": f"{case.data} {' × '.join(map(str, case.size))}",
           "workload": asked.words, "predicted": predicted, "most": before.most,
           "noise": before.noise, "measured": sqrt(np.mean(squares)),
           "told": float(np.mean(told)), "within": None}  # fmt: skip
    if predicted is not None:
        row |= _beside(squares, predicted)
    if within:
        high = float(np.mean(within)) + _times(trials) * standard_error(within)
        needed = float(np.quantile(np.concatenate(ratios), CONFIDENCE))
        row |= {"within": float(np.mean(within)), "within_high": min(1.0, high),
                "held": high >= CONFIDENCE, "wider": 1 / needed if needed else None}  # fmt: skip
    return row


def _beside(squares: list[float], predicted: float) -> Row:
    mean, far = float(np.mean(squares)), _times(len(squares)) * standard_error(squares)
    low, ratio, high = (sqrt(max(0.0, each)) / predicted for each in (mean - far, mean, mean + far))
    return {"ratio": ratio, "low": low, "high": high, "inside": low <= 1 <= high}


def _times(trials: int) -> float:
    """Standard errors to either side, of so many trials."""
    return float(stdtrit(max(1, trials - 1), (1 + SURE) / 2))


def shape_of(case: Case) -> np.ndarray:
    """Real data in fewer, larger cells."""
    kind = f"{len(case.size)}d"
    file = "dpbench_1d_4096.npz" if kind == "1d" else "dpbench_2d_256x256.npz"
    stored = np.load(DATA / f"dpbench-{kind}" / file)[case.data]
    for axis, size in enumerate(case.size):
        starts = np.arange(0, stored.shape[axis], stored.shape[axis] // size)
        stored = np.add.reduceat(stored, starts, axis=axis)
    return stored


def made(name: str, case: Case, table: np.ndarray) -> tuple[np.ndarray, TableRelease]:
    """The recipe's numbers before mending, and the release as the workbench makes it."""
    asked = workload_of(case.workload, case.size)
    ask = Listening(TrialAsk(table, case.price.amount, bits=SYSTEM, gaussian=case.gaussian))
    found = recipe(name, **case.options).build(ask, asked)
    making = Making(
        method=name, options=case.options, workload=case.workload, price=case.price, moved=1,
        grain=Fraction(1), whole=True, signed=False, rounds=tuple(ask.rounds),
    )  # fmt: skip
    axes = tuple(Axis(name=f"x{at}", keys=tuple(range(size))) for at, size in enumerate(case.size))
    unit = Guarantee(loss=ApproxDP(EPSILON), unit=PrivacyUnit(column=None), scope="a trial")
    release = TableRelease(
        sql="", axes=axes, values=released(found, asked), value="n", making=making, words=(),
        cost=ApproxDP(EPSILON), remaining=None, guarantee=unit, question="", request_id="",
    )  # fmt: skip
    return found.cells.reshape(case.size), release
