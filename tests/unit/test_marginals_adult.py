"""All two-way tables of Adult: 14 columns, 9e16 cells, 148,137 numbers, measured for real."""

import json
from fractions import Fraction
from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np
import pytest
from cells_ask import CellsAsk

from noisegate.releases.axes import Axis
from noisegate.releases.marginal_fit import plan_tables
from noisegate.releases.marginal_tables import build_tables

DATA = Path(__file__).parents[3] / "shared" / "data" / "tabular"


@pytest.fixture(scope="module")
def adult():
    file = DATA / "adult.npz"
    if not file.exists():
        pytest.skip("The Adult table is not beside the repository (../shared/data/tabular).")
    sizes = json.loads((DATA / "adult-domain.json").read_text())
    with np.load(file) as held:
        return tuple(sizes.values()), [held[name].astype(np.int64) for name in sizes]


def counts(adult, axes):
    sizes, columns = adult
    places = np.zeros(len(columns[0]), np.int64)
    for axis in axes:
        places = places * sizes[axis] + columns[axis]
    found = np.bincount(places, minlength=prod(sizes[a] for a in axes))
    return found.reshape([sizes[a] for a in axes])


@pytest.mark.parametrize(
    ("gaussian", "price", "most"),
    [
        (True, Fraction(1178, 100_000), 0.046),  # (1, 1e-9): peers have 0.040 to 0.064
        (True, Fraction(12, 100_000), 0.19),  # (0.1, 1e-9): peers have 0.144 to 0.205
        (False, Fraction(1), 0.072),  # ε = 1 and δ = 0, a stronger promise
    ],
)
def test_two_way_tables_of_adult_are_as_near_as_those_of_models(adult, gaussian, price, most):
    """Mean total variation distance. Over trials it varies by a few per cent of itself."""
    sizes, columns = adult
    made = {}

    def ask_of(axes):
        if axes not in made:
            made[axes] = CellsAsk(counts(adult, axes), price, gaussian=gaussian)
        return made[axes]

    sets = list(combinations(range(len(sizes)), 2))
    plan = plan_tables(ask_of, sizes, sets, shrink=True)
    axes = tuple(Axis(name=str(i), keys=tuple(range(n))) for i, n in enumerate(sizes))
    release = build_tables(ask_of, plan, axes)
    assert sum(ask.spent.max() for ask in made.values()) <= 1 + 1e-9
    assert release.disagreement == 0
    assert min(table.min() for table in release.values) >= 0
    away = [
        np.abs(table / table.sum() - counts(adult, axes) / len(columns[0])).sum() / 2
        for axes, table in zip(release.sets, release.values, strict=True)
    ]
    assert np.mean(away) < most
