"""Every mechanism has an audit that an honest copy passes and a broken one fails.

False alarms: one in 10⁶ runs of the whole list, shared out equally. Broken copies are sized to be
missed less than once in 10⁴ runs.
"""

import json
from dataclasses import replace
from functools import partial
from math import exp

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

import noisegate
from noisegate.audit import Audit, DoorRuns, Extent, bound, question_audit
from noisegate.audit.audit import (
    NO_VIOLATION,
    VIOLATION,
    WEAK,
    audit_named,
    audits,
    lines,
    markdown,
)
from noisegate.audit.confidence import ceiling, epsilon_lower
from noisegate.audit.distinguisher import chosen, learned
from noisegate.audit.draws import Many
from noisegate.cli import app
from noisegate.cli.lab.audits import VIOLATION_CODE
from noisegate.errors import SpecError
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.catalogue import all_kinds
from refusals import about

ALPHA = 1e-6 / len(audits())
QUICK = ("geometric", "truncated-geometric", "laplace", "discrete-gaussian", "gaussian",
         "key-selection", "key-selection of one unit", "thresholded-geometric",
         "thresholded-gaussian", "crowd-counts", "biased-crowd")  # fmt: skip
SLOW = [name for name in audits() if name not in QUICK]


# --- the bound -----------------------------------------------------------------------------------


def test_the_lower_bound_on_epsilon_is_two_clopper_pearson_bounds():
    """The bounds are where exactly alpha / 2 of the law lies beyond what was counted."""
    p = exp(epsilon_lower(200, 1000, trials=1000, alpha=1e-3))  # the neighbour's bound is 1
    assert binom.sf(199, 1000, p) == pytest.approx(5e-4)
    q = p / exp(epsilon_lower(200, 100, trials=1000, alpha=1e-3))
    assert binom.cdf(100, 1000, q) == pytest.approx(5e-4)
    assert epsilon_lower(0, 0, trials=10, alpha=1e-3) < -1e300


def test_the_lower_bound_on_epsilon_takes_delta_off():
    plain = epsilon_lower(500, 100, trials=1000, alpha=1e-9)
    assert epsilon_lower(500, 100, trials=1000, alpha=1e-9, delta=0.1) < plain
    assert epsilon_lower(5, 0, trials=1000, alpha=1e-9, delta=0.1) < -1e300


def test_a_perfect_test_reaches_the_claim_with_many_trials_only():
    few, many = (ceiling(1.0, 0.0, trials=trials, alpha=1e-6) for trials in (100, 10**8))
    assert few < 0.2
    assert 0.998 < many < 1


def test_a_bound_on_equal_neighbours_is_no_more_than_chance(rng):
    """A learner may fit noise as it likes: what it learned is counted on other runs."""
    same = [rng.normal(size=(1500, 8)) for _ in range(2)]
    (found,) = bound(*same, claims={0.0: 0.1}, alpha=1e-6, boosted=True)
    assert found.epsilon <= 0.1


def test_a_learner_that_saw_the_runs_it_counts_would_raise_false_alarms(rng):
    """The broken copy of the method: trees that are counted on the runs they learned by heart."""
    same = [rng.normal(size=(600, 12)) for _ in range(2)]
    score, threshold = chosen(learned(*same, boosted=True), *same, alpha=1e-6, delta=0.0)
    hits = [int((score(side) >= threshold).sum()) for side in same]
    assert epsilon_lower(*hits, trials=600, alpha=1e-6) > 0.5


def test_a_move_that_is_spread_over_many_cells_is_found(rng):
    ones, others = rng.laplace(size=(20_000, 10)), rng.laplace(size=(20_000, 10))
    (found,) = bound(ones + 0.3, others, claims={0.0: 3.0}, alpha=1e-6)
    assert 0.8 < found.epsilon <= 3


@pytest.fixture
def rng():
    return np.random.default_rng(7)  # of made-up outputs, not of noise


# --- the list ------------------------------------------------------------------------------------


def test_every_mechanism_of_the_catalogue_has_an_audit():
    kinds = {name.split("/")[0] for name in all_kinds()}
    assert kinds - set(audits()) == set()


@pytest.mark.audit  # a path of every recipe is made: half a minute
def test_every_claim_that_cannot_be_reached_says_why():
    for make in audits().values():
        audit = make()
        assert audit.why or audit.reachable > 1 - 1e-9, audit.name
        assert audit.broken is not None
        assert audit.neighbours


def honest_and_broken(name):
    (line,) = lines([partial(audit_named, name)], Extent(), alpha=ALPHA)
    return line


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_audit_passes_the_honest_copy_and_catches_the_broken_one(name):
    line = honest_and_broken(name)
    assert line.result.verdict == NO_VIOLATION, line.result
    assert line.is_caught, line.broken
    assert line.result.power >= 0.7 * line.audit.reachable


@pytest.mark.audit
@pytest.mark.parametrize("name", SLOW)
def test_an_audit_passes_the_honest_copy_and_catches_the_broken_one(name, record_property):
    line = honest_and_broken(name)
    record_property("counts", " | ".join(line.cells()))
    assert not line.result.is_violation, line.result
    assert line.is_caught, line.broken
    assert line.result.power >= 0.7 * line.audit.reachable


def test_geometric_and_gaussian_noise_reach_what_another_library_computes():
    """δ(ε) of dp-accounting's privacy-loss distributions, which know nothing of this house."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    curves = {
        "geometric": pld.from_discrete_laplace_mechanism(1.0, value_discretization_interval=1e-3),
        "gaussian": pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-3),
    }
    for name, curve in curves.items():
        audit = audit_named(name)
        epsilons = (0.5, 0.9) if name == "geometric" else (0.5, 1.0, 1.5)
        claims = {float(curve.get_delta_for_epsilon(each)): each for each in epsilons}
        result = replace(audit, claims=claims).run(alpha=1e-6)
        assert not result.is_violation, result  # a false alarm once in 10⁶ runs
        assert result.power > 0.85, result


# --- runs ----------------------------------------------------------------------------------------


def counts(scale="1", trials=20_000):
    noise = Geometric(scale=scale)
    return Audit(
        name="counts", claims={0.0: 1.0}, draws=(Many(noise, (1,)), Many(noise, (0,))),
        neighbours="1 and 0", trials=trials,
    )  # fmt: skip


def test_few_trials_are_called_a_weak_test_not_a_safe_mechanism():
    result = counts().run(Extent(trials=100))
    assert result.verdict == WEAK
    assert result.best.ceiling < 0.5


def test_a_resumed_audit_goes_on_and_pays_for_its_second_look(tmp_path):
    file = tmp_path / "runs.npz"
    first = counts().run(Extent(trials=2000, resume=file), alpha=1e-6)
    second = counts().run(Extent(trials=5000, resume=file), alpha=1e-6)
    assert (first.trials, second.trials) == (2000, 5000)
    assert (first.alpha, second.alpha) == (5e-7, 2.5e-7)
    with pytest.raises(SpecError, check=about("other-audit")):
        replace(counts(), name="others").run(Extent(trials=3000, resume=file))
    file.write_text("does not hold the runs")
    with pytest.raises(SpecError, check=about("file")):
        counts().run(Extent(trials=3000, resume=file))


def test_processes_share_the_runs():
    result = counts("0.7").run(Extent(trials=20_000, workers=2))
    assert result.trials == 20_000
    assert result.verdict == VIOLATION


def test_an_audit_ends_when_its_time_is_over():
    result = counts().run(Extent(seconds=0.3))
    assert result.seconds < 10
    assert result.trials >= 64


# --- through the door ----------------------------------------------------------------------------

FACTS = {"age": {"between": [0, 100]}, "ward": {"in": ["north", "south"]}}


def opened():
    rows = pa.table({"who": [1], "age": [40], "ward": ["north"]})
    return noisegate.open(
        rows, unit="who", rows_per_unit=3, groups_per_unit=2, columns=FACTS, practice=True
    )


def test_a_question_is_audited_through_the_door_on_a_unit_that_uses_all_of_its_caps():
    audit = question_audit(opened, "SELECT SUM(age) AS s FROM data", epsilon=4)
    assert audit.claims == {0.0: 4.0}
    assert audit.reachable > 0.95
    result = audit.run(Extent(trials=700))
    assert not result.is_violation  # a false alarm once in 10⁶ runs
    assert result.power > 0.4
    assert "No private row was read" in str(result)


@pytest.mark.long
def test_a_price_below_what_is_spent_is_a_violation():
    """The broken copy: a door that charges half of what the noise is worth."""
    audit = question_audit(opened, "SELECT COUNT(*) AS n FROM data", epsilon=4)
    cheap = replace(audit, claims={0.0: 2.0})
    assert cheap.run(Extent(trials=2000)).verdict == VIOLATION  # 900 miss it once in 20


def test_any_use_of_a_gate_can_be_audited():
    rows = {"data": opened().door.tables and pa.table({"who": [7], "age": [1], "ward": ["north"]})}
    empty = {"data": rows["data"].slice(0, 0)}
    draws = tuple(DoorRuns(opened=opened, rows=each, ask=count_all) for each in (rows, empty))
    audit = Audit(name="any", claims={0.0: 3.0}, draws=draws, neighbours="one row and none")
    assert not audit.run(Extent(trials=100)).is_violation


def count_all(gate):
    (answer,) = gate.sql("SELECT COUNT(*) AS n FROM data", epsilon=3, fresh=True).rows
    return answer


# --- the command ---------------------------------------------------------------------------------


def test_the_command_lists_and_runs_audits():
    run = CliRunner().invoke
    assert "permute-and-flip" in run(app, ["audit", "--list"]).stdout
    found = run(app, ["audit", "--mechanism", "geometric", "--trials", "20000", "--json"])
    (line,) = json.loads(found.stdout)["audits"]
    assert line["verdict"] == NO_VIOLATION
    assert line["broken_caught"]
    assert found.exit_code == 0


def test_a_violation_has_an_exit_code_of_its_own(monkeypatch):
    """The broken copy stands in the list as if it were honest."""
    broken = replace(audit_named("geometric"), draws=audit_named("geometric").broken)
    monkeypatch.setattr("noisegate.audit.audit.audit_named", lambda _: broken)
    found = CliRunner().invoke(app, ["audit", "--mechanism", "geometric"])
    assert found.exit_code == VIOLATION_CODE
    assert VIOLATION in found.stdout


def test_the_table_is_written_as_a_page():
    page = markdown(lines([partial(audit_named, "geometric")], Extent(trials=2000)))
    assert page.startswith("| audit | claimed ε | δ |")
    assert "counts of 1 and of 0" in page
