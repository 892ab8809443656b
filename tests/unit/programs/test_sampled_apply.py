"""Programs on blocks of a secret sample: who is dealt, what it costs, what is said of it."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from math import exp, log

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import noisegate as ng
from door import table
from noisegate.accounting.amplification import poisson
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.blocks import STEPS, Blocks, Program
from noisegate.algebra.relation import Table
from noisegate.cli import app
from noisegate.curator import blocks as door_of_blocks
from noisegate.curator.blocks import BlockMeasurement, said_of_blocks
from noisegate.curator.claimed import ClaimedMeasurement
from noisegate.desk.desk import Desk
from noisegate.errors import Unsupported
from noisegate.isolated.cell import Cell
from noisegate.isolated.channel import unpacked
from noisegate.isolated.lockdown import can_lock
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import (
    ExponentialEvent,
    GeometricEvent,
    PoissonSampled,
    Sequential,
    SmoothLaplaceEvent,
    SmoothStudentEvent,
)
from noisegate.programs.applied import Applied
from noisegate.programs.applying import ApplyOrder
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.blocks import BlockQuery
from refusals import about

P = Fraction(1, 4)
FINDS = Program("def f(rows):\n    return 77 in rows['n']", "f")
COLUMNS = (("n", Kind.INTEGER), ("turn", Kind.INTEGER))
OWNED, ROWS = (table("people", unit, *COLUMNS) for unit in ("n", None))


def asked(domain=OWNED, **more):
    terms = {
        "relation": Table(domain), "columns": ("n", "turn"), "program": FINDS, "blocks": 3,
        "ranges": ((Fraction(0), Fraction(1)),), "defaults": (Fraction(0),), "memory": 32,
        "seconds": Fraction(1, 50), "sample": Fraction(1, 2), "trusted": True,
    }  # fmt: skip
    return Blocks(**terms | more)


def source_of(people, turns=1, domain=OWNED):
    rows = {"n": np.repeat(people, turns), "turn": np.tile(range(turns), len(people))}
    return DuckDBSource({"people": pa.table(rows)}, {"people": domain})


@pytest.fixture
def seen(monkeypatch):
    """The rows (n, turn) of each block of each deal; blocks answer here and at once."""
    deals = []

    def answers(cell, blocks):
        listed = [unpacked(block) for block in blocks]
        deals.append([list(zip(*(b[c].tolist() for c in ("n", "turn")))) for b in listed])  # noqa: B905
        return [np.float64(77 in block["n"]).tobytes() for block in listed]

    monkeypatch.setattr(Cell, "answers", answers)
    monkeypatch.setattr(Cell, "_start", lambda _: None)
    monkeypatch.setattr(Cell, "_stop", lambda _: None)
    return deals


def require_one_sample(deals, people, turns):
    """Some people, the same in all deals, each with all rows in one block."""
    members = []
    for blocks in deals:
        homes = [{n for n, _ in block} for block in blocks]
        members.append(set().union(*homes))
        assert sum(map(len, homes)) == len(members[-1]), "somebody is in two blocks"
        rows = sorted(row for block in blocks for row in block)
        assert rows == sorted((n, turn) for n in members[-1] for turn in range(turns))
    assert 0 < len(members[0]) < people, "nobody was left out"
    assert all(each == members[0] for each in members), "another sample"


def everybody(_tally, source, _bits):
    """A broken copy: the noise is for a sample, and all are dealt."""
    return nullcontext(source)


class Anew:
    """A broken copy: each deal has a sample of its own."""

    def __init__(self, inner):
        self._inner, self._deal = inner, 0

    @contextmanager
    def sample(self, probability, key):
        self._chance, self._key = probability, key
        yield self

    def blocks(self, tally, key, use):
        self._deal += 1
        with self._inner.sample(self._chance, f"{self._key} {self._deal}") as drawn:
            return drawn.blocks(tally, key, use)


@pytest.mark.parametrize(("domain", "turns"), [(OWNED, 3), (ROWS, 1)])
def test_all_deals_are_of_one_sample_of_units(seen, domain, turns):
    """Of 40 none or all are in it once in 5 · 10¹¹ runs."""
    people = range(40)
    source = source_of(people, turns, domain)
    said_of_blocks(asked(domain, resample=3), source, SYSTEM)
    assert len(seen) == 3
    assert len({str(deal) for deal in seen}) == 3
    require_one_sample(seen, 40, turns)


def test_broken_copies_are_caught(seen, monkeypatch):
    """Three samples of 40 are the same once in 10²⁴ runs."""
    source, tally = source_of(range(40), 3), asked(resample=3)
    said_of_blocks(tally, Anew(source), SYSTEM)
    with pytest.raises(AssertionError, match="another sample"):
        require_one_sample(seen, 40, 3)
    seen.clear()
    monkeypatch.setattr(door_of_blocks, "_taking_part", everybody)
    said_of_blocks(tally, source, SYSTEM)
    with pytest.raises(AssertionError, match="left out"):
        require_one_sample(seen, 40, 3)


@pytest.mark.parametrize("domain", [OWNED, ROWS])
def test_the_sample_has_its_chance_and_is_another_each_time(seen, domain):
    """Of 4,000 a quarter, 6 standard deviations: both draws are inside but for 4 in 10⁹ runs."""
    source, tally = source_of(range(4000), 1, domain), asked(domain, sample=P)
    for _ in range(2):
        said_of_blocks(tally, source, SYSTEM)
    one, other = ({row for block in deal for row in block} for deal in seen)
    for found in (one, other):
        assert abs(len(found) - 1000) < 6 * (4000 * 3 / 16) ** 0.5
    assert one != other


def bought(tally, epsilon):
    query = BlockQuery(tally)
    noises = tuple(Geometric.for_epsilon(epsilon, sensitivity=l1) for l1 in query.l1s)
    return BlockMeasurement(query=query, mechanisms=noises)


@pytest.mark.parametrize("resample", [1, 2])
def test_the_price_is_the_loss_of_the_worst_neighbours_to_the_last_digit(
    seen, monkeypatch, resample
):
    """With 77 a sum is moved by all of its sensitivity, half of the time: neither once in 10⁹ runs.

    The released number far above is 1 - p + p e^ε times as likely with 77 as without.
    """
    tally = asked(resample=resample)
    source, without = source_of([1, 2, 77]), source_of([1, 2])

    def sums(source, times):
        return {int(said_of_blocks(tally, source, SYSTEM).sum()) for _ in range(times)}

    moved = resample * STEPS
    assert sums(source, 31) == {0, moved}
    assert sums(without, 3) == {0}
    made = bought(tally, 2)
    inner = moved / made.mechanisms[0].scale
    assert inner == 2
    paid = float(pure_loss(made.event()).epsilon)
    assert paid == pytest.approx(log(1 + (exp(inner) - 1) / 2), rel=1e-9)
    monkeypatch.setattr(door_of_blocks, "_taking_part", everybody)
    assert sums(source, 1) == {moved}  # so it loses all of the inner ε
    assert inner > 1.3 * paid


def mean_age(rows):
    return rows["age"].mean()


TERMS = {"columns": ["age"], "range": [(0, 100), (0, 100)], "blocks": 400}
PEOPLE = pa.table({"id": np.arange(400) // 2, "age": [40] * 400})


def gate(**more):
    facts = {"age": {"type": "integer", "between": [0, 100]}}
    return ng.open(PEOPLE, **({"epsilon": 10, "columns": facts, "unit": "id"} | more))


KINDS = (
    ({}, GeometricEvent),
    ({"resample": 3}, GeometricEvent),
    ({"narrow": True, "blocks": 4000}, Sequential),
    ({"aggregate": "median"}, ExponentialEvent),
    ({"aggregate": "center"}, SmoothStudentEvent),
)


@pytest.mark.parametrize(
    ("accountant", "terms", "kind"),
    [
        *((accountant, *each) for accountant in ("pure", "zcdp") for each in KINDS),
        ("pure", {"aggregate": "center", "delta": "1e-6"}, SmoothLaplaceEvent),
    ],
)
def test_the_noise_is_for_the_inner_price_and_all_pay_what_they_said(accountant, terms, kind):
    door = gate(delta="1e-3", accountant=accountant)
    sample = door.sample(P)
    desk = Desk(door._curator, sample._rules)
    order = {"epsilon": desk.asked(Fraction(1)), **TERMS, **terms}
    made = ApplyOrder.of(mean_age, **order).job(desk)
    event = made.event
    assert type(event) is PoissonSampled
    assert event.probability == P
    assert {type(each) for each in event.event.events} == {kind}
    inner, outer = pure_loss(event.event), pure_loss(event)
    assert outer == poisson(inner, probability=P)
    price = desk.plan(made).price
    if accountant == "pure":
        assert price == outer
    assert made.epsilon * Fraction(999, 1000) < price.epsilon <= made.epsilon
    assert Fraction(999, 1000) < outer.epsilon <= 1
    assert inner.epsilon > 2
    delta = Fraction(terms.get("delta", 0))
    assert Fraction(999, 1000) * delta <= outer.delta == inner.delta / 4 <= delta
    if accountant == "zcdp":
        assert Fraction(499, 1000) < zcdp_loss(event).rho <= Fraction(1, 2)


def test_a_margin_is_bought_at_the_amplified_price_in_every_account():
    """The same noise costs less about a sample, and is geometric where ρ is added up too."""
    terms = TERMS | {"within": 1, "range": (0, 100)}
    door, of_rho = gate(), gate(delta="1e-3", accountant="zcdp")
    whole = door.apply_plan(mean_age, **terms)
    for each in (door, of_rho):
        plan = each.sample(P).apply_plan(mean_age, **terms)
        assert plan.expected.widths(0.95) == whole.expected.widths(0.95)
        paid = poisson(whole.price, probability=P).epsilon
        assert plan.price.epsilon == pytest.approx(each._desk.asked(paid), rel=1e-9)
        assert each is of_rho or plan.price == poisson(whole.price, probability=P)
    less = {"epsilon": 1, "within": 1, "columns": ["age"], "range": (0, 9)}
    of_all, few = (each.apply_plan(mean_age, **less) for each in (door, door.sample(P)))
    assert of_all.expected.tally.blocks / few.expected.tally.blocks == pytest.approx(
        log(1 + (exp(1) - 1) * 4), rel=0.1
    )


def test_the_usual_number_of_blocks_is_that_of_the_rows_in_the_sample():
    terms = {"columns": ["age"], "range": (0, 100), "epsilon": 1}
    assert (
        gate().sample("1/10").apply_plan(mean_age, rows=1_000_000, **terms).expected.tally.blocks
        == 100
    )


def test_questions_about_samples_are_others_than_those_about_all():
    texts = {
        bought(asked(sample=sample), 1).question() for sample in (None, P, Fraction(1, 3))
    }  # fmt: skip
    assert len(texts) == 3
    assert '"sample"' not in bought(asked(sample=None), 1).question()


def test_nobody_vouches_for_a_program_about_a_sample():
    whole = asked(blocks=1, ranges=((Fraction(0), Fraction(STEPS)),), sample=None)
    noise = Geometric(scale=Fraction(1))
    assert ClaimedMeasurement(query=BlockQuery(whole), noise=noise).event().scale == 1
    with pytest.raises(Unsupported, check=about("claim")):
        ClaimedMeasurement(query=BlockQuery(replace(whole, sample=P)), noise=noise)


@pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
def test_a_program_is_answered_about_a_sample_and_says_so(tmp_path):
    """All are 40, and so is the mean of any block: the noise is off by 8 once in 10⁷ runs.

    200 persons, of whom half are there, are dealt to two blocks: one is empty once in 10²⁴ runs.
    """
    door = gate(epsilon=200)
    terms = {"columns": ["age"], "range": (0, 100), "blocks": 2, "seconds": "0.5", "memory": 64}
    sample = door.sample("1/2")
    made = sample.apply(mean_age, epsilon=100, rehearse=False, **terms)
    scale = 100 / 2 / (100 + log(2))  # ln(1 + (e^ε - 1) / p)
    assert made.margins()[0] == pytest.approx(scale * log(20), rel=0.001)
    assert abs(made.value - 40) < scale * log(1e7)
    assert Fraction(9999, 100) < door.spent.epsilon <= 100
    assert "secret sample that holds each unit with probability 1/2" in str(made)
    assert sample.apply(mean_age, epsilon=100, **terms).free
    assert door.apply_plan(mean_age, epsilon=100, **terms).price.epsilon == 100
    made.save(tmp_path / "made.parquet")
    loaded = Applied.load(tmp_path / "made.parquet")
    assert loaded.sample == made.sample == Fraction(1, 2)
    assert loaded.answer().caveats == made.answer().caveats


def test_the_command_line_plans_about_a_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "rows.csv").write_text("age\n40\n")
    (tmp_path / "program.py").write_text("def f(rows):\n    return rows['age'].mean()\n")
    told = CliRunner().invoke(
        app,
        ["apply", str(tmp_path / "rows.csv"), f"{tmp_path}/program.py:f", "--columns", "age",
         "--range", "0,100", "--blocks", "10", "--epsilon", "1", "--budget", "2",
         "--between", "age=0,100", "--type", "age=integer", "--sample", "1/4", "--plan"],
    )  # fmt: skip
    assert told.exit_code == 0
    assert "secret sample" in told.stdout
    inner = log(1 + (exp(1) - 1) * 4)
    assert f"± {100 / 10 / inner * log(20):.3g}" in told.stdout
