"""Questions about disjoint parts cost together what the dearest part does."""

import io
import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import noisegate as ng
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Join, JoinKind, Matching, Project, Table, Union
from noisegate.algebra.tally import Sums, Term
from noisegate.cli import app
from noisegate.curator.measurement import Measurement
from noisegate.curator.parted import within
from noisegate.curator.partition import Part
from noisegate.errors import OverBudget, SourceError, SpecError, Unsupported
from noisegate.lab.what_if import spending
from noisegate.ledger import parts
from noisegate.ledger.open import restore_ledger
from noisegate.ledger.stores.memory import MemoryLedger
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.event import DeclaredEvent, InPart
from noisegate.privacy.loss import ApproxDP
from noisegate.sql.reading.reader import read
from noisegate.transforms.query import Query
from refusals import about

WARDS = ["north", "south", "west"]
COLUMNS = {"ward": {"in": WARDS}, "age": {"between": [0, 100]}}
POLICY = """
name = "clinic"
snapshot = "2026-01"
protects = "one patient"
ledger = "clinic.ledger"
[budget]
epsilon = 60
delta = 1e-6
accountant = "zcdp"
[analysts.ana]
epsilon = 40
delta = 1e-6
[analysts.bob]
epsilon = 40
delta = 1e-6
[tables.patients]
source = "patients.csv"
unit = { column = "id", ids = "patient" }
rows_per_unit = 1
columns.ward = { in = ["north", "south", "west"] }
columns.age = { between = [0, 100] }
[tables.visits]
source = "visits.csv"
unit = { column = "patient", ids = "patient" }
rows_per_unit = 12
columns.cost = { between = [0, 100] }
columns.place = { in = ["north", "south", "west"] }
"""


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """Patients and their visits, some at several places, some without a cost."""
    folder, rng, n = tmp_path_factory.mktemp("clinic"), np.random.default_rng(5), 300
    patients = pa.table(
        {"id": np.arange(n), "ward": rng.choice(WARDS, n), "age": rng.integers(0, 100, n)}
    )
    costs = [None if each < 3 else int(each) for each in rng.integers(0, 100, 1500)]
    visits = pa.table(
        {"patient": rng.integers(0, n, 1500), "cost": costs, "place": rng.choice(WARDS, 1500)}
    )
    csv.write_csv(patients, folder / "patients.csv")
    csv.write_csv(visits, folder / "visits.csv")
    (folder / "clinic.toml").write_text(POLICY)
    return SimpleNamespace(
        folder=folder, policy=folder / "clinic.toml", patients=patients.to_pandas(),
        visits=visits.to_pandas(),
    )  # fmt: skip


def people(**terms):
    rows = pa.table({"ward": WARDS * 40, "age": list(range(60)) * 2})
    return ng.open(rows, epsilon=10, columns=COLUMNS, table="people", **terms)


def test_parts_of_a_column_cost_what_the_dearest_does():
    gate = people()
    found = gate.partition("ward")
    assert list(found) == WARDS
    sql = "SELECT COUNT(*) FROM people"
    answers = [found[ward].sql(sql, epsilon=1) for ward in WARDS]
    assert [each.cost.epsilon for each in answers] == [1, 1, 1]
    charged = [each.caveats[-1].partition("charged ")[2] for each in answers]
    assert charged == ["ε = 1 now.", "ε = 0 now.", "ε = 0 now."]
    assert gate.spent == ApproxDP(1)
    assert found["north"].sql(sql, epsilon=1).free
    sql = "SELECT SUM(age) FROM people WHERE age > 5"
    assert found["west"].plan(sql, epsilon=Fraction(5, 2)).price.epsilon == Fraction(5, 2)
    answer = found["west"].sql(sql, epsilon=Fraction(5, 2))
    assert answer.guarantee.loss.epsilon == Fraction(5, 2)
    assert gate.spent == ApproxDP(Fraction(7, 2))
    found["south"].sql("SELECT COUNT(*) FROM people WHERE age < 30", epsilon=2)
    assert gate.spent == ApproxDP(Fraction(7, 2))  # south: 1 + 2
    assert gate.ledger.verify().ok


def test_a_part_may_be_asked_though_others_spent_all():
    gate = people()
    found = gate.partition("ward")
    found["north"].sql("SELECT COUNT(*) FROM people", epsilon=10)
    assert gate.remaining.epsilon == 0
    found["south"].sql("SELECT COUNT(*) FROM people", epsilon=10)
    for asked in (found["south"], found["north"], gate):
        assert not asked.plan("SELECT COUNT(*) FROM people WHERE age < 9", epsilon=1).fits
        with pytest.raises(OverBudget):
            asked.sql("SELECT COUNT(*) FROM people WHERE age < 9", epsilon=1)
    assert gate.spent == ApproxDP(10)


def test_overlapping_conditions_are_told_apart_by_their_order():
    gate = people()
    found = gate.partition(where={"young": "age < 20", "rest": "age < 100"})
    counts = [
        found[name].sql("SELECT COUNT(*) AS n FROM people", epsilon=5).to_arrow()["n"][0].as_py()
        for name in ("young", "rest")
    ]
    assert counts == pytest.approx([40, 80], abs=7)  # 10^-15 each
    assert gate.spent == ApproxDP(5)
    plan = found["rest"].plan("SELECT COUNT(*) FROM people", epsilon=1)
    assert any("none of those before" in each for each in plan.notes)


def test_two_partitions_add_up_and_so_does_what_is_asked_of_everybody():
    gate = people()
    for part in (*gate.partition("ward").values(), *gate.partition(where=["age < 9"]).values()):
        part.sql("SELECT COUNT(*) FROM people", epsilon=1)
    gate.sql("SELECT COUNT(*) FROM people", epsilon=1)
    assert gate.spent == ApproxDP(3)
    report = spending(gate.ledger, "people", delta=Fraction(1, 10**6), methods=("basic", "zcdp"))
    assert report.rows[0].epsilon == 3
    assert report.rows[1].note.startswith("ρ = 1.5 ")


def test_releases_and_quantiles_can_be_about_a_part():
    gate = people()
    found = gate.partition("ward")
    for ward in WARDS[:2]:
        release = found[ward].release("histogram", columns={"age": 10}, epsilon=1)
    assert release.cost.epsilon == 1
    assert gate.spent == ApproxDP(1)
    found["north"].sql("SELECT MEDIAN(age) FROM people", epsilon=1)
    assert gate.spent == ApproxDP(2)
    assert gate.ledger.verify().ok


def widths(gate, *filters):
    counts = [f"COUNT(*) FILTER (WHERE {each}) AS c{n}" for n, each in enumerate(filters)]
    plan = gate.plan(f"SELECT {', '.join(counts)} FROM people", epsilon=1).to_dict()
    return list(plan["margins"].values())


def test_disjoint_filters_are_priced_once():
    gate = people()
    once = widths(gate, "age < 5")
    assert widths(gate, "ward = 'north'", "ward = 'south'") == once * 2
    assert widths(gate, "age < 5", "age >= 5 AND age < 30", "age BETWEEN 30 AND 90") == once * 3
    assert min(widths(gate, "age < 5", "age < 30")) > 1.5 * once[0]
    assert min(widths(gate, "ward = 'north'", "age < 30")) > 1.5 * once[0]


def test_averages_with_disjoint_filters_are_priced_once_too(clinic):
    """As by groups, with the ± of groups; on units with several rows, and costs that are NULL."""
    gate = ng.open(clinic.policy, analyst="bob")
    asked = "SELECT {} FROM visits"
    each = [f"AVG(cost) FILTER (WHERE place = '{ward}') AS {ward}" for ward in WARDS]
    plan = gate.plan(asked.format(", ".join(each)), epsilon=12, rows=1500)
    answer = gate.sql(asked.format(", ".join(each)), epsilon=12, rows=1500)
    assert answer.cost == plan.price
    grouped = "SELECT place, AVG(cost) AS c FROM visits WHERE place IS NOT NULL GROUP BY place"
    wide = gate.plan(grouped, epsilon=12, rows=1500, fresh=True).to_dict()["margins"]["c"]
    for ward, found in zip(WARDS, answer.rows[0], strict=True):
        exact = clinic.visits[clinic.visits.place == ward].cost.mean()
        assert abs(found - exact) <= 4 * answer.margins()[ward][0]  # far below 1e-6
        assert answer.margins()[ward][0] <= 2 * wide
    low, high = (
        "AVG(cost) FILTER (WHERE place = 'north') AS c",
        "AVG(cost) FILTER (WHERE place = 'south') AS d",
    )
    apart = gate.plan(asked.format(f"{low}, {high}"), epsilon=1, rows=10**6).to_dict()["margins"]
    alone = gate.plan(
        "SELECT AVG(cost) AS c FROM visits WHERE place = 'north'", epsilon=1, rows=5 * 10**5
    )
    assert apart["c"] <= 1.2 * alone.to_dict()["margins"]["c"]  # at half of the price it is twice


@pytest.mark.parametrize(
    ("terms", "refusal", "subject"),
    [
        ({"column": "age"}, Unsupported, "keys"),
        ({"column": "wart"}, SpecError, "table"),
        ({}, SpecError, "partition"),
        ({"where": []}, SpecError, "partition"),
        ({"where": "age < 3"}, SpecError, "partition"),
        ({"where": ["age < 3", "age < 3"]}, SpecError, "partition"),
        ({"where": ["COUNT(*) > 3"]}, Unsupported, "aggregate"),
        ({"column": "ward", "several": "last"}, SpecError, "several"),
    ],
)
def test_what_is_no_partition_is_refused_for_free(terms, refusal, subject):
    gate = people()
    with pytest.raises(refusal, check=about(subject)):
        gate.partition(**terms)
    assert gate.spent == ApproxDP(0)


def test_a_part_is_not_split_again():
    part = people().partition("ward")["north"]
    with pytest.raises(SpecError, check=about("partition")):
        part.partition("ward")


def test_units_with_rows_of_several_parts_count_in_the_first_alone(clinic):
    gate = ng.open(clinic.policy, analyst="ana")
    with pytest.raises(Unsupported, check=about("several")):
        gate.partition("visits.place")
    found = gate.partition("visits.place", several="first")
    visits = clinic.visits
    number = visits.place.map({ward: place for place, ward in enumerate(WARDS)})
    first = number.groupby(visits.patient).transform("min") == number
    sql = "SELECT COUNT(*) AS n, COUNT(DISTINCT patient) AS people FROM visits"
    for ward in WARDS:
        answer = found[ward].sql(sql, epsilon=8)
        rows, units = (answer.to_arrow()[name][0].as_py() for name in ("n", "people"))
        exact = visits[first & (visits.place == ward)]
        assert units == pytest.approx(exact.patient.nunique(), abs=12)  # 6 sigma
        assert rows == pytest.approx(len(exact), abs=80)
        assert any("first of the parts" in each for each in answer.caveats)


def test_two_analysts_share_parts_across_tables_and_processes(clinic):
    ana, bob = (ng.open(clinic.policy, analyst=name) for name in ("ana", "bob"))
    root, own = (ana.ledger.balance(name).charge for name in ("clinic", "clinic/ana"))
    asked = ana.partition("patients.ward", several="first")
    asked["north"].sql("SELECT COUNT(*), SUM(cost) FROM visits", epsilon=2)
    joined = (
        "SELECT COUNT(*) AS n FROM visits v JOIN patients p ON v.patient = p.id WHERE p.age < 50"
    )
    answer = asked["south"].sql(joined, epsilon=2)
    both = clinic.visits.merge(clinic.patients, left_on="patient", right_on="id")
    exact = len(both[(both.ward == "south") & (both.age < 50)])
    assert answer.to_arrow()["n"][0].as_py() == pytest.approx(exact, abs=150)
    level = ana.ledger.balance("clinic").charge - root
    assert level == ana.ledger.balance("clinic/ana").charge - own
    others = bob.partition("patients.ward", several="first")["west"]
    cost = others.sql("SELECT COUNT(*) FROM patients", epsilon=1).cost
    assert cost.epsilon == 1  # of bob's own account
    assert ana.ledger.balance("clinic").charge - root == level  # of everybody's
    assert ana.ledger.verify().ok


def test_the_command_line_composes_separate_commands(clinic, tmp_path):
    csv.write_csv(pa.table({"ward": WARDS * 9, "age": [*range(27)]}), tmp_path / "people.csv")
    options = ["--budget", "3", "--epsilon", "1", "--keys", "ward=north,south,west", "--json"]
    ask = ["ask", str(tmp_path / "people.csv"), "SELECT COUNT(*) AS n FROM people", *options]
    left = []
    for ward in WARDS:
        done = CliRunner().invoke(app, [*ask, "--partition", "ward", "--part", ward])
        assert done.exit_code == 0, done.output
        left.append(json.loads(done.stdout)["remaining"])
    assert left == [2, 2, 2]
    split = ["--partition", "age < 9", "--partition", "age < 99", "--between", "age=0,99"]
    done = CliRunner().invoke(app, [*ask, *split, "--part", "age < 99"])
    assert json.loads(done.stdout)["remaining"] == 1
    wrong = CliRunner().invoke(app, [*ask, "--partition", "ward", "--part", "east"])
    assert wrong.exit_code != 0


def test_a_question_that_failed_is_asked_again_under_its_charge(monkeypatch, tmp_path):
    csv.write_csv(pa.table({"ward": WARDS * 9, "age": [*range(27)]}), tmp_path / "people.csv")
    gate = ng.open(tmp_path / "people.csv", epsilon=3, columns=COLUMNS)
    part = gate.partition("ward")["north"]
    with monkeypatch.context() as patch, pytest.raises(SourceError):
        patch.setattr("noisegate.curator.measurement.Measurement.draw", broken)
        part.sql("SELECT COUNT(*) FROM people", epsilon=1)
    assert gate.spent == ApproxDP(1)  # debit first
    again = ng.open(tmp_path / "people.csv", epsilon=3, columns=COLUMNS)
    again.partition("ward")["north"].sql("SELECT COUNT(*) FROM people", epsilon=1)
    again.partition("ward")["south"].sql("SELECT COUNT(*) FROM people", epsilon=1)
    assert again.spent == ApproxDP(1)
    assert again.ledger.verify().ok
    copy = io.StringIO()
    again.ledger.export(copy)
    copy.seek(0)
    restored = restore_ledger(copy, str(tmp_path / "copy.ledger"))
    assert restored.verify().ok
    assert restored.balance("people").spent == ApproxDP(1)


def broken(*_):
    raise MemoryError


# the ledger


def opened(**accounts):
    ledger = MemoryLedger()
    terms = {"budget": ApproxDP(1000), "accountant": "pure", "unit": "one person"}
    ledger.open_account("all", parent=None, **terms)
    for name in accounts:
        ledger.open_account(name, parent="all", **terms)
    return ledger


def steps(rng, count):
    """(account, partition or None, part, ε) at random, as adaptive analysts might ask."""
    for _ in range(count):
        which = rng.choice(["", "p", "q"])
        yield rng.choice(["all", "ana"]), str(which), str(rng.integers(3)), int(rng.integers(1, 9))


def lost_and_charged(ledger, rng, count):
    """The largest loss of any unit, by what was asked of its own parts, and what was charged."""
    lost = {}
    for place, (account, partition, part, epsilon) in enumerate(steps(rng, count)):
        event = DeclaredEvent(epsilon=Fraction(epsilon, 7))
        if partition:
            event = InPart(event=event, partition=partition, part=part)
        kind = "measurement" if place % 3 else "allowance"
        entry = ledger.reserve(
            f"r{place}", question="q", event=event, account=str(account), kind=kind
        )
        if kind == "allowance":
            entry.close(
                DeclaredEvent(epsilon=Fraction(epsilon, 14)), b""
            ) if not partition else None
        spent = Fraction(epsilon, 7 if kind == "measurement" or partition else 14)
        for unit in ((p, q) for p in "012" for q in "012"):
            inside = not partition or unit["pq".index(partition)] == part
            lost[unit] = lost.get(unit, 0) + (spent if inside else 0)
    return max(lost.values()), ledger.balance("all").spent.epsilon


def test_no_unit_loses_more_than_was_charged():
    for seed in range(5):
        ledger = opened(ana=1)
        lost, charged = lost_and_charged(ledger, np.random.default_rng(seed), 40)
        assert charged >= lost
        assert ledger.verify().problems == []


def test_a_level_that_does_not_rise_is_caught(monkeypatch):
    monkeypatch.setattr(parts, "_larger", lambda _, level: level)
    found = [lost_and_charged(opened(ana=1), np.random.default_rng(seed), 40) for seed in range(5)]
    assert all(charged < lost for lost, charged in found)


def test_a_log_that_charges_a_part_too_little_does_not_verify(monkeypatch):
    ledger = opened()
    with monkeypatch.context() as patch:
        patch.setattr(parts, "_larger", lambda _, level: level)
        ledger.reserve(
            "r", question="q", account="all", kind="measurement",
            event=InPart(event=DeclaredEvent(epsilon=1), partition="p", part="1"),
        )  # fmt: skip
    assert any("its part is charged too little" in each for each in ledger.verify().problems)


# the door: concrete neighbours


UNITS = [
    [("south", 20), ("south", 30)], [("west", 1), ("north", 2)],
    [("south", 5), ("west", 6), ("west", 7)], [(None, 8), ("east", 4), ("west", 3)],
]  # fmt: skip


def rows_of(units):
    rows = [(number, ward, age) for number, unit in units for ward, age in unit]
    names = ("id", "ward", "age")
    types = (pa.int64(), pa.string(), pa.int64())
    found = zip(*rows, strict=True)
    return pa.table({n: pa.array(v, t) for n, v, t in zip(names, found, types, strict=True)})


def gates(unit):
    """The gate of everybody, and for each unit the one without it."""
    terms = {"epsilon": 10, "columns": COLUMNS, "table": "people", "unit": unit}
    terms |= {"rows_per_unit": 3} if unit else {}
    everybody = list(enumerate(UNITS))
    if unit is None:  # each row is one
        everybody = [(n, [row]) for n, row in enumerate(row for u in UNITS[:2] for row in u)]
    yield None, ng.open(rows_of(everybody), **terms)
    for place in range(len(everybody)):
        yield place, ng.open(rows_of(everybody[:place] + everybody[place + 1 :]), **terms)


SHAPES = {
    "where": "SELECT COUNT(*) FROM people WHERE age > 2",
    "union": "SELECT COUNT(*) FROM (SELECT age FROM people UNION ALL SELECT age FROM people) u",
}
OF_UNITS = {
    "self-join": "SELECT COUNT(*) FROM people a JOIN people b ON a.id = b.id",
    "not exists": "SELECT COUNT(*) FROM people a WHERE NOT EXISTS "
    "(SELECT 1 FROM people b WHERE b.id = a.id AND b.age > a.age)",
}


def exact(gate, sql, key):
    """What the door would add noise to, for one part."""
    terms = {} if gate.tables["people"].is_row_level else {"several": "first"}
    part = gate.partition("ward", **terms)[key]
    relation = read(sql, part.tables).blocks[0].relation
    part.door.part.require(relation)
    return counted(gate, relation)


def counted(gate, relation):
    one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    cap = {} if gate.tables["people"].is_row_level else {"rows_per_unit": 9}
    return gate.door._source.sums(Sums(relation=relation, terms=(one,), **cap)).tolist()


@pytest.fixture(scope="module")
def neighbours():
    """By unit: the gates of everybody and without one."""
    return {unit: dict(gates(unit)) for unit in (None, "id")}


@pytest.mark.parametrize("unit", [None, "id"])
def test_a_unit_moves_the_numbers_of_one_part_at_most(neighbours, unit):
    found = neighbours[unit]
    moved = 0
    for sql in (OF_UNITS if unit else SHAPES).values():
        whole = {key: exact(found[None], sql, key) for key in WARDS}
        for place, without in found.items():
            differing = [key for key in WARDS if exact(without, sql, key) != whole[key]]
            assert len(differing) <= 1, (sql, place)
            moved += len(differing)
    assert moved >= 5


def test_relations_that_reach_beyond_a_part_are_refused_and_would_move_two(neighbours):
    found = neighbours["id"]
    gate = found[None]
    table = Table(gate.tables["people"])
    split = gate.partition("ward", several="first")
    parts_ = {key: split[key].door.part for key in ("south", "west")}
    south = parts_["south"]
    beyond = {
        "plain": lambda _: table,
        "the rows alone": lambda part: Filter(table, Call("eq", (part.by, Literal(part.key)))),
        "without a match": lambda part: Matching(table, part.relation, (), negated=True),
        "left": lambda part: Join(
            renamed(table), part.relation, ((Field("years"), Field("age")),), JoinKind.LEFT
        ),
        "union": lambda part: Union((renamed(table), renamed(part.relation))),
    }
    for name, make in beyond.items():
        with pytest.raises(Unsupported, check=about("part")):
            south.require(make(south))
        numbers = {key: counted(gate, make(part)) for key, part in parts_.items()}
        reached = [
            [key for key, part in parts_.items() if counted(other, make(part)) != numbers[key]]
            for place, other in found.items()
            if place is not None
        ]
        assert max(map(len, reached)) > 1, name  # what a mutant that accepts it would let through


def renamed(relation):
    return Project(relation, (("years", Field("age")),))


def test_parts_of_another_state_of_the_rows_are_other_parts():
    one, two = (people(snapshot=name).partition("ward")["north"].door.part for name in "12")
    assert isinstance(one, Part)
    assert one.partition != two.partition
    assert one.event(DeclaredEvent(epsilon=1)).part == two.event(DeclaredEvent(epsilon=1)).part


def test_keys_of_other_types_are_no_keys():
    table = people().tables["people"]
    for key in (True, 1.0, None, b"north", 1):
        with pytest.raises(Unsupported, check=about("part")):
            Part(table=table, by=Field("ward"), key=key, name="")


def test_a_recipe_cannot_say_itself_that_it_is_about_a_part():
    gate = people()  # else each made-up part would buy all of the budget, of everybody, again
    made_up = InPart(event=DeclaredEvent(epsilon=10), partition="p", part="1")
    for door in (gate.door, gate.partition("ward")["north"].door):
        with (
            pytest.raises(Unsupported, check=about("part")),
            door.allowance(made_up, question="q", request_id="r"),
        ):
            pass
    assert gate.spent == ApproxDP(0)


def test_the_door_takes_its_own_kind_of_part_alone():
    gate = people()
    part = gate.partition("ward")["north"].door.part
    lenient = SimpleNamespace(
        table=part.table, tables=part.tables, event=part.event, short="", require=lambda _: None
    )
    with pytest.raises(Unsupported, check=about("part")):
        within(gate.door, lenient)


def test_the_tables_behind_the_door_of_a_part_cannot_be_changed(clinic):
    # were visits their own units, one patient's would all count
    door = ng.open(clinic.policy, analyst="ana").partition("ward", several="first")["north"].door
    visits = door.tables["visits"]
    forged = replace(visits, unit=replace(visits.unit, column="cost"))
    with pytest.raises(TypeError):
        door.tables["visits"] = forged
    one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    query = Query(Sums(relation=door.part.of(forged), terms=(one,), rows_per_unit=1))
    with pytest.raises(Unsupported, check=about("table")):
        door.measure(Measurement(query=query, mechanisms=(Geometric(scale=1),)))


# rows that may change


def test_parts_are_refused_where_the_policy_names_no_state_of_the_rows(tmp_path):
    """A unit that moves to another part would be in two, and pay once."""
    (tmp_path / "people.csv").write_text("id,ward\n1,north\n2,south\n")
    policy = """
        name = "live"
        {}
        [budget]
        epsilon = 25
        [tables.people]
        source = "people.csv"
        unit = "id"
        columns.id = {{ type = "integer" }}
        columns.ward = {{ in = ["north", "south"] }}
    """
    (file := tmp_path / "live.toml").write_text(policy.format(""))
    gate = ng.open(file)
    part = {"by": "ward", "key": "north", "several": "first"}
    for refused in (
        lambda: gate.partition("ward", several="first"),
        lambda: gate.plan("SELECT COUNT(*) FROM people", epsilon=1, part=part),
        lambda: gate.sql("SELECT COUNT(*) FROM people", epsilon=1, part=part),
    ):
        with pytest.raises(Unsupported, check=about("snapshot")):
            refused()
    assert gate.spent == ApproxDP(0)
    file.write_text(policy.format('snapshot = "2026-01"'))
    named = ng.open(file)
    assert set(named.partition("ward", several="first")) == {"north", "south"}
    assert named.sql("SELECT COUNT(*) FROM people", epsilon=1, part=part).cost.epsilon == 1


def test_a_table_with_one_row_of_each_unit_is_split_as_it_is(tmp_path):
    """As its policy says; where that is wrong, a unit counts in the first part alone still."""
    pq.write_table(
        pa.table({"p": [*range(50), 0], "ward": ["north"] * 20 + ["south"] * 31}),
        tmp_path / "people.parquet",
    )
    policy = """
name = "clinic"
snapshot = "2026-01"
[budget]
epsilon = 1000000
[tables.people]
source = "people.parquet"
unit = "p"
rows_per_unit = {most}
{holds}
[tables.people.columns]
ward = {{ in = ["south", "north"] }}
"""
    holds = "rows_per_unit_holds = true"
    for most, said in ((1, ""), (2, holds)):
        (tmp_path / "clinic.toml").write_text(policy.format(most=most, holds=said))
        with pytest.raises(Unsupported, check=about("several")):
            ng.open(tmp_path / "clinic.toml", ledger=":memory:").partition("ward")
    (tmp_path / "clinic.toml").write_text(policy.format(most=1, holds=holds))
    with ng.open(tmp_path / "clinic.toml", ledger=":memory:") as gate:
        parts = gate.partition("ward")
        count = "SELECT COUNT(*) AS n FROM people"
        found = {key: parts[key].sql(count, epsilon=1000).rows[0][0] for key in parts}
        assert found == {"south": 31, "north": 19}  # person 0 is in both
        assert gate.spent.epsilon == 1000
        part = {"by": "ward", "key": "north"}
        assert gate.sql(count, epsilon=1000, part=part).rows[0][0] == 19


@pytest.mark.parametrize("several", [None, "first"])
def test_sessions_of_many_questions_are_about_a_part_and_pay_like_one(several):
    """Within ± and 6 more with a chance above 1 - 1e-6 each, by noise of scale below 1/2."""
    people = [*range(30), *range(30)]  # of units, each has rows in two parts
    rows = pa.table({"p": people, "ward": WARDS * 20, "age": [30, 40, 50, 60] * 15})
    unit = {} if several is None else {"unit": "p", "rows_per_unit": 2}
    gate = ng.open(
        rows, epsilon=1_000, columns=COLUMNS, table="people", ledger=MemoryLedger(), **unit
    )
    asked = ["SELECT COUNT(*) FROM people", "SELECT COUNT(*) FROM people WHERE age >= 50",
             "SELECT COUNT(*) FROM people WHERE ward = 'south'"]  # fmt: skip
    parts, first = gate.partition("ward", several=several), {}
    for person, ward in zip(people, WARDS * 20, strict=True):
        first[person] = min(first.get(person, ward), ward, key=WARDS.index)
    for key in ("north", "south"):
        kept = [
            row["age"]
            for row in rows.to_pylist()
            if row["ward"] == key and (several is None or first[row["p"]] == key)
        ]
        exact = [len(kept), sum(age >= 50 for age in kept), len(kept) if key == "south" else 0]
        terms = {"epsilon": 200, "questions": 9}
        plan = parts[key].many_plan({"age": [0, 50, 100], "ward": None}, **terms)
        with parts[key].many({"age": [0, 50, 100], "ward": None}, **terms) as session:
            found = session.answers(asked)
            with pytest.raises(Unsupported, check=about("value")):
                session.sql("SELECT COUNT(*) FROM people WHERE ward = 'nowhere'")
            assert session.balance.spent == plan.price == ApproxDP(200)  # nothing is given back
        off = [abs(one.value - true) - one.margin for one, true in zip(found, exact, strict=True)]
        assert max(off) <= 6
        assert gate.spent == ApproxDP(200)  # the south costs no more than the north did
        assert "Only the part" in str(found[0])
    with gate.many({"age": [0, 50]}, **terms), parts["west"].many({"age": [0, 50]}, **terms):
        assert gate.spent == ApproxDP(400)  # all units, and one part


def test_an_order_names_a_part_of_few_conditions(tmp_path):
    rows = pa.table({"ward": WARDS * 20, "age": [30, 40, 50] * 20})
    gate = ng.open(rows, epsilon=20, columns=COLUMNS, table="people", ledger=MemoryLedger())
    by = [f"age = {age}" for age in range(101)]
    with pytest.raises(SpecError, check=about("part")):
        gate.sql("SELECT COUNT(*) FROM people", epsilon=1, part={"by": by, "key": by[0]})
    few = {"by": by[30:60], "key": by[40]}
    assert abs(gate.sql("SELECT COUNT(*) FROM people", epsilon=15, part=few).value - 20) < 4
