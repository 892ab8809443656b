"""How much of a price looks at caps take, and what caps are chosen by."""

from dataclasses import replace
from fractions import Fraction
from functools import partialmethod

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.sql import job
from noisegate.sql.bounds.looks import looks_of
from noisegate.sql.bounds.sized import _of_sums, former_share_of, share_of
from noisegate.sql.estimates.profiles import STEPS, Profile
from noisegate.sql.steps import asked, formerly

PRICES = [Fraction(each, 100) for each in (1, 5, 10, 20, 24, 30, 50, 100, 130, 160, 200, 1000)]


def profile(rows, scale, noise=()):
    """Exact numbers of units, and more of them in some bins."""
    units = np.bincount(np.searchsorted(STEPS, rows), minlength=len(STEPS))
    for place, more in noise:
        units[place] += more
    return Profile(table="t", units=tuple(units.tolist()), scale=scale)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("ratios", [False, True])
@pytest.mark.parametrize("power", [1, 2])  # of the step: what adds up is ε, or ρ
def test_a_higher_price_never_buys_a_noisier_look(two, ratios, power):
    shares = [share_of(each, two=two, ratios=ratios, rho=power > 1) for each in PRICES]
    bought = [price**power * share for price, share in zip(PRICES, shares, strict=True)]
    assert bought == sorted(bought)
    assert all(share <= Fraction(1, 2) for share in shares)


def test_looks_cost_what_the_documents_say():
    alone = {price: share_of(Fraction(price), two=False, ratios=False) for price in ("0.1", 1, 2)}
    assert alone == {"0.1": Fraction(12, 25), 1: Fraction(1, 5), 2: Fraction(1, 8)}
    assert share_of(Fraction(1), two=True, ratios=False) == Fraction(3, 10)
    assert share_of(Fraction(1), two=True, ratios=True) == Fraction(3, 20)
    assert former_share_of(Fraction(1), two=False) == Fraction(1, 8)
    of_rho = {step: share_of(Fraction(step), two=False, ratios=False, rho=True)
              for step in ("0.05", "0.2", 1)}  # fmt: skip
    assert of_rho == {"0.05": Fraction(12, 25), "0.2": Fraction(1, 5), 1: Fraction(1, 8)}


BY_WARD = "SELECT w, COUNT(*) AS n FROM t GROUP BY w"


def wards(accountant="zcdp", **more):
    """2,000 units with 1 to 12 rows, in four groups."""
    rows = pa.table({"who": np.repeat(np.arange(2000), 1 + np.arange(2000) % 12)})
    rows = rows.append_column("w", [np.arange(len(rows)) % 4])
    return ng.open(
        rows, epsilon=1000, table="t", unit="who", columns={"w": {"in": [0, 1, 2, 3]}},
        delta=1e-6, accountant=accountant, **more,
    )  # fmt: skip


def test_where_rho_adds_up_a_look_has_gaussian_noise_for_a_fifth_of_it():
    gate = wards()
    gate.sql(BY_WARD, epsilon=1)
    look, answer = (each.body for each in gate.history() if each.kind == "reserve")
    assert look["event"]["event"] == answer["event"]["event"] == "discrete-gaussian/1"
    paid = [Fraction(each["charges"]["t"][0]) for each in (look, answer)]
    assert float(paid[0] / sum(paid)) == pytest.approx(0.2, rel=1e-6)


def test_a_sample_or_a_pure_account_has_looks_with_geometric_noise():
    for gate in (wards(accountant="pure"), wards().sample(0.5)):
        gate.sql(BY_WARD, epsilon=1)
        look = next(each.body for each in gate.history() if each.kind == "reserve")
        assert "geometric" in str(look["event"])
        assert "gaussian" not in str(look["event"])


@pytest.mark.parametrize("epsilon", ["0.3", "0.6", 1])
def test_averages_beside_counts_are_found_in_older_ledgers_of_rho(monkeypatch, tmp_path, epsilon):
    """Where two looks would have taken all, there was one; where that is so has changed."""
    sql = "SELECT COUNT(*) AS n, AVG(GREATEST(0, LEAST(3, w))) AS mean FROM t"
    with monkeypatch.context() as once:
        once.setattr(asked, "looks_of", lambda *args, **_: looks_of(*args))
        bought = wards(ledger=tmp_path / "t.ledger").sql(sql, epsilon=epsilon)
    gate = wards(ledger=tmp_path / "t.ledger")
    assert gate.plan(sql, epsilon=epsilon).free
    assert gate.sql(sql, epsilon=epsilon).rows == bought.rows


def test_looks_with_geometric_noise_are_found_in_older_ledgers_of_rho(monkeypatch, tmp_path):
    """What was paid for by them is free, and a dearer question buys a look as they are now."""
    with monkeypatch.context() as once:
        once.setattr(asked, "looks_of", lambda *args, **_: looks_of(*args))
        bought = wards(ledger=tmp_path / "t.ledger").sql(BY_WARD, epsilon=1)
    gate = wards(ledger=tmp_path / "t.ledger")
    assert gate.plan(BY_WARD, epsilon=1).free
    assert gate.sql(BY_WARD, epsilon=1).rows == bought.rows
    assert not gate.plan(BY_WARD, epsilon=4).free
    gate.sql(BY_WARD, epsilon=4)
    events = [each.body["event"]["event"] for each in gate.history() if each.kind == "reserve"]
    looked, _, again, _ = events  # each look with its answer
    assert (looked, again) == ("geometric/1", "discrete-gaussian/1")


@pytest.mark.parametrize(("accountant", "first"), [("pure", "0.15"), ("zcdp", "0.5")])
def test_a_question_by_an_earlier_look_stays_paid_whatever_looks_follow(accountant, first):
    """A look by itself is as good as a former one at ε = 1; at ε = 8 there is one more, whose cap
    is another one in most runs."""
    rows = pa.table({"who": np.repeat(np.arange(900), 1 + 300_000 // np.arange(30, 930) ** 2)})
    sql = "SELECT COUNT(*) AS n FROM t"
    gate = ng.open(
        rows, epsilon=1000, table="t", unit="who", delta=1e-6, accountant=accountant
    )  # fmt: skip
    gate.caps("t", epsilon=first)
    bought = gate.sql(sql, epsilon=1)
    assert gate.sql(sql, epsilon=8).cost.epsilon > 7
    assert gate.plan(sql, epsilon=1).free
    assert {*gate.sql(sql, epsilon=1).request_ids} >= {*bought.request_ids}


def test_averages_of_units_that_differ_less_have_smaller_caps():
    coins = np.random.default_rng(5)
    found = profile(np.maximum(1, coins.lognormal(2, 1, 4000).astype(int)), 8.0)
    caps = [found.best(1.0, ratios=2.0, differ=differ) for differ in (0.01, 0.05, 0.25)]
    assert caps == sorted(caps)
    assert 3 * caps[0] <= caps[-1]


def test_a_far_bin_that_noise_may_have_raised_makes_no_cap_of_its_own():
    """6 scales of noise in one of 47 bins: by chance in one of 17 looks, as if 50,000 rows a unit."""
    coins = np.random.default_rng(6)
    rows, far = 1 + coins.poisson(3, 3000), STEPS.index(50858)
    usual, raised = profile(rows, 5.0), profile(rows, 5.0, [(far, 30)])
    assert raised.best(1.0) <= 4 * usual.best(1.0)
    assert profile(rows, 5.0, [(far, 300)]).best(1.0) > 1000  # such units would be seen


def test_bars_are_narrower_where_a_look_sees_more():
    coins = np.random.default_rng(7)
    rows = np.maximum(1, coins.lognormal(2, 1.2, 8000).astype(int))
    fine, coarse = (profile(rows, scale).loss(20) for scale in (4.0, 30.0))
    half = [each.off(np.ones(1), Fraction(95, 100))[0] for each in (fine, coarse)]
    assert half[0] < half[1] / 2


def test_bars_are_wider_where_few_bins_stand_clear():
    """300 units, and 30 times as many, under the same noise: of what is lost, how far it is off."""
    coins = np.random.default_rng(8)
    rows = np.maximum(1, coins.lognormal(0, 1, 9000).astype(int))
    few, many = profile(rows[:300], 20.0).loss(2), profile(rows, 20.0).loss(2)
    half = [each.off(np.ones(1), Fraction(95, 100))[0] / each.lost for each in (few, many)]
    assert half[0] >= 1.5 * half[1]


def test_bars_hold_a_group_of_units_that_stands_out_by_little():
    """4 scales of noise in one far bin: by chance in one look of 5 or so, and then half of all rows."""
    coins = np.random.default_rng(9)
    rows, far = 1 + coins.poisson(2, 5000), STEPS.index(170)
    usual, raised = profile(rows, 20.0).loss(7), profile(rows, 20.0, [(far, 80)]).loss(7)
    wide = [each.off(np.ones(1), Fraction(95, 100))[0] for each in (usual, raised)]
    assert raised.share < 0.1
    assert wide[0] < 0.1 * rows.sum() < 60 * 150 < wide[1]


@pytest.mark.parametrize("sql", ["SELECT COUNT(*) AS n FROM t", "SELECT SUM(x) AS s FROM t"])
def test_what_was_bought_under_a_former_cap_is_found_in_older_ledgers(monkeypatch, tmp_path, sql):
    """The former choice is taken to have been larger by 50; units of nothing were in the look."""
    rows = pa.table({"who": np.repeat(np.arange(2000), 24), "x": np.ones(48_000)})
    place, columns = tmp_path / "t.ledger", {"x": {"between": [0, 2]}}

    def opened():
        return ng.open(
            rows, epsilon=100, table="t", unit="who", columns=columns, ledger=place, delta=1e-6
        )

    chosen = Profile.best_part

    def larger(self, *args, always=False, **more):
        return chosen(replace(self, former=True), *args, **more) + 50 * (always or self.former)

    def with_zeros(part, rows, *, zeros):
        return _of_sums(part, rows, zeros=True)

    with monkeypatch.context() as once:
        once.setattr(Profile, "best_part", partialmethod(larger, always=True))
        once.setattr("noisegate.sql.bounds.sized._of_sums", with_zeros)
        bought = opened().sql(sql, epsilon=1)
    monkeypatch.setattr(Profile, "best_part", larger)
    monkeypatch.setattr("noisegate.sql.steps.formerly.CAPS_SINCE", "2000-01-01")
    assert not opened().plan(sql, epsilon=1).free
    monkeypatch.setattr("noisegate.sql.steps.formerly.CAPS_SINCE", "9999-12-31")
    gate = opened()
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows
    assert not gate.plan(sql, epsilon=1, fresh=True).free


@pytest.mark.parametrize("sql", [
    "SELECT COUNT(*) AS n, AVG(x) AS mean FROM t", "SELECT SUM(x) AS s, AVG(x) AS mean FROM t",
])  # fmt: skip
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_averages_under_the_cap_of_counts_are_found_in_older_ledgers(
    monkeypatch, tmp_path, sql, accountant
):
    coins = np.random.default_rng(3)
    size = np.minimum(coins.zipf(1.5, 3000), 3000)
    rows = pa.table({
        "who": np.repeat(np.arange(3000), size), "x": coins.gamma(2, 10, size.sum()),
    })  # fmt: skip
    place, columns = tmp_path / "t.ledger", {"x": {"between": [0, 600]}}

    def opened():
        return ng.open(
            rows, epsilon=100, table="t", unit="who", columns=columns, ledger=place, delta=1e-6,
            accountant=accountant,
        )  # fmt: skip

    read = job._reading
    with monkeypatch.context() as once:
        was = formerly.Formerly(near=True, shared=True)
        once.setattr(job, "_reading", lambda *args: was.read(read(*args)))
        bought = opened().sql(sql, epsilon=1)
    monkeypatch.setattr(formerly, "OWN_SINCE", "2000-01-01")
    assert not opened().plan(sql, epsilon=1).free
    monkeypatch.setattr(formerly, "OWN_SINCE", "9999-12-31")
    gate = opened()
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows
    monkeypatch.setattr(formerly, "OWN_SINCE", "2000-01-01")
    again = opened().sql(sql, epsilon=1)
    assert opened().plan(sql, epsilon=1).free
    assert opened().sql(sql, epsilon=1).rows == again.rows


def fares(coins, units=3000):
    """Trips of units, most of which cost nothing: sums lie far below what bounds allow."""
    size = np.minimum(coins.zipf(1.8, units), 300)
    fare = np.where(
        coins.random(size.sum()) < 0.6, 0, np.minimum(50, coins.exponential(2.5, size.sum()))
    )
    return pa.table({"who": np.repeat(np.arange(units), size), "fare": fare.round(2)})


@pytest.mark.long
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_sum_beside_a_count_is_about_as_accurate_as_alone(accountant):
    """Its bounds are near, its values far below them: the noise was 40 times as wide, once.

    In twelve tries the medians of five were .2 to 2.7 times each other: caps differ.
    """
    rows, told = fares(np.random.default_rng(5)), []
    for sql in ("SELECT SUM(fare) AS s FROM t", "SELECT COUNT(*) AS n, SUM(fare) AS s FROM t"):
        noise = []
        for _ in range(5):
            gate = ng.open(
                rows, epsilon=9, table="t", unit="who", columns={"fare": {"between": [0, 50]}},
                delta=1e-6, accountant=accountant,
            )  # fmt: skip
            noise += gate.sql(sql, epsilon=1).noise_margins()["s"]
        told.append(np.median(noise))
    assert told[1] <= 5 * told[0]


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_sums_under_the_cap_of_counts_are_found_in_older_ledgers(monkeypatch, tmp_path, accountant):
    rows, place = fares(np.random.default_rng(6)), tmp_path / "t.ledger"
    sql = "SELECT COUNT(*) AS n, SUM(fare) AS s FROM t"

    def opened():
        return ng.open(
            rows, epsilon=100, table="t", unit="who", columns={"fare": {"between": [0, 50]}},
            ledger=place, delta=1e-6, accountant=accountant,
        )  # fmt: skip

    read = job._reading
    with monkeypatch.context() as once:
        was = formerly.Formerly(near=True)
        once.setattr(job, "_reading", lambda *args: was.read(read(*args)))
        bought = opened().sql(sql, epsilon=1)
    monkeypatch.setattr(formerly, "SUMS_SINCE", "2000-01-01")
    assert not opened().plan(sql, epsilon=1).free
    monkeypatch.setattr(formerly, "SUMS_SINCE", "9999-12-31")
    gate = opened()
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows


@pytest.mark.parametrize(("low", "high", "two"), [(0, 50, True), (1, 5, False), (-3, 3, True)])
def test_sums_have_a_look_of_their_own_where_values_may_be_near_0(low, high, two):
    rows = pa.table({"who": [1, 1, 2], "x": [1.0, 2.0, 3.0]})
    gate = ng.open(rows, epsilon=9, table="t", unit="who", columns={"x": {"between": [low, high]}})
    text = str(gate.plan("SELECT COUNT(*) AS n, SUM(x) AS s FROM t", epsilon=1))
    assert "the cap on rows per unit" in text
    assert ("the cap on what one unit adds to SUM(x)" in text) is two


@pytest.mark.parametrize("asked", ["SUM(flag)", "COUNT(*), SUM(flag)", "SUM(flag), SUM(3 * flag)"])
def test_no_cap_rounds_whole_numbers_to_0(monkeypatch, asked):
    """A look of much noise chose 0.95 where values are 0 or 1: the sum was 0, with a narrow ±."""
    monkeypatch.setattr(Profile, "best_part", lambda *_, **__: Fraction(3906, 4096))
    rows = pa.table({"who": list(range(1000)), "flag": [1, 0] * 500})
    gate = ng.open(
        rows, epsilon=99, table="t", unit="who", columns={"flag": {"between": [0, 1]}}, delta=1e-6
    )
    *_, found = gate.sql(f"SELECT {asked} FROM t", epsilon=50).rows[0]
    assert found == pytest.approx(1500 if "3" in asked else 500, rel=0.02)
