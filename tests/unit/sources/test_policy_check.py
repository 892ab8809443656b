"""What `check` finds in a policy, how gravely it takes it, and what it says a choice costs."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

import noisegate as ng
from noisegate.planning.calibrate import geometric_error
from noisegate.privacy.domain import Kind
from noisegate.root.stewards import check_policy
from noisegate.sources.policy.policy import read_policy
from noisegate.sources.policy.tables import domains
from noisegate.steward.check import Severity, check

CLINIC = Path(__file__).parents[3] / "examples" / "clinic.toml"
TIDY = """
name = "d"
protects = "patient"
[budget]
epsilon = 2
delta = 1e-8
[questions]
default_epsilon = 0.5
max_epsilon = 1
[analysts]
ana = 1
[tables.visits]
unit = "patient_id"
rows_per_unit = 20
groups_per_unit = 3
rows_max = 100_000
[tables.visits.columns]
ward = { in = ["north", "south"] }
cost = { type = "number", between = [-100, 800] }
[tables.codes]
public = true
key = ["code"]
"""
STORED = {
    "visits": {
        "patient_id": Kind.INTEGER, "ward": Kind.TEXT, "cost": Kind.NUMBER, "x": Kind.NUMBER,
        "email": Kind.TEXT, "day": Kind.DATE, "at": Kind.TIMESTAMP,
    },
    "codes": {"code": Kind.TEXT},
    "other": {"patient_id": Kind.TEXT, "x": Kind.NUMBER},
}  # fmt: skip


def error(reach, epsilon):
    return geometric_error(reach / epsilon, confidence="0.95")


@pytest.fixture
def findings(tmp_path):
    def of(*changes, more=""):
        text = TIDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / "d.toml").write_text(text + more, encoding="utf-8")
        policy = read_policy(tmp_path / "d.toml")
        tables = domains(policy, stored=STORED, keys_of=lambda *_: ("a",))
        return check(policy, tables, stored=STORED, error=error)

    return of


def kept(found, severity, place):
    return [one for one in found if (one.severity, one.place) == (severity, place)]


def test_a_tidy_policy_has_only_costs(findings):
    found = findings()
    assert [(one.severity, one.place) for one in found] == [
        (Severity.ADVICE, "allow"),
        (Severity.ADVICE, "tables.visits.rows_per_unit"),
        (Severity.ADVICE, "tables.visits.columns.cost"),
    ]


def test_the_example_has_no_errors_and_no_warnings():
    policy = read_policy(CLINIC)
    stored = {
        name: dict.fromkeys(
            Path(policy.origin(name)).read_text(encoding="utf-8").partition("\n")[0].split(","),
            Kind.TEXT,
        )
        for name in policy.tables
    }
    tables = domains(policy, stored=stored, keys_of=lambda *_: ("aspirin",))
    found = check(policy, tables, stored=stored, error=error)
    assert {one.severity for one in found} == {Severity.ADVICE}
    assert any("SUM(cost): ± 479,318 at ε = 0.1 for one cell" in one.problem for one in found)


E, W, A = Severity.ERROR, Severity.WARNING, Severity.ADVICE
CASES = [
    ("epsilon = 2", "epsilon = 11", W, "budget.epsilon", "59,874"),
    ("epsilon = 2", "epsilon = 900", W, "budget.epsilon", "million"),
    ("delta = 1e-8", "delta = 2e-6", W, "budget.delta", "100,000 rows"),
    ("delta = 1e-8", "delta = 1e-5", E, "budget.delta", "100,000 rows"),
    ("rows_max = 100_000", "", A, "budget.delta", "cannot be judged"),
    ("ana = 1", "ana = 1\nben = 2", A, "analysts", "add up to ε = 3"),
    ("default_epsilon = 0.5", "", A, "questions.default_epsilon", "name its price"),
    ("max_epsilon = 1", "", A, "questions.max_epsilon", "whole budget"),
    ("rows_per_unit = 20", "", A, "tables.visits", "its own contribution bound"),
    ("groups_per_unit = 3", "", A, "tables.visits", "by group"),
    ('key = ["code"]', "", A, "tables.codes", "joined"),
    ("ward =", "x = {}\nward =", A, "tables.visits.columns.x", "SUM, AVG"),
    ("ward = { in = ['north', 'south'] }", "ward = {}", A, "tables.visits.columns.ward", "costs δ"),
    ("ward =", "email = {}\nward =", W, "tables.visits.columns.email", "identified"),
    ('unit = "patient_id"', 'unit = "x"', E, "tables.visits.unit", "exactly"),
    ('unit = "patient_id"', 'unit = "day"', E, "tables.visits.unit", "exactly"),
    ("ward =", "patient_id = { hidden = true }\nward =", W, "tables.visits.unit", "hidden"),
    ("rows_per_unit = 20", "rows_per_unit = 101", W, "tables.visits.rows_per_unit", "a lot"),
    ("rows_max = 100_000", "rows_max = 1000", W, "tables.visits.columns.cost", "at most 800,000"),
    ("[tables.codes]", "[tables.other]\nunit = 'patient_id'\n[tables.codes]",
     E, "tables.other.unit", "are not matched"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "severity", "place", "words"), CASES)
def test_what_should_be_looked_at_is_found_where_it_is(findings, old, new, severity, place, words):
    old = old.replace("'", '"') if old.startswith("ward = {") else old
    assert not [one for one in kept(findings(), severity, place) if words in one.problem]
    (one,) = [o for o in kept(findings((old, new)), severity, place) if words in o.problem]
    assert one.fix
    assert str(one) == f"{severity.value}: {place}: {one.problem} {one.fix}"


def test_without_delta_a_column_without_keys_cannot_be_grouped_by(findings):
    found = findings(("delta = 1e-8", ""), ('{ in = ["north", "south"] }', "{}"))
    (one,) = kept(found, A, "tables.visits.columns.ward")
    assert "no question can group by it" in one.problem
    assert "delta" in one.fix


def test_rows_that_are_said_to_be_persons_but_name_them_are_doubted(findings):
    more = "[tables.other]\nevery_row_is_one_person = true\ncolumns = { patient_id = {}, x = {} }\n"
    found = kept(findings(more=more), W, "tables.other.every_row_is_one_person")
    assert [re.search("'(.*?)'", one.problem)[1] for one in found] == ["patient_id"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("2024-12-31", "the day after, 2025-01-01,"), ("2025-01-01", None), ("2024-02-29", "03-01"),
        ("2024-12-31T23:59:59", None),
    ],
)  # fmt: skip
def test_times_of_a_last_day_count_as_its_midnight(findings, end, said):
    times = f'at = {{ type = "timestamp", between = [2024-01-01, {end}] }}'
    found = kept(findings(("cost = {", f"{times}\ncost = {{")), W, "tables.visits.columns.at")
    assert [said in one.fix for one in found] == [True] * (said is not None)


def test_nothing_private_is_an_error(tmp_path):
    (tmp_path / "d.toml").write_text('name = "d"\nbudget = { epsilon = 1 }\n[tables]\n')
    (first, *_) = check(read_policy(tmp_path / "d.toml"), {}, stored={}, error=error)
    assert (first.severity, first.place) == (E, "tables")


def test_the_gravest_findings_come_first(findings):
    found = findings(("epsilon = 2", "epsilon = 11"), ("delta = 1e-8", "delta = 1e-5"),
                     ("max_epsilon = 1", ""))  # fmt: skip
    order = [list(Severity).index(one.severity) for one in found]
    assert order == sorted(order)
    assert set(order) == {0, 1, 2}


@pytest.mark.parametrize(("rows", "reach"), [(1, 1), (20, 800), (7, 3)])
def test_the_stated_cost_is_the_error_of_the_noise(findings, rows, reach):
    found = findings(
        ("rows_per_unit = 20", f"rows_per_unit = {rows}"), ("[-100, 800]", f"[0, {reach}]")
    )
    (one,) = kept(found, A, "tables.visits.columns.cost")
    stated = float(re.search(r"± ([\d,.]+)", one.problem)[1].replace(",", ""))
    true = error(rows * reach, Fraction(1, 2))
    assert true - 1 <= stated <= true * 1.01 + 1
    assert f"{rows:,} row" in one.problem
    assert f"up to {reach:,}" in one.problem


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "renyi-64"])
def test_the_stated_cost_is_that_of_an_order_in_every_account(tmp_path, accountant):
    (tmp_path / "people.csv").write_text("who,cost\n1,5\n")
    (tmp_path / "d.toml").write_text(
        f'name = "d"\nbudget = {{ epsilon = 2, delta = 1e-8, accountant = "{accountant}" }}\n'
        '[tables.people]\nunit = "who"\nrows_per_unit = 4\n'
        "[tables.people.columns]\ncost = { between = [0, 800] }\n"
    )
    gate = ng.open(tmp_path / "d.toml", ledger=":memory:")
    for sql, place in (("COUNT(*)", "rows_per_unit"), ("SUM(cost)", "columns.cost")):
        (one,) = kept(check_policy(tmp_path / "d.toml"), A, f"tables.people.{place}")
        stated = float(re.search(r"± ([\d,.]+) at ε = 0.1 ", one.problem)[1].replace(",", ""))
        (margin,) = gate.plan(f"SELECT {sql} AS n FROM people", epsilon=0.1).margins().values()
        assert stated == pytest.approx(margin, rel=0.03)
