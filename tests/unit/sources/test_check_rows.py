"""What rows do not say as the policy has it is told to the steward, and to nobody else."""

import json

import pytest
from typer.testing import CliRunner

from noisegate.cli.options import app
from noisegate.root import check_rows

POLICY = """
name = "clinic"
[budget]
epsilon = 1
[tables.visits]
source = "visits.csv"
unit = "pid"
rows_per_unit = 5
[tables.visits.columns]
pid = { type = "integer" }
cost = { type = "number", between = [0, 100] }
age = { type = "integer", between = [0, 120] }
day = { type = "date", between = [2024-01-01, 2024-12-31] }
at = { type = "timestamp", between = [2024-01-01T00:00:00, 2024-12-31T00:00:00] }
ward = { in = ["north", "south"] }
"""
ROWS = """pid;cost;age;day;at;ward
1;3.5;40;2024-02-01;2024-02-01 10:00:00;north
1;3,5;41;2024-02-02;2024-02-01 11:00:00;south
2;7,25;forty;31.12.2024;2024-02-01 11:00:00;west
;8;42;12/31/2024;2024-02-01 11:00:00;north
3;500;43;;not a time;north
3;NaN;44;2024-02-02;2024-02-01T11:00:00;north
"""


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "visits.csv").write_text(ROWS)
    file = tmp_path / "clinic.toml"
    file.write_text(POLICY)
    return file


def test_each_column_is_counted(policy):
    found = {each.place.removeprefix("tables.visits."): [] for each in check_rows(policy)}
    for each in check_rows(policy):
        found[each.place.removeprefix("tables.visits.")].append(each.problem)
    assert found == {
        "columns.cost": [
            "3 of 6 values cannot be read as number and count as NULL.",
            "1 of 3 values lie outside of the bounds and count as a bound.",
        ],
        "columns.age": ["1 of 6 values cannot be read as integer and count as NULL."],
        "columns.day": ["2 of 5 values cannot be read as date and count as NULL."],
        "columns.at": ["1 of 6 values cannot be read as timestamp and count as NULL."],
        "columns.ward": ["1 of 6 values are none of the declared keys and are in no group."],
        "unit": ["1 of 6 rows have no pid, belong to no unit and are left out."],
    }
    assert "decimal point" in next(e.fix for e in check_rows(policy) if e.place.endswith("cost"))


def test_a_column_of_which_nothing_can_be_read_is_counted_too(policy):
    head = ROWS.split("\n", maxsplit=1)[0]
    (policy.parent / "visits.csv").write_text(f"{head}\n1;3,5;;;;\n2;4,5;;;;\n")
    problems = [each.problem for each in check_rows(policy)]
    assert problems == ["2 of 2 values cannot be read as number and count as NULL."]


def test_values_of_rows_are_never_quoted(policy):
    said = " ".join(map(str, check_rows(policy)))
    assert not [word for word in ("forty", "7,25", "31.12", "west", "not a time") if word in said]


def test_the_command_says_that_it_is_private(policy):
    ask = CliRunner().invoke
    plain = ask(app, ["check", str(policy)])
    assert "PRIVATE" not in plain.output
    assert "cannot be read" not in plain.output
    read = ask(app, ["check", str(policy), "--rows"])
    assert read.output.startswith("PRIVATE")
    assert "3 of 6 values cannot be read as number" in " ".join(read.output.split())
    told = json.loads(ask(app, ["check", str(policy), "--rows", "--json"]).output)
    assert "steward" in told["private"]
    assert sum("cannot be read" in each["problem"] for each in told["findings"]) == 4


def test_sound_rows_have_no_finding(policy):
    (policy.parent / "visits.csv").write_text("\n".join(ROWS.splitlines()[:2]) + "\n")
    assert check_rows(policy) == []
