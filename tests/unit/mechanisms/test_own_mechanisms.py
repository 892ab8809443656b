"""A mechanism of a researcher's own: off by default, priced by the question, charged first, said to be a claim."""

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate as ng
from noisegate import dp
from noisegate.client.gate import RemoteGate
from noisegate.curator.own import CAPABILITY, OwnMeasurement
from noisegate.errors import Forbidden, NoisegateError, OverBudget, SpecError, Unsupported
from noisegate.orders import order_from
from noisegate.privacy.capability import CAPABILITIES, OPT_IN
from noisegate.privacy.event import NothingEvent
from noisegate.root import check_policy, policy_page
from refusals import about

POLICY = """
name = "town"
snapshot = "1"
{more}
[budget]
epsilon = 20
delta = 1e-6
accountant = "{accountant}"
[analysts]
ana = 10
ben = {{ epsilon = 5, allow = {{ others = true }} }}
[tables.visits]
unit = "who"
rows_per_unit = 3
[tables.visits.columns]
who = {{ type = "integer" }}
ward = {{ in = ["north", "south", "west"], nullable = false }}
cost = {{ type = "integer", between = [0, 50], nullable = false }}
town = {{}}
"""
ALLOWED = f"allow = {{ {CAPABILITY} = true }}\n"
WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
SPENT = Fraction(3, 10)


@dataclass(frozen=True)
class Plain:
    """Geometric noise again: its law is known, so that what comes out can be judged."""

    name: ClassVar[str] = "plain"
    version: ClassVar[str] = "1"
    claimed_by: ClassVar[str] = "R. Searcher"
    takes: ClassVar[str] = "L1"
    epsilon: Fraction = SPENT

    def law(self, sensitivity):
        return dp.Geometric(scale=sensitivity.value / self.epsilon)

    def event(self, sensitivity):
        return self.law(sensitivity).event(sensitivity)

    def sample(self, exact, sensitivity):
        return self.law(sensitivity).sample(exact)

    def interval(self, confidence, sensitivity):
        return self.law(sensitivity).interval(confidence)


@dataclass(frozen=True)
class Smooth(Plain):
    """Gaussian noise, by the other norm; what is paid is ρ = ε²/2."""

    name: ClassVar[str] = "smooth"
    takes: ClassVar[str] = "L2"

    def law(self, sensitivity):
        return dp.DiscreteGaussian(variance=sensitivity.squared / self.epsilon**2)


def broken(act):
    """A mechanism whose draw does something else."""

    @dataclass(frozen=True)
    class Broken(Plain):
        name: ClassVar[str] = f"broken {act.__name__}"

        def sample(self, exact, _):
            return act(exact)

    return Broken()


def stated(make):
    """A mechanism that states another event."""

    @dataclass(frozen=True)
    class Stated(Plain):
        def event(self, sensitivity):
            return make(sensitivity)

    return Stated()


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """Units with up to nine rows, of which three count; opened under a policy with a new ledger."""
    folder = tmp_path_factory.mktemp("own")
    who = np.repeat(np.arange(60), 1 + np.arange(60) % 9)
    rows = pa.table({
        "who": who, "ward": np.array(["north", "south", "west"])[who % 3],
        "cost": (who * 7) % 51, "town": np.array(["x", "y"])[who % 2],
    })  # fmt: skip
    pq.write_table(rows, folder / "visits.parquet")

    def opened(more=ALLOWED, analyst="ana", accountant="pure", ledger=":memory:", **terms):
        text = POLICY.format(more=more, accountant=accountant)
        (folder / "town.toml").write_text(text)
        return ng.open(folder / "town.toml", analyst=analyst, ledger=ledger, **terms)

    opened.policy = folder / "town.toml"
    return opened


def test_it_is_priced_by_the_sensitivity_of_the_question_and_found_again(town):
    gate = town()
    plan = dp.measure_plan(gate, WARDS, Plain())
    assert plan.price.epsilon == SPENT
    assert gate.spent.epsilon == 0
    answer = dp.measure(gate, WARDS, Plain())
    assert (answer.cost.epsilon, gate.spent.epsilon) == (SPENT, SPENT)
    assert answer.columns == ("ward", "n")
    assert answer["ward"] == ("north", "south", "west")
    counted = {
        ward: sum(min(1 + i % 9, 3) for i in range(at, 60, 3))
        for at, ward in enumerate(answer["ward"])
    }
    assert all(abs(n - counted[ward]) < 150 for ward, n in answer)  # scale 10: one in 10**6
    wide = float(dp.Geometric(scale=10).interval("0.95"))
    assert answer.half_widths("0.95")[1][0] == pytest.approx(wide, abs=1)
    (entry,) = [each for each in gate.history() if each.kind == "reserve"]
    moved = dp.L1(Fraction(entry.body["event"]["sensitivity"]))  # in grains: three rows of a unit
    assert (
        dp.pure_loss(dp.GeometricEvent(scale=moved.value / SPENT, sensitivity=moved)).epsilon
        == SPENT
    )
    assert moved == query_of(gate).l1s[0]
    again = dp.measure(gate, WARDS, Plain())
    assert (again.rows, again.cost.epsilon, gate.spent.epsilon) == (answer.rows, 0, SPENT)
    assert dp.measure_plan(gate, WARDS, Plain()).free
    assert dp.measure(gate, WARDS, Plain(epsilon=SPENT / 2)).cost.epsilon == SPENT / 2
    assert dp.measure(gate, WARDS, Plain(), fresh=True).cost.epsilon == SPENT
    assert gate.sql(WARDS, epsilon=SPENT).cost.epsilon == SPENT  # no question stands on a claim
    assert gate.ledger.verify().ok


def test_the_noise_is_the_mechanisms_and_the_exact_numbers_are_the_engines(town):
    seen = []

    def spy(exact):
        seen.extend(exact.tolist())
        return exact

    gate, plain = town(), town(analyst="ben", more="")
    answer = dp.measure(gate, WARDS, broken(spy))
    assert len(seen) == 3
    near = plain.sql(WARDS, epsilon=5)  # scale 3/5: ± 15 is one in 10**10
    assert all(abs(a - b) < 15 for a, b in zip(near["n"], answer["n"], strict=True))


def test_units_with_many_rows_under_zcdp_pay_rho(town):
    gate = town(accountant="zcdp")
    plan = dp.measure_plan(gate, WARDS, Smooth())
    before = gate.spent
    dp.measure(gate, WARDS, Smooth())
    (entry,) = [each for each in gate.history() if each.kind == "reserve"]
    assert entry.body["event"]["event"] == "discrete-gaussian/1"
    moved = Fraction(entry.body["event"]["sensitivity"])
    assert moved == query_of(gate).l2s[0].squared
    assert Fraction(entry.body["event"]["variance"]) == moved / SPENT**2
    assert gate.spent.epsilon > before.epsilon
    assert plan.price.epsilon > 0
    dp.measure(gate, WARDS, Plain())  # a pure event is priced there too
    with pytest.raises(Unsupported):
        dp.measure(town(accountant="pure"), WARDS, Smooth())  # without a price, before the charge


def test_the_claim_is_said_to_be_the_researchers(town):
    gate = town()
    mine = Plain(epsilon=Fraction(1))
    found = dp.audit_of(mine, dp.L1(3)).run(dp.Extent(trials=4_000))  # false alarms: 1e-6
    assert not found.is_violation
    plan = dp.measure_plan(gate, WARDS, mine, audit=found)
    record = plan.to_dict("0.95")
    assert record["own_mechanism"]["claimed_by"] == "R. Searcher"
    assert record["own_mechanism"]["proven"] is False
    assert record["own_mechanism"]["measured_epsilon"] == found.lower_bound
    assert "claimed by R. Searcher, not proven by noisegate" in str(plan)
    answer = dp.measure(gate, WARDS, mine, audit=found)
    for text in (
        answer.to_json(),
        answer.card().to_markdown(),
        str(answer.guarantee),
        repr(answer.caveats),
    ):
        assert "claimed by R. Searcher, not proven by noisegate" in text
    assert "measured ε ≥" in answer.card().to_markdown()
    assert json.loads(answer.to_json())["margins"][0][1] > 0


@dataclass(frozen=True)
class Later(Plain):
    version: ClassVar[str] = "2"


@dataclass(frozen=True)
class Renamed(Plain):
    name: ClassVar[str] = "plane"


@dataclass(frozen=True)
class Borrowed(Plain):
    claimed_by: ClassVar[str] = "Somebody Else"


@pytest.mark.parametrize(
    "other",
    [Later(), Renamed(), Borrowed(), Plain(epsilon=Fraction(2)), Smooth()],
    ids=["version", "name", "author", "parameter", "norm"],
)
def test_an_audit_of_another_mechanism_is_refused_before_the_charge(town, other):
    gate, sensitivity = town(accountant="zcdp"), dp.L1(1)
    found = dp.audit_of(Plain(), sensitivity).run(dp.Extent(trials=200))
    assert dp.measure_plan(gate, WARDS, Plain(), audit=found).price.epsilon > 0
    for ask in (dp.measure, dp.measure_plan):
        with pytest.raises(SpecError, check=about("audit")):
            ask(gate, WARDS, other, audit=found)
    assert gate.spent.epsilon == 0


def test_an_audit_that_names_no_mechanism_and_one_of_a_broken_copy_vouch_for_nothing(town):
    gate, audit = town(), dp.audit_of(Plain(), dp.L1(1), broken=Plain(epsilon=SPENT * 2))
    assert audit.run(dp.Extent(trials=200)).to_dict()["about"]["version"] == "1"
    copy = audit.run(dp.Extent(trials=200), broken=True)
    by_hand = replace(audit, about=None).run(dp.Extent(trials=200))
    for found in (copy, by_hand):
        with pytest.raises(SpecError, check=about("audit")):
            dp.measure(gate, WARDS, Plain(), audit=found)
    assert gate.spent.epsilon == 0


def test_runs_of_another_mechanism_are_not_resumed(tmp_path):
    kept = dp.Extent(trials=200, resume=tmp_path / "runs.npz")
    dp.audit_of(Plain(), dp.L1(1)).run(kept)
    assert dp.audit_of(Plain(), dp.L1(1)).run(kept).trials >= 200
    with pytest.raises(NoisegateError):
        dp.audit_of(Plain(epsilon=Fraction(2)), dp.L1(1)).run(kept)


def test_an_audit_catches_noise_that_is_too_small(town):
    @dataclass(frozen=True)
    class Boastful(Plain):
        def event(self, sensitivity):
            return Plain(epsilon=self.epsilon / 8).event(sensitivity)

    found = dp.audit_of(Boastful(epsilon=Fraction(2)), dp.L1(3)).run(dp.Extent(trials=4_000))
    assert found.is_violation
    gate = town()
    with pytest.raises(SpecError, check=about("audit")):
        dp.measure(gate, WARDS, Boastful(), audit=found)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(
    "more", ["", "allow = { others = true }\n", f"allow = {{ {CAPABILITY} = false }}\n"]
)
def test_it_is_refused_by_the_door_unless_the_policy_names_it(town, more):
    gate = town(more=more)
    for ask in (partial(dp.measure, gate), partial(dp.measure_plan, gate)):
        with pytest.raises(Forbidden, match=CAPABILITY):
            ask(WARDS, Plain())
    job = OwnMeasurement(query=query_of(town()), mechanism=Plain())
    with pytest.raises(Forbidden):
        gate.door.measure(job)
    assert gate.spent.epsilon == 0
    assert not set(OPT_IN) & set(CAPABILITIES)


def test_a_policy_that_allows_it_is_told_so_by_the_check_and_on_its_page(town):
    town()
    found = [each for each in check_policy(town.policy) if each.place == f"allow.{CAPABILITY}"]
    assert [each.severity.value for each in found] == ["warning"]
    assert CAPABILITY in policy_page(town.policy)
    town(more="")
    assert CAPABILITY not in policy_page(town.policy)


def query_of(gate):
    from noisegate.robust.own import own_job

    return own_job(gate._desk, WARDS, Plain()).measurement.query


def test_it_is_refused_to_an_analyst_whose_share_does_not_name_it_and_without_a_policy(
    town, tmp_path
):
    with pytest.raises(Forbidden):
        dp.measure(town(analyst="ben"), WARDS, Plain())
    bare = ng.open(
        pa.table({"ward": ["north"]}),
        epsilon=1,
        columns={"ward": {"in": ["north"]}},
        table="visits",
    )
    with pytest.raises(Forbidden):
        dp.measure(bare, WARDS, Plain())


def test_no_face_of_a_service_has_a_way_to_it():
    assert not hasattr(RemoteGate, "measure")
    for record in ({"kind": "measure", "sql": WARDS}, {"kind": "own mechanism", "sql": WARDS}):
        with pytest.raises(NoisegateError):
            order_from(record)


def fails(exact):
    raise ValueError(f"the first is {exact[0]}")


def too_few(exact):
    return exact[:1]


def floats(exact):
    return exact.astype(float)


def late(exact):
    time.sleep(5)
    return exact


@pytest.mark.parametrize("act", [fails, too_few, floats, late])
def test_one_that_fails_says_one_thing_keeps_the_charge_and_draws_once(town, act, capfd):
    gate = town()
    words = set()
    for _ in range(2):
        with pytest.raises(Unsupported, check=about("mechanism")) as found:
            dp.measure(gate, WARDS, broken(act), seconds=1)
        words.add(str(found.value))
        assert found.value.__cause__ is found.value.__context__ is None
        assert gate.spent.epsilon == SPENT  # once: the failure is the answer
    assert len(words) == 1
    assert capfd.readouterr().err == ""
    assert dp.measure_plan(gate, WARDS, broken(act)).free


@pytest.mark.parametrize(
    "make",
    [
        lambda _: NothingEvent(),
        lambda _: dp.GeometricEvent(scale=Fraction(10), sensitivity=dp.L1(1)),  # another question's
        lambda s: dp.PoissonSampled(event=Plain().event(s), probability=Fraction(1, 10)),
        lambda s: dp.Parallel(events=(Plain().event(s),)),
        lambda _: "ε = 0.1",
        lambda s: 1 / 0 * s,
    ],
)  # fmt: skip
def test_an_event_that_is_not_for_this_question_is_refused_before_the_charge(town, make):
    gate = town()
    with pytest.raises(Unsupported, check=about("own")):
        dp.measure(gate, WARDS, stated(make))
    assert gate.spent.epsilon == 0


def test_a_declared_event_and_several_in_sequence_are_priced(town):
    gate = town()
    assert (
        dp.measure(
            gate, WARDS, stated(lambda _: dp.DeclaredEvent(epsilon=Fraction(1, 2)))
        ).cost.epsilon
        == 0.5
    )
    twice = stated(lambda s: dp.Sequential(events=(Plain().event(s),) * 2))
    assert dp.measure_plan(gate, WARDS, twice).price.epsilon == 2 * SPENT
    with pytest.raises(OverBudget):
        dp.measure(gate, WARDS, stated(lambda _: dp.DeclaredEvent(epsilon=Fraction(11))))


@pytest.mark.parametrize("times", [1, 3])
def test_a_price_of_nothing_is_refused(town, times):
    gate = town()
    free = dp.DeclaredEvent(epsilon=Fraction(0))
    with pytest.raises(Unsupported, check=about("own")):
        dp.measure(gate, WARDS, stated(lambda _: dp.Repeated(event=free, count=times)))


def test_what_is_no_mechanism_and_no_plain_question_is_refused(town):
    gate = town()

    @dataclass
    class Loose(Plain.__base__):
        name: ClassVar[str] = "loose"

    for wrong in (Loose(), object(), dp.Geometric(scale=1), Plain(epsilon=[1])):
        with pytest.raises(SpecError):
            dp.measure(gate, WARDS, wrong)
    for sql in (
        "SELECT town, COUNT(*) FROM visits GROUP BY town",
        "SELECT AVG(cost) FROM visits",
        "SELECT * FROM visits",
    ):
        with pytest.raises(NoisegateError):
            dp.measure(gate, sql, Plain())
    with pytest.raises(SpecError, check=about("sample")):
        dp.measure(gate.sample("1/2"), WARDS, Plain())
    assert gate.spent.epsilon == 0


def test_a_process_that_is_killed_after_the_charge_stays_charged(town, tmp_path):
    gate = town(ledger=tmp_path / "kept")
    code = textwrap.dedent("""
        import os, sys
        import noisegate as ng
        from noisegate import dp
        from test_own_mechanisms import WARDS, broken
        def kill(exact):
            os._exit(9)
        dp.measure(ng.open(sys.argv[1], analyst="ana", ledger=sys.argv[2]), WARDS, broken(kill))
    """)
    path = os.pathsep.join(sys.path)
    where = [str(town.policy), str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, "-c", code, *where], check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 9
    assert gate.spent.epsilon == SPENT
