"""Tables, cubes, maps and synthetic rows of one secret sample: price, scale, error, files."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.event import PoissonSampled, decode
from noisegate.releases.forms.cube import CubeRelease
from noisegate.releases.forms.table import TableRelease
from noisegate.sql.laws.sampling import Sampling

P = "1/4"
GRAIN = Fraction(1, 10**25)  # what charges are rounded up to, and more
CELLS, EACH = 400, 60  # people in each cell
PEOPLE = pa.table({
    "cell": np.repeat(np.arange(CELLS), EACH),
    "ward": ["north", "south"] * (CELLS * EACH // 2),
})  # fmt: skip
DECLARED = {
    "cell": {"type": "integer", "between": [0, CELLS - 1]},
    "ward": {"in": ["north", "south"]},
}


@pytest.fixture
def gate():
    return ng.open(PEOPLE, epsilon=10, columns=DECLARED)


def test_a_release_of_a_sample_is_about_all_rows_and_its_bars_hold_what_sampling_adds(gate):
    """400 cells at 90 %: fewer than 324 hold once in 10⁶ runs, if each holds with exactly 90 %.

    Noise and sampling have variances of 16 · 2 α / (1 - α)² and 60 · 3; half of the failure each.
    """
    made = gate.sample(P).release("cells", columns={"cell": 1}, where="cell IS NOT NULL", epsilon=1)
    off = np.abs(made.values - EACH)
    widths = made.margins(0.9)
    assert (off <= widths).sum() >= 324
    alpha = np.exp(-float(made.making.price.amount))
    spread = (16 * 2 * alpha / (1 - alpha) ** 2 + EACH * 3) ** 0.5
    assert 1.64 * spread < widths.mean() < 2 * 1.64 * spread
    assert (off <= widths / 4).sum() < 300  # 0.55 deviations hold 42 %: without sampling none would
    total = made.query(0.999999)
    assert abs(int(total) - CELLS * EACH) <= total.margin


def test_one_price_for_all_of_it_and_the_same_is_never_paid_twice(gate):
    sample = gate.sample(P)
    plan = sample.release_plan("histogram", columns={"ward": None}, epsilon="0.5")
    made = sample.release("histogram", columns={"ward": None}, epsilon="0.5")
    assert made.cost == plan.price
    assert 0 <= gate.spent.epsilon - made.cost.epsilon < GRAIN
    assert Fraction(1, 2) - Fraction(1, 10**9) < gate.spent.epsilon <= Fraction(1, 2)
    again = sample.release("histogram", columns={"ward": None}, epsilon="0.5")
    assert again.free
    assert (again.values == made.values).all()
    whole = gate.release("histogram", columns={"ward": None}, epsilon="0.5")
    other = gate.sample("1/3").release("histogram", columns={"ward": None}, epsilon="0.5")
    assert not whole.free
    assert not other.free
    costs = sum(each.cost.epsilon for each in (made, whole, other))
    assert 0 <= gate.spent.epsilon - costs < GRAIN
    assert any("secret sample" in words for words in made.words)
    assert not any("secret sample" in words for words in whole.words)


def test_the_ledger_holds_one_sampled_event(gate):
    gate.sample(P).release("tree", columns={"cell": 10}, epsilon=1)
    (entry,) = [each for each in gate.history() if each.kind == "close"]
    used = decode(entry.body["used"])
    assert isinstance(used, PoissonSampled)
    assert used.probability == Fraction(1, 4)


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("cube", {"columns": {"cell": 50, "ward": None}, "sets": 2}),
        ("privtree", {"columns": {"cell": 4}}),
        ("haar", {"columns": {"cell": 4}}),
        ("questions", {"workload": ["SELECT COUNT(*) FROM data WHERE cell < 100"], "rounds": 2}),
    ],
)
def test_recipes_of_all_kinds_ask_one_sample(gate, name, terms):
    """Six deviations of sampling and noise: once in 10⁸ runs."""
    made = gate.sample(P).release(name, epsilon=1, **terms)
    assert abs(int(made.total) - CELLS * EACH) < 6 * ((CELLS * EACH * 3) ** 0.5 + 200)
    assert gate.spent.epsilon <= 1


def test_files_keep_the_sample_and_its_error(gate, tmp_path):
    sample = gate.sample(P)
    made = sample.release("cells", columns={"cell": 40}, epsilon=1)
    made.save(tmp_path / "table.parquet")
    read = TableRelease.load(tmp_path / "table.parquet")
    assert (read.margins() == made.margins()).all()
    assert read.making.price.sample == Fraction(1, 4)
    cube = sample.release("cube", columns={"cell": 40, "ward": None}, epsilon=1)
    cube.save(tmp_path / "cube.parquet")
    opened = CubeRelease.load(tmp_path / "cube.parquet")
    assert (opened.table("ward").margins() == cube.table("ward").margins()).all()
    assert (cube.table("ward").margins() > 1.96 * (CELLS * EACH / 2 * 3) ** 0.5).all()


def test_synthetic_rows_of_a_sample_stand_for_all_rows(gate):
    """Six deviations of sampling, and the noise of a few tables: once in 10⁸ runs."""
    made = gate.sample(P).release("synthetic", columns={"cell": 40, "ward": None}, epsilon=1)
    north = made.query(ward="north")
    assert abs(int(north) - 12_000) < 6 * (12_000 * 3) ** 0.5 + 300
    assert north.margin > 1.96 * (12_000 * 3) ** 0.5
    assert gate.spent.epsilon <= 1
    assert abs(len(made.to_arrow()) - 24_000) < 6 * (24_000 * 3) ** 0.5 + 300


def test_releases_of_a_sample_are_no_evidence_about_all_rows(gate):
    made = gate.sample(P).release("cells", columns={"ward": None}, epsilon=1)
    with pytest.raises(Unsupported):
        gate.release("synthetic", columns=["ward"], evidence=[made], epsilon=1)


def test_an_account_of_rho_pays_half_the_square_for_pure_noise():
    gate = ng.open(PEOPLE, epsilon=20, delta=1e-6, accountant="zcdp", columns=DECLARED)
    made = gate.sample(P).release("cells", columns={"ward": None}, epsilon=1)
    gate.release("cells", columns={"ward": None}, epsilon=1)
    assert not made.making.price.gaussian
    (one, two) = (each.body["charges"] for each in gate.history() if each.kind == "close")
    (sampled, plain) = (int(next(iter(each.values()))[0]) for each in (one, two))
    assert 0.999999 < sampled / plain <= 1


# sessions

MANY = {"columns": {"cell": 100, "ward": None}, "questions": 100}


def test_a_session_about_samples_pays_what_was_asked_and_gets_back_what_was_not_drawn(gate):
    """The start and the session have a sample each; both amplified by themselves, they add up."""
    sample = gate.sample(P)
    assert Fraction(999, 1000) < sample.many_plan(epsilon=1, **MANY).price.epsilon <= 1
    with sample.many(epsilon=1, **MANY) as session:
        assert Fraction(999, 1000) < gate.spent.epsilon <= 1
        answer = session.sql("SELECT COUNT(*) FROM data WHERE cell < 200")
        used = session.balance.spent.epsilon
    assert 0 <= gate.spent.epsilon - used < GRAIN
    assert used < Fraction(7, 10)  # one run of comparisons and no surprise, or one
    closed = [decode(e.body["used"]) for e in gate.history() if e.kind == "close"]
    assert [type(event) for event in closed] == [PoissonSampled, PoissonSampled]
    # noise and sampling, for 100 questions at once
    assert abs(int(answer) - 12_000) < answer.margin
    assert answer.margin > 1.96 * (12_000 * 3) ** 0.5


@pytest.mark.parametrize("terms", [{"within": 5000}, {"sure": True, "rows": 24_000}])
def test_a_session_about_a_sample_promises_nothing_beforehand(gate, terms):
    with pytest.raises(SpecError):
        gate.sample(P).many_plan(epsilon=1, **MANY, **terms)


def test_sessions_about_samples_are_for_accounts_of_epsilon():
    gate = ng.open(PEOPLE, epsilon=20, delta=1e-6, accountant="zcdp", columns=DECLARED)
    with pytest.raises(Unsupported), gate.sample(P).many(epsilon=1, start=0, rows=24_000, **MANY):
        pass
    assert gate.spent.epsilon == 0


# how far sampling may be off


def test_bounds_hold_whatever_the_weights_are():
    """Each of 4 · 20,000 trials fails with at most 5 %; 5.6 % of all once in 10⁹ runs."""
    rng = np.random.default_rng(1)
    for weights in (np.ones(500), rng.random(500), np.r_[np.ones(20), np.full(400, 0.05)], [1.0]):
        total = np.sum(weights)
        coins = rng.random((20_000, len(weights))) < 0.25
        seen = coins @ np.asarray(weights) / 0.25
        ones = bool(np.all(np.asarray(weights) == 1))
        for sampling in {
            Sampling(Fraction(1, 4), Fraction(1), ones=False),
            Sampling(Fraction(1, 4), Fraction(1), ones=ones),
        }:
            low, high = sampling.bounds(seen, seen, 0.05)
            missed = np.mean((low > total + 1e-9) | (high < total - 1e-9))
            assert missed < 0.056
            if ones and sampling.ones and len(weights) > 1:
                assert missed > 0.025  # and it is not wide


def test_wider_bounds_about_the_sample_are_wider_about_all():
    sampling = Sampling(Fraction(1, 10), Fraction(2), ones=False)
    near = sampling.bounds(np.array([90.0]), np.array([110.0]), 0.05)
    far = sampling.bounds(np.array([50.0]), np.array([150.0]), 0.05)
    assert far[0] < near[0] < 100 < near[1] < far[1]
    assert sampling.bounds(np.zeros(1), np.zeros(1), 0.05)[0] == 0
    unknown = sampling.widened(np.array([10.0, 10.0]), np.array([np.inf, 1.0]), 0.05)
    assert unknown[0] == np.inf
    assert np.isfinite(unknown[1])
    assert Sampling.from_record(sampling.to_record()) == sampling
