"""What a policy forbids is refused by the door: asked, planned, for all and for one analyst."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate as ng
from door import count_query, curator
from noisegate import learners
from noisegate.curator.measurement import Measurement
from noisegate.curator.series import Counter, Series
from noisegate.curator.surprises import SurpriseSpec, open_surprises
from noisegate.errors import Forbidden, PolicyError
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.privacy.capability import CAPABILITIES
from noisegate.privacy.event import DeclaredEvent
from noisegate.sources.policy.policy import read_policy
from noisegate.steward.page import page

POLICY = """
name = "town"
source = "town"
[budget]
epsilon = 60
delta = 1e-3
[tables.people]
every_row_is_one_person = true
[tables.people.columns]
age = { type = "integer", between = [0, 79], nullable = false }
cost = { type = "number", between = [0, 500], nullable = false }
ward = { in = ["north", "south", "west"] }
a = { type = "integer", between = [0, 9], nullable = false }
b = { type = "integer", between = [0, 9], nullable = false }
"""
ANA = "[analysts]\nana = { epsilon = 50, allow = { %s } }\nben = 50\n"


def mean_age(rows):
    return rows["age"].mean()


def released(name, **terms):
    """A release, and its plan."""
    terms = {"epsilon": 1, **terms}
    return (
        lambda gate: gate.release(name, **terms),
        lambda gate: gate.release_plan(name, **terms),
    )


def learnt(make, columns, target=None):
    return (
        lambda gate: make().fit(gate.matrix("people", columns, target=target)),
        lambda gate: make().plan(gate.matrix("people", columns, target=target)),
    )


def session(gate):
    with gate.many({"age": 40, "ward": None}, epsilon=1, surprises=1) as many:
        return many.sql("SELECT COUNT(*) FROM people WHERE age < 40")


PROGRAM = {"epsilon": 1, "columns": ["age"], "range": (0, 80), "blocks": 2, "seconds": "0.3"}
CROWD = {"columns": {"ward": None}, "probability": "1/4", "crowd": 40, "delta": "1e-6"}
MEDIAN = "SELECT MEDIAN(age) AS m FROM people"
ASKED = {  # for each capability: how it is asked for, and how it is planned
    "programs": (
        lambda gate: gate.apply(mean_age, **PROGRAM),
        lambda gate: gate.apply_plan(mean_age, **PROGRAM),
    ),
    "series": released("series", columns={"age": 10}, until=39),
    "many": (
        session, lambda gate: gate.many_plan({"age": 40, "ward": None}, epsilon=1, surprises=1)
    ),
    "learning": learnt(lambda: learners.KMeans(n_clusters=2, epsilon=1), ["age", "cost"]),
    "objective": learnt(
        lambda: learners.LogisticRegression(epsilon=1, method="objective"), ["age", "cost"], "ward"
    ),
    "partitions": released("dawa", columns={"age": 1}),
    "smooth": (
        lambda gate: gate.smooth(MEDIAN, epsilon=1), lambda gate: gate.smooth_plan(MEDIAN, epsilon=1)
    ),
    "crowds": released("crowd-histogram", **CROWD, epsilon=None),
    "graphs": (
        lambda gate: gate.graph("people", source="a", target="b").edges(epsilon=1),
        lambda gate: gate.graph_plan("people", source="a", target="b").edges(epsilon=1),
    ),
    "sparse": released("sparse", columns={"age": None, "cost": 10}),
}  # fmt: skip


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A folder with one table, and how to open it under a policy."""
    folder = tmp_path_factory.mktemp("allow")
    (folder / "town").mkdir()
    at = np.arange(600)
    rows = pa.table({
        "age": at % 80, "cost": (at * 7 % 500).astype(float),
        "ward": np.array(["north", "south", "west"])[at % 3], "a": at % 10, "b": at * 3 % 10,
    })  # fmt: skip
    pq.write_table(rows, folder / "town" / "people.parquet")

    def opened(more="", analyst=None):
        head, table, tables = POLICY.partition("[tables.people]")
        (folder / "town.toml").write_text(f"{head}{more}\n{table}{tables}")
        return ng.open(folder / "town.toml", analyst=analyst, ledger=":memory:")

    return opened


def refused(gate, capability):
    """Asking and planning are refused by name and code, and cost nothing."""
    for ask in ASKED[capability]:
        with pytest.raises(Forbidden, match=f"does not allow '{capability}'") as found:
            ask(gate)
        assert found.value.code == "forbidden"
    assert gate.spent.epsilon == 0
    assert gate.ledger.balance("town").spent.epsilon == 0


def test_every_capability_is_tried():
    assert set(ASKED) == set(CAPABILITIES)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_is_forbidden_is_refused_on_the_data_sets_own_account(town, capability):
    gate = town(f"[allow]\n{capability} = false\n")
    refused(gate, capability)
    assert gate.door.allowed == set(CAPABILITIES) - {capability}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_an_analyst_is_given_less_than_the_data_set(town, capability):
    policy = ANA % f"{capability} = false"
    refused(town(policy, analyst="ana"), capability)
    plan = ASKED[capability][1](town(policy, analyst="ben"))
    assert plan.price.epsilon > 0 or capability == "crowds"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_is_named_is_allowed_where_others_are_not(town, capability):
    needed = {"graphs": ("graphs",), "objective": ("objective", "learning")}
    listed = needed.get(capability, (capability,))
    gate = town("[allow]\nothers = false\n" + "".join(f"{name} = true\n" for name in listed))
    assert gate.door.allowed == set(listed)
    assert ASKED[capability][1](gate).fits
    for other in set(CAPABILITIES) - set(listed):
        with pytest.raises(Forbidden):
            ASKED[other][1](gate)


def test_without_the_section_everything_is_allowed(town):
    assert town().door.allowed == set(CAPABILITIES)


def test_an_analyst_is_never_given_more(town):
    with pytest.raises(PolicyError, match=r"analysts\.ana\.allow\.programs"):
        town("[allow]\nprograms = false\n" + ANA % "programs = true")
    gate = town("[allow]\nprograms = false\n" + ANA % "others = true", analyst="ana")
    refused(gate, "programs")
    gate = town("[allow]\nothers = false\nseries = true\n" + ANA % "series = false", analyst="ana")
    assert gate.door.allowed == set()


def test_sql_and_plain_releases_need_no_capability(town):
    gate = town("[allow]\nothers = false\n")
    assert gate.sql("SELECT ward, COUNT(*), AVG(cost) FROM people GROUP BY ward", epsilon=1)
    assert gate.sql(MEDIAN, epsilon=1)
    assert gate.choose("SELECT ward, COUNT(*) FROM people GROUP BY ward", epsilon=1)
    assert gate.release("histogram", columns={"ward": None}, epsilon=1)


def test_a_table_whose_method_is_free_takes_one_that_is_allowed(town):
    """Sums along one axis of 80 cells are measured by a plan, which chooses by the cells."""
    terms = {"columns": {"age": 1}, "workload": "ranges", "epsilon": "0.1"}
    assert "planned" in str(town().release_plan("histogram", **terms))
    gate = town("[allow]\npartitions = false\n")
    assert "planned" not in str(gate.release_plan("histogram", **terms))
    assert gate.release("histogram", **terms).cost.epsilon > 0
    with pytest.raises(Forbidden):
        gate.release("questions", columns={"age": 40}, workload=["SELECT COUNT(*) FROM people"],
                     epsilon=1)  # fmt: skip


def test_a_learner_that_may_choose_does_without_a_forbidden_objective(town):
    gate = town("[allow]\nobjective = false\n")
    model = learners.LogisticRegression(epsilon=20)
    assert model.fit(gate.matrix("people", ["age", "cost"], target="ward")).cost_.epsilon > 10


def test_noise_inside_a_capability_has_one_of_its_own(town):
    gate = town("[allow]\nsmooth = false\n")
    with pytest.raises(Forbidden, match="'smooth'"):
        gate.apply_plan(mean_age, **PROGRAM | {"blocks": 40}, aggregate="center")
    with pytest.raises(Forbidden, match="'smooth'"):
        gate.graph_plan("people", source="a", target="b").triangles(epsilon=1)


def test_the_door_itself_refuses_before_a_charge():
    door = curator(allowed=())
    tree = Measurement(
        query=count_query(by="ward"), mechanisms=(PrivTree.for_epsilon(1, shape=(3,)),)
    )
    crowd = CrowdCounts(probability="1/2", crowd=9, epsilon=1)
    for asked in (tree, Measurement(query=count_query(by="ward"), mechanisms=(crowd,))):
        for ask in (door.measure, door.find):
            with pytest.raises(Forbidden):
                ask(asked)
    with (
        pytest.raises(Forbidden),
        door.allowance(DeclaredEvent(epsilon=1), question="?", request_id="1", uses={"series"}),
    ):
        raise AssertionError
    assert door.ledger.balance(door.account).spent.epsilon == 0
    with (
        door.allowance(DeclaredEvent(epsilon=1), question="?", request_id="2") as allowed,
        pytest.raises(Forbidden),  # it said that it would use nothing
    ):
        allowed.whole.measure(tree)
    assert door.ledger.balance(door.account).spent.epsilon == 0
    counter = Counter(
        relation=count_query().tally.relation, period=count_query(by="ward").tally.by[0].expression,
        periods=("north", "south", "west"), term=count_query().tally.terms[0], rows_per_unit=None,
        amount=tree.event().epsilon, gaussian=False, horizon=3,
    )  # fmt: skip
    with pytest.raises(Forbidden):
        Series(door, counter)
    band = OutsideBand.for_epsilon(1, threshold=5, sensitivity=1, cutoff=1)
    spec = SurpriseSpec(
        cells=count_query(by="ward"), reach=1, band=band, number=Geometric(scale=1), most=1,
        restarts=False,
    )  # fmt: skip
    with pytest.raises(Forbidden), open_surprises(door, spec, name="?", request_id="3"):
        raise AssertionError
    assert door.ledger.balance(door.account).spent.epsilon == 0


def test_the_page_and_the_check_say_what_is_exposed(town):
    text = "[allow]\nothers = false\nseries = true\ncrowds = true\n" + ANA % "crowds = false"
    gate = town(text, analyst="ben")
    file = gate.tables["people"].origin.rpartition("town")[0] + "town.toml"
    shown = page(read_policy(file))
    assert "| besides SQL" in shown
    assert "series, crowds" in shown
    assert "besides SQL: series" in shown
    found = {one.place: one.problem for one in ng.root.check_policy(file)}
    assert "these may be used: series, crowds; not: programs" in found["allow"]
    assert "these may be used: series; not:" in found["analysts.ana.allow"]
