"""What a cap loses, given what was measured under it: Bayes' rule over the draws of the model."""

from fractions import Fraction
from math import log

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.sql.estimates import estimate
from noisegate.sql.estimates.bounded import Loss
from noisegate.sql.estimates.profiles import STEPS, Profile
from noisegate.sql.estimates.unseen import DRAWS

SURE = Fraction(95, 100)
HALF = DRAWS // 2


def two_kinds():
    """Half of the draws keep 100 and lose nothing, the others keep 200 and lose 50."""
    late = np.arange(DRAWS) >= HALF
    drawn = np.where(late, 50.0, 0.0)
    return Loss(
        cap=5, kept=150.0, drawn=drawn, squares=4 * drawn, held=np.where(late, 200.0, 100.0)
    )


@pytest.mark.parametrize(("kept", "lost"), [(100.0, 0.0), (200.0, 50.0)])
def test_what_was_measured_tells_draws_apart(kept, lost):
    loss = two_kinds().given(kept, 1.0, about=10.0)
    assert (loss.drawn == lost).all()
    assert (loss.squares == 4 * lost).all()
    assert (loss.held == kept).all()
    assert (loss.kept, loss.lost) == (kept, 10.0)  # what is added is what it was
    (off,) = loss.off(np.ones(1), SURE)
    assert off == pytest.approx(abs(lost - 10))


def test_draws_are_as_likely_as_laplace_noise_says():
    """Of a scale of 100 / ln 3, off by 100 is a third as likely; draws stand for few around."""
    loss = two_kinds().given(200.0, 100 / log(3), about=0.0)
    assert np.mean(loss.drawn == 50) == pytest.approx(3 / 4, abs=0.01)
    blind = two_kinds().given(150.0, 1.0, about=0.0)  # as far from both
    assert np.mean(blind.drawn == 50) == pytest.approx(1 / 2, abs=0.01)


def test_a_sum_that_is_mostly_noise_does_not_tell_what_is_kept():
    assert two_kinds().given(20.0, 60.0, about=0.0).kept == 100
    assert two_kinds().given(200.0, 60.0, about=0.0).kept == 200


@pytest.mark.parametrize("kept", [-1e5, 500.0, 1e7])
def test_many_draws_are_left_however_far_they_are_from_what_was_measured(kept):
    """All differ, from 1 on. From far away one would count alone, if draws stood for themselves."""
    held = np.arange(1.0, DRAWS + 1)
    loss = Loss(cap=5, kept=500.0, drawn=held, squares=held, held=held)
    found = loss.given(kept, 0.01, about=0.0)
    assert 50 <= np.unique(found.drawn).size < 0.9 * DRAWS
    assert abs(np.median(found.held) - np.clip(kept, 1, DRAWS)) < 200


LAWS = {
    "power law": (lambda r: np.minimum(r.zipf(2.1, 6_000), 4_000), 1.0),
    "lognormal": (lambda r: np.maximum(1, r.lognormal(1, 1.6, 4_000).astype(int)), 1.0),
    "few": (lambda r: r.integers(1, 90, 300), 0.1),
    "fewer": (lambda r: 1 + r.poisson(12, 200), 0.1),
}


def counts(law):
    """Of 60 counts with a found cap: how far each is off, its ± by the look alone, and as told."""
    make, epsilon = LAWS[law]
    random = np.random.default_rng(5)
    look, rest = (0.2, 0.8) if epsilon == 1 else (0.048, 0.052)
    found = []
    for _ in range(60):
        sizes = make(random)
        exact, _ = np.histogram(sizes, bins=np.concatenate([[0], STEPS]) + 0.5)
        units = exact + np.rint(random.laplace(0, 1 / look, exact.size)).astype(int)
        profile = Profile(table="t", units=tuple(units.tolist()), scale=1 / look)
        cap = profile.best(rest)
        noise = cap / rest
        kept = np.minimum(sizes, cap).sum() + random.laplace(0, noise)
        alone = profile.loss(cap)
        told = profile.wide.loss(float(cap)).given(kept, noise, about=alone.lost)
        for loss in (alone, told):
            near = np.clip(kept, loss.kept / 2, loss.kept * 2)
            share, width = np.array([abs(kept) / near]), np.array([log(20) * noise])
            (bar,) = loss.off(share, SURE, noise=width)
            found.append((abs(kept * (1 + loss.lost / near) - sizes.sum()), bar))
    return np.array(found).reshape(60, 2, 2).transpose(1, 2, 0)


@pytest.mark.long
@pytest.mark.parametrize(("law", "part"), [("power law", 1.3), ("lognormal", 0.9)])
def test_bars_of_heavy_tails_are_narrower_or_hold_more(law, part):
    """The seed is fixed. With five, told bars held 52 to 56 of 60 Zipf tables, where others held 45
    to 53, for 0.8 to 1.2 times their width; and of lognormal ones 50 to 58, where others held 50 to
    57, for 0.5 to 0.8 times.
    """
    (before, former), (off, bars) = counts(law)
    assert np.sum(off <= bars) >= max(46, np.sum(before <= former))
    assert np.exp(np.mean(np.log(bars / former))) < part


@pytest.mark.long
@pytest.mark.parametrize(("law", "most"), [("few", 20), ("fewer", 38)])
def test_bars_of_small_tables_know_of_units_that_a_coarse_look_does_not_see(law, most):
    """No bin stands clear, and yet much was measured. The seed is fixed."""
    (before, former), (off, bars) = counts(law)
    assert np.sum(before <= former) < most
    assert np.sum(off <= bars) > 44


def opened():
    random = np.random.default_rng(5)
    size = np.minimum(random.zipf(1.8, 3_000), 2_000)
    who = np.repeat(np.arange(size.size), size)
    rows = pa.table({
        "who": who, "w": random.integers(0, 4, who.size), "x": random.gamma(2, 10, who.size),
        "y": random.normal(0, 1, who.size),
    })  # fmt: skip
    columns = {"w": {"in": [0, 1, 2, 3]}, "x": {"between": [0, 200]}, "y": {"between": [-5, 5]}}
    return ng.open(rows, epsilon=100_000, table="t", unit="who", columns=columns)


@pytest.mark.parametrize(
    ("sql", "telling"),
    [
        ("SELECT COUNT(*) AS n FROM t", True),
        ("SELECT w, COUNT(*) AS n FROM t GROUP BY w", True),
        ("SELECT COUNT(*) AS n FROM t WHERE w < 2", True),
        ("SELECT SUM(x) AS n FROM t", True),
        ("SELECT SUM(y) AS n FROM t", False),  # of either sign: what it adds up to tells nothing
        ("SELECT COUNT(*) FILTER (WHERE w = 1) AS n FROM t", False),
        ("SELECT AVG(x) AS n FROM t", False),
    ],
)
def test_numbers_are_as_they_were_and_their_bars_follow_what_was_measured(
    monkeypatch, sql, telling
):
    gate = opened()
    told = gate.sql(sql, epsilon=1)
    monkeypatch.setattr(estimate, "told", lambda lost, *_: lost)
    again = gate.sql(sql, epsilon=1)
    assert (again.free, again.rows) == (True, told.rows)
    assert again.noise_margins() == told.noise_margins()
    assert (again.margins() != told.margins()) is telling


@pytest.mark.long
def test_found_groups_are_not_taken_to_hold_all_rows():
    """Of four groups one or two are shown: these alone were raised by what all groups lose."""
    random = np.random.default_rng(2)
    sizes = random.geometric(1 / 20, 1500)
    unit = np.repeat(np.arange(1500), sizes)
    key = random.choice(["a", "b", "c", "d"], unit.size, p=[0.31, 0.23, 0.23, 0.23])
    table = pa.table({"who": unit, "key": key})
    shown = []
    for _ in range(20):
        gate = ng.open(table, epsilon=9, delta=1e-3, unit="who", table="calls")
        sql = "SELECT key, COUNT(*) AS n FROM calls GROUP BY key"
        found = gate.sql(sql, epsilon="1/10")
        shown += [n / np.mean(key == name) for name, n in found.rows]
    # formerly 3 to 4; each errs by about a quarter, so such a median is wrong in less than 1 of 1,000
    assert 0.6 < np.median(shown) / unit.size < 1.4
