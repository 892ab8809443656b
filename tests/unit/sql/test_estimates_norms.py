"""Norms as rows: what a cap on norms loses of rows, where units spread over groups or do not."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.algebra.expression import Field
from noisegate.privacy.domain import Kind
from noisegate.sql.drafts.recipe import Recipe
from noisegate.sql.estimates.losses import Lost, raised
from noisegate.sql.estimates.norms import alike_of, lump_of, rows_of
from noisegate.sql.estimates.profiles import STEPS, Profile
from noisegate.sql.laws.laws import Interval
from noisegate.sql.question import Aggregate, Function


def units_of(kind, groups=12):
    """Rows of 20,000 units in groups: in any of them, or each in one."""
    coins = np.random.default_rng(11)
    rows = np.maximum(1, coins.lognormal(1, 1.2, 20_000).astype(int))
    if kind == "one":
        return np.eye(groups)[coins.integers(groups, size=rows.size)] * rows[:, None]
    return coins.multinomial(rows, np.full(groups, 1 / groups))


@pytest.mark.parametrize("kind", ["one", "any"])
@pytest.mark.parametrize("cap", [3, 5, 8])
def test_what_is_lost_in_rows_follows_from_what_is_left(kind, cap):
    """In months, a cap on norms loses 1.3 to 1.5 times as large a share of rows as of norms."""
    held = units_of(kind)
    norms, rows = np.linalg.norm(held, axis=1), held.sum(axis=1)
    weight = np.minimum(1, cap / norms)
    bins = np.searchsorted(STEPS, np.ceil(norms - 1e-9))
    profile = Profile(
        table="t", units=tuple(np.bincount(bins, minlength=len(STEPS)).tolist()), scale=0.5
    )
    kept, lost = float(rows @ weight), float(rows @ (1 - weight))
    found = profile.spread(cap, kept, 12)
    assert found.kept == pytest.approx(kept, rel=0.02)
    assert found.lost == pytest.approx(lost, rel=0.1)
    by_norm = profile.loss(cap)
    if kind == "one":
        assert found.lost == pytest.approx(by_norm.lost, rel=0.08)
    else:
        assert found.share > 1.1 * by_norm.share


def test_noise_beyond_all_norms_or_below_them_is_kept_within_what_groups_allow():
    profile = Profile(table="t", units=(0, 0, 1000, *[0] * (len(STEPS) - 3)), scale=5.0)
    least = profile.loss(2).kept
    assert profile.spread(2, -1e9, 4).kept == pytest.approx(least)
    assert profile.spread(2, 1e12, 4).kept == pytest.approx(2 * least)
    assert np.isfinite(profile.spread(2, 1e12, 4).drawn).all()


def test_norms_and_rows_of_each_other():
    norms = np.array([1.0, 3.0, 50.0])
    for alike in (1.0, 0.5, 0.05):
        rows = rows_of(norms, alike, 1.0)
        assert rows * (1 - alike) + alike * rows**2 == pytest.approx(norms**2)
    units = np.array([10.0, 5.0, 2.0])
    kept = float(units * np.minimum(1, 4 / norms) @ rows_of(norms, 0.3, 1.0))
    assert alike_of(norms, units, 4.0, kept, 1.0, cells=12) == pytest.approx(0.3)
    assert lump_of(norms, np.array([1.0, 8.0, 1.0])) == 3.0


@pytest.mark.parametrize("is_norm", [True, False])
def test_sums_of_both_signs_lose_as_much_where_they_cancel(is_norm):
    """Groups that add up to nothing say nothing of how many rows a cap keeps."""
    profile = Profile(table="t", units=(500, 400, 300, 200, 100, 50, *[0] * 41), scale=2.0)
    lost = Lost(loss=profile.loss(3), is_norm=is_norm, units={0: 10.0}, signed=frozenset({0}))
    asked = Aggregate(name="s", function=Function.SUM, args=(Field("y"),))
    recipe = Recipe(aggregate=asked, kind=Kind.INTEGER, direct=0)
    factors, widths = [], []
    for at in (0, 10, 10_000):
        values = np.array([at, -at], np.int64)
        shown, bars, _ = raised(
            lost, recipe, values, lambda _, at=values: Interval(at - 1.0, at + 1.0)
        )
        ends = bars(Fraction(95, 100))
        widths.append(float((ends.high - ends.low)[0]) / 2)
        factors.append(shown[0] / at if at else None)
    assert widths[0] > 10 * np.sqrt(np.median(lost.loss.squares))
    assert widths[:2] == pytest.approx([widths[0]] * 2, rel=0.05)
    assert factors[2] == pytest.approx(lost.loss.factor, rel=0.01)


@pytest.mark.parametrize("kind", ["one", "any", "few"])
@pytest.mark.parametrize("cap", [1, 3, 8])
def test_what_found_groups_lose_lies_between_what_their_norm_allows(kind, cap):
    """The four largest groups are known; a cap divides these by more than it divides norms."""
    if kind == "few":
        coins, part = np.random.default_rng(11), 1 / np.arange(1, 301)
        sizes = np.minimum(coins.zipf(1.9, 5_000), 500)
        held = coins.multinomial(sizes, part / part.sum())
    else:
        held = units_of(kind)
    norms, rows = np.linalg.norm(held, axis=1), held.sum(axis=0)
    kept = np.minimum(1, cap / norms) @ held
    largest = np.argsort(-rows)[:4]
    bins = np.searchsorted(STEPS, np.ceil(norms - 1e-9))
    units = tuple(np.bincount(bins, minlength=len(STEPS)).tolist())
    profile = Profile(table="t", units=units, scale=0.5)
    found = kept[largest]
    loss = profile.partly(cap, float(found.sum()), float(np.linalg.norm(found)))
    least, most = np.quantile(1 + loss.drawn / loss.kept, [0.025, 0.975])
    assert least <= 1.1 * (rows / kept)[largest].min()
    assert most >= (rows / kept)[largest].max()
    if kind != "one":
        assert profile.loss(cap).factor < (rows / kept)[largest].min()


def test_found_groups_of_units_below_the_cap_lose_nothing():
    profile = Profile(table="t", units=(0, 0, 1000, *[0] * (len(STEPS) - 3)), scale=0.5)
    loss = profile.partly(3, 500.0, 1.0)
    assert loss.lost == pytest.approx(0, abs=1)


@pytest.mark.long
def test_margins_of_found_groups_cover_counts_of_units_with_many_rows():
    """Of groups and units by Zipf's law less than half were covered."""
    coins, part = np.random.default_rng(3), 1 / np.arange(1, 301)
    sizes = np.minimum(coins.zipf(1.8, 3_500), 900)
    who = np.repeat(np.arange(sizes.size), sizes)
    group = coins.choice(300, who.size, p=part / part.sum())
    rows, exact = pa.table({"who": who, "g": group.astype(str)}), np.bincount(group)
    covered = []
    for _ in range(16):
        terms = {"unit": "who", "epsilon": 100, "delta": "1e-2", "accountant": "zcdp"}
        gate = ng.open(rows, table="t", **terms)
        found = gate.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=0.4, delta="1e-6")
        at = zip(found.rows, found.margins()["n"], strict=True)
        covered += [abs(n - exact[int(g)]) <= off for (g, n), off in at]
    assert len(covered) > 16
    assert np.mean(covered) >= 0.6  # of 16 looks, of which each is off in all groups or none
