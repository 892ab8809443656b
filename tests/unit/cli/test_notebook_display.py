"""In IPython: answers with pictures, cells of SQL, and refusals without frames."""

import re
import subprocess
import sys

import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import noisegate
from noisegate.desk.card import FORMAT, Card
from noisegate.errors import DEBUG

BY_WARD = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    settings = Config()
    settings.HistoryManager.enabled = False
    settings.ProfileDir.location = str(tmp_path_factory.mktemp("ipython"))
    main = sys.modules["__main__"]
    made = InteractiveShell(config=settings)
    sys.modules["__main__"] = (
        main  # a shell puts its own there, which no process can be started from
    )
    rows = pa.table({"ward": ["north", "south", "west"] * 50})
    made.user_ns["gate"] = noisegate.open(
        rows, epsilon=3, table="visits", columns={"ward": {"in": ["north", "south", "west"]}}
    )
    made.run_line_magic("load_ext", "noisegate")
    made.run_cell(f"%%noisegate gate --epsilon 1 --to answer\n{BY_WARD};")
    yield made
    made.reset()
    made.displayhook.flush()


def bundle(shell, thing):
    return shell.display_formatter.format(thing)[0]


def test_a_cell_of_sql_is_answered_and_kept(shell):
    answer = shell.user_ns["answer"]
    assert answer.columns == ("ward", "n")
    assert answer.cost.epsilon == 1
    again = shell.run_cell(f"%%noisegate gate --epsilon 1\n{BY_WARD}").result
    assert again.free
    plan = shell.run_cell(f"%%noisegate gate --epsilon 0.5 --plan --fresh\n{BY_WARD}").result
    assert (plan.price.epsilon, plan.fits) == (0.5, True)
    within = shell.run_cell(f"%%noisegate gate --within 9 --plan --fresh\n{BY_WARD}").result
    assert 0 < within.price.epsilon < 1
    assert shell.run_line_magic("noisegate", "gate") is shell.user_ns["gate"]
    assert shell.user_ns["gate"].spent.epsilon == 1


def test_an_answer_has_a_table_and_a_picture_that_loads_nothing(shell):
    answer = shell.user_ns["answer"]
    shown = bundle(shell, answer)
    assert shown["text/html"].startswith("<table")
    assert re.findall(r'src="(data:image/svg\+xml;base64,)', shown["text/html"])
    assert "http" not in shown["text/html"]
    chart = bundle(shell, answer.plot())
    assert chart["image/svg+xml"].startswith("<svg")
    assert chart["image/svg+xml"] == bundle(shell, answer.plot().copy())["image/svg+xml"]
    assert "text/html" not in chart


def test_two_rows_are_read_and_not_drawn(shell):
    sql = "SELECT ward, COUNT(*) AS n FROM visits WHERE ward <> 'west' GROUP BY ward"
    answer = shell.user_ns["gate"].sql(sql, epsilon=1)
    assert "<img" not in bundle(shell, answer)["text/html"]


def test_a_title_has_numbers_by_keys_or_the_sql_where_that_says_more(shell):
    gate = shell.user_ns["gate"]
    answer = shell.user_ns["answer"]
    assert answer.plot().to_dict()["title"]["text"] == ["n by ward"]
    assert answer.plot(title="Mine").to_dict()["title"]["text"] == ["Mine"]
    for more in ("HAVING COUNT(*) > 1", "ORDER BY n LIMIT 2"):
        said = gate.sql(f"{BY_WARD} {more}", epsilon=1).plot().to_dict()["title"]["text"]
        assert " ".join(said) == f"{BY_WARD} {more}"


def test_whoever_chose_a_renderer_of_altairs_keeps_it(shell):
    import altair as alt

    with alt.renderers.enable("json"):
        assert "image/svg+xml" not in bundle(shell, shell.user_ns["answer"].plot())


def test_without_the_extra_there_is_a_table_alone(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    shown = bundle(shell, shell.user_ns["answer"])["text/html"]
    assert shown.startswith("<table")
    assert "<img" not in shown


def test_a_release_has_its_picture_and_a_card_its_page(shell):
    made = shell.user_ns["gate"].release("histogram", columns={"ward": None}, epsilon=1)
    assert "base64" in bundle(shell, made)["text/html"]
    card = bundle(shell, made.card())
    assert card["text/markdown"].startswith("# Release card")
    assert card["text/plain"].count("\n") == 0
    assert len(card["text/plain"]) < 200
    assert repr(Card({"format": FORMAT, "ledger": 3})) == "<Card: None; 0 entries of the ledger>"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("x = 1\ngate.sql('SELECT COUNT(*) FROM visits', epsilon=9)", "over-budget"),
        (
            "%%noisegate gate --epsilon 9\nSELECT COUNT(*) FROM visits WHERE ward = 'x'",
            "over-budget",
        ),
        ("%%noisegate nobody\nSELECT 1", "bad-parameter"),
        ("%%noisegate gate --epsilon 1\nSELECT * FROM visits", "unsupported"),
    ],
)
def test_a_refusal_is_a_few_lines(shell, cell, said, capsys, monkeypatch):
    """What is wrong, what to do, and the line that asked; all of it where DEBUG says so."""
    shell.run_cell(cell)
    told = capsys.readouterr()
    lines = (told.out + told.err).strip().split("\n")
    assert lines[0].startswith(said)
    assert len(lines) <= 3
    if cell.startswith("x"):
        assert lines[2].startswith("  line 2 of the cell: gate.sql(")
    monkeypatch.setenv(DEBUG, "1")
    shell.run_cell(cell)
    assert "Traceback" in capsys.readouterr().out


def test_a_gate_opens_in_a_jupyter_that_has_no_widgets():
    """The engine cannot set its progress bar there, and has none; found by a real kernel."""
    code = """
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().config.IPKernelApp.there = True
import duckdb, noisegate, pyarrow
try:
    duckdb.connect().execute("SET enable_progress_bar = false")
except duckdb.Error:
    print("no widgets")
gate = noisegate.open(pyarrow.table({"a": [1, 2]}), epsilon=1, table="t")
print(gate.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).columns)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["no widgets", "('n',)"], done.stderr


def test_words_stand_on_the_left_and_numbers_on_the_right(shell):
    shown = shell.user_ns["gate"].sql(BY_WARD, epsilon="0.1")._repr_html_()
    assert '<td style="text-align:left">north</td>' in shown
    assert shown.count('<td style="text-align:right">') == 3
    assert (
        '<td style="text-align:left">'
        in shell.user_ns["gate"].plan(BY_WARD, epsilon=1)._repr_html_()
    )
