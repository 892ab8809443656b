"""What a prompt and a notebook show, and the short ways to the values of an answer."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import noisegate
from noisegate.cli import app
from noisegate.cli.help import GROUPED
from noisegate.cli.printing import print_table
from noisegate.desk.display.prompt import SHOWN_MAX, Entries, Tables, aligned
from noisegate.errors import SpecError
from noisegate.ledger.stores.memory import MemoryLedger


@pytest.fixture(scope="module")
def gate():
    rows = pa.table({
        "who": [i // 2 for i in range(200)], "ward": ["north", "south"] * 100,
        "age": list(range(100)) * 2,
    })  # fmt: skip
    columns = {"ward": {"in": ["north", "south"]}, "age": {"between": [0, 120]}}
    return noisegate.open(
        rows, epsilon=100, unit="who", rows_per_unit=2, columns=columns, table="visits",
        ledger=MemoryLedger(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def answer(gate):
    return gate.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", epsilon=50)


def test_an_answer_is_read_by_column_row_and_in_a_loop(answer):
    assert answer["ward"] == ("north", "south")
    assert len(answer) == 2
    assert [n for _, n in answer] == list(answer["n"])
    assert answer[0] == answer.rows[0]
    assert answer[-1:] == answer.rows[1:]
    with pytest.raises(SpecError, match="'ward', 'n'"):
        answer["wards"]
    with pytest.raises(IndexError):
        answer[2]


def test_one_number_has_a_value(gate, answer):
    one = gate.sql("SELECT COUNT(*) FROM visits", epsilon=50)
    assert abs(one.value - 200) < 20
    assert one.margin == one.margins()["count"][0] > 0
    with pytest.raises(SpecError):
        _ = answer.margin
    with pytest.raises(SpecError, match="2 rows and 2 columns"):
        _ = answer.value


def test_a_prompt_shows_an_answer_short_and_below_each_other(gate, answer):
    first, north, _, price = repr(answer).split("\n")
    assert first.split() == ["ward", "n"]
    assert "±" in north
    assert first.endswith("n")
    assert len(first) == len(north)
    assert price.startswith("price ε = 50")
    many = gate.sql("SELECT BIN(age, 2) AS b, COUNT(*) AS n FROM visits GROUP BY b", epsilon=1)
    shown = repr(many).split("\n")
    assert len(shown) == SHOWN_MAX + 3
    assert shown[-2] == f"… {len(many) - SHOWN_MAX} more rows"


def test_a_prompt_shows_plans_tables_history_and_gates_short(gate, answer):
    plan = gate.plan("SELECT COUNT(*) FROM visits", epsilon=1)
    assert repr(plan) == str(plan)
    assert "mappingproxy" not in repr(answer) + repr(plan) + repr(gate.tables)
    assert isinstance(gate.tables, Tables)
    assert "ward    text     in north, south" in repr(gate.tables)
    assert "age     integer  between 0 and 120" in repr(gate.tables)
    history = gate.history()
    assert isinstance(history, Entries)
    assert history == gate.ledger.history(history[0].body["account"])
    assert isinstance(history[1:], Entries)
    assert "measurement · geometric" in repr(history)
    for each in (answer, plan, gate, gate.tables, history):
        assert each._repr_html_().startswith("<table")


def test_names_are_inert_in_html_and_at_a_prompt():
    table = aligned(("a\x1b[31m", "b"), [("<b>\n", "1 ± 2")])
    assert "\x1b" not in table
    assert table.count("\n") == 1
    rows = pa.table({"<b>x": [1, 2]})
    gate = noisegate.open(rows, epsilon=1, ledger=MemoryLedger())
    assert "<b>x" not in gate.tables._repr_html_()
    assert "&lt;b&gt;x" in gate.tables._repr_html_()


def test_a_gate_closes_and_opens_by_itself(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("age\n" + "40\n" * 50)
    with noisegate.open(file, epsilon=2) as gate:
        assert gate.sql("SELECT COUNT(*) FROM people", epsilon="0.5").cost.epsilon
    assert gate.sql("SELECT COUNT(*) FROM people", epsilon="0.5").free
    gate.close()
    gate.close()


def test_every_command_has_a_heading():
    command = get_command(app)
    shown = {name for name, each in command.commands.items() if not each.hidden}
    assert shown == GROUPED
    for asked in (["-h"], ["ask", "-h"], ["ledger", "show", "-h"]):
        found = CliRunner().invoke(app, asked)
        assert found.exit_code == 0
        assert "-h, --help" in found.output


def test_sql_comes_from_a_file_or_another_program(tmp_path):
    (tmp_path / "people.csv").write_text("age\n" + "40\n" * 50)
    (tmp_path / "q.sql").write_text("SELECT COUNT(*) AS n -- all\nFROM people;\n")
    terms = ["--budget", "5", "--epsilon", "1", "--json"]
    asked = ["ask", str(tmp_path / "people.csv")]
    told = CliRunner().invoke(app, [*asked, f"@{tmp_path / 'q.sql'}", *terms])
    again = CliRunner().invoke(app, [*asked, "-", *terms], input="SELECT COUNT(*) AS n FROM people")
    assert json.loads(told.output)["rows"] == json.loads(again.output)["rows"]
    assert json.loads(again.output)["free"]
    wrong = CliRunner().invoke(app, [*asked, "@nowhere.sql", *terms])
    assert isinstance(wrong.exception, SpecError)


def test_a_table_in_a_file_is_as_wide_as_it_is_and_has_no_colours(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = ["x" * 150, "y" * 150]
    print_table("a title", ("one", "two"), [wide])
    shown = capsys.readouterr().out
    assert all(word in shown for word in wide)
    assert "\x1b" not in shown


def test_a_table_that_is_longer_than_the_terminal_goes_through_a_pager(tmp_path):
    code = "from noisegate.cli.printing import print_table as p; p(None, ('n',), [(str(i),) for i in range({})])"
    for rows, paged in ((200, True), (3, False)):
        out = tmp_path / f"{rows}.txt"
        pager = f"sh -c 'wc -l > {out}'"
        environment = os.environ | {"PAGER": pager, "TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(sys.executable, [sys.executable, "-c", code.format(rows)], environment)
        with suppress(OSError):
            while os.read(fd, 4096):
                pass
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert out.exists() is paged


def test_completion_knows_commands_and_options():
    for words, number, wanted in (
        ("noisegate ledger ver", 2, "verify"),
        ("noisegate ask --prac", 2, "--practice"),
    ):
        asked = {
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
            "_NOISEGATE_COMPLETE": "complete_bash",
        }
        command = Path(sys.executable).with_name("noisegate")
        done = subprocess.run(
            [command], env=os.environ | asked, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [wanted]
