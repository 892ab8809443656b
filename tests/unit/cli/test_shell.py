"""The prompt, with a script for a keyboard and once with a real terminal."""

import os
import pty
import select
import signal
import stat
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from noisegate.desk.answer import Answer
from noisegate.errors import OverBudget
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.shell import run
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.outer.margins import Margins

UNIT = PrivacyUnit(column="patient")
RELEASED = pa.table({"ward": ["north", "south"], "n": [4242, 17]})
BLOCK = ReleasedBlock(table=RELEASED, noisy=("n",), half_widths=lambda *_: [6, 6])


class Facts:
    def __init__(self, sql, epsilon, rows):
        self.sql, self.epsilon, self.rows = sql, epsilon, rows

    def facts(self, confidence):
        return [("question", self.sql), ("price", f"ε = {self.epsilon}"), ("at", confidence),
                ("rows", str(self.rows))]  # fmt: skip


class Desk:
    """A desk over one released table, so that the prompt is tried without rows behind it."""

    def __init__(self):
        self.paid = []
        self.remaining = ApproxDP(1)
        columns = {
            "ward": Column(name="ward", kind=Kind.TEXT, keys=("north", "south")),
            "age": Column.from_terms("age", {"between": [0, 120]}),
            "secret": Column(name="secret", hidden=True),
        }
        self.tables = {
            "visits": TableDomain(dataset="clinic", name="visits", unit=UNIT, columns=columns),
            "wards": TableDomain(dataset="clinic", name="wards", unit=None),
        }

    @property
    def spent(self):
        return ApproxDP("0.1")

    def history(self):
        return []

    def plan(self, sql, *, epsilon, rows):
        return Facts(sql, epsilon, rows)

    def sql(self, sql, *, epsilon, rows):
        if epsilon == "9":
            raise OverBudget("This costs ε = 9.", fix="Use a smaller epsilon.")
        self.paid.append((sql, epsilon))
        table = run_outer(sql, {"visits": RELEASED}, {})
        bars = Margins(sql, {"visits": BLOCK}, {}, table)
        cost = ApproxDP(epsilon or "0.5")
        scope = "this answer about 'visits'"
        return Answer(
            sql=sql, table=table, half_widths=bars.at, cost=cost, remaining=self.remaining,
            guarantee=Guarantee(loss=cost, unit=UNIT, scope=scope), plan=None,
        )  # fmt: skip


def play(*lines, desk=None):
    """What the prompt writes when these lines are typed; an exception is a key that is struck."""
    script, written = list(lines), []

    def read(prompt):
        if not script:
            raise EOFError
        line = script.pop(0)
        if isinstance(line, type):
            raise line
        return line

    run(desk or Desk(), read=read, write=written.append)
    return "\n".join(written)


def test_a_question_may_span_lines_and_ends_with_a_semicolon():
    desk = Desk()
    shown = play("SELECT ward, n", "  FROM visits", ";", desk=desk)
    assert "4,242 ± 6" in shown
    assert "price ε = 0.5" in shown
    assert "adding or removing one person" in shown
    assert len(desk.paid) == 1


@pytest.mark.parametrize(
    "text", ["SELECT ';", "SELECT n FROM visits --;", "SELECT n FROM visits /*;"]
)
def test_a_semicolon_inside_of_words_ends_nothing(text):
    desk = Desk()
    play(text, desk=desk)
    assert desk.paid == []
    play("SELECT ward FROM visits", "WHERE ward = ';", "' ;", desk=desk)
    assert len(desk.paid) == 1


def test_a_refusal_is_shown_and_ends_nothing():
    shown = play(
        "SELECT x FROM visits;", "\\epsilon 9", "SELECT n FROM visits;", "\\nonsense",
        "\\epsilon 0.1", "SELECT n FROM visits;",
    )  # fmt: skip
    assert "over-budget: This costs ε = 9.\n  Use a smaller epsilon." in shown
    assert "There is no command \\nonsense." in shown
    assert "unsupported: " in shown
    assert "price ε = 0.1" in shown


def test_ctrl_c_drops_the_line_and_ctrl_d_leaves():
    desk = Desk()
    play(
        "SELECT n", KeyboardInterrupt, "SELECT ward FROM visits;", EOFError, "SELECT 1;", desk=desk
    )
    assert [sql for sql, _ in desk.paid] == ["SELECT ward FROM visits"]


def test_plans_prices_tables_and_columns_are_shown():
    desk = Desk()
    shown = play(
        "\\epsilon", "\\epsilon 0.25", "\\rows 12345", "\\plan SELECT n FROM visits;", "\\rows x",
        "\\rows", "\\budget", "\\tables",
        "\\d visits", "\\history", "\\help", "\\d nothing", "\\plan", "\\epsilon x", "\\quit",
        "SELECT n FROM visits;", desk=desk,
    )  # fmt: skip
    assert desk.paid == []  # nothing was paid, and \quit left before the question
    for words in (
        "ε is now the policy's default.", "ε = 0.25", "SELECT n FROM visits", "spent ε = 0.1 · left ε = 1",
        "public", "patient", "north, south", "0 to 120", "\\save FILE", "no table 'nothing'",
        "The command has no question.", "bad-parameter",
        "about 12,345 rows", "│ rows     │ 12345", "rows is not a number", "No number of rows is set",
    ):  # fmt: skip
        assert words in shown, words
    assert "secret" not in shown  # a hidden column is not listed


def test_the_last_answer_can_be_saved(tmp_path):
    shown = play(
        "\\save a.csv",
        "SELECT ward, n FROM visits;",
        f"\\save {tmp_path}/a.csv",
        f"\\save {tmp_path}/a.json",
        f"\\save {tmp_path}/a.parquet",
        f"\\save {tmp_path}/a.md",
        f"\\save {tmp_path}/a.xyz",
        f"\\save {tmp_path}/nowhere/a.csv",
        "\\save",
    )
    assert "There is no answer yet." in shown
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == "north,4242,6"
    assert {file.suffix for file in tmp_path.iterdir()} == {".csv", ".json", ".parquet", ".md"}
    assert "unknown file ending" in shown
    assert "cannot be written" in shown
    assert "There is no file name." in shown


def serve():
    """The other end of the terminal test."""
    run(Desk())


class Terminal:
    """A prompt in a process of its own, behind a real pseudo-terminal."""

    def __init__(self, state):
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_shell; test_shell.serve()"
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a test run in the background ignores it
            environment = os.environ | {
                "XDG_STATE_HOME": str(state),
                "TERM": "xterm",
                "COLUMNS": "100",
            }
            os.execve(sys.executable, [sys.executable, "-c", code], environment)
        self.seen, self.code = b"", None

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def wait_for(self, words, seconds=30):
        """Read until the words have come, after those that were waited for before."""
        end = time.monotonic() + seconds
        while words.encode() not in self.seen:
            assert time.monotonic() < end, (words, self.seen)
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 65536)
        self.seen = self.seen.partition(words.encode())[2]

    def leave(self):
        self.send("\x04")
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def test_a_real_terminal_has_keys_history_and_an_end(tmp_path):
    with Terminal(tmp_path) as first:
        first.wait_for("tables: visits")  # a banner
        first.wait_for("noisegate> ")
        first.send("SELECT garbage")
        first.wait_for("garbage")
        time.sleep(0.3)  # a key that is struck while readline still draws would wait for the next
        first.send("\x03")  # Ctrl-C
        first.wait_for("noisegate> ")
        first.send("SELECT ward, n\nFROM visits;\n")
        first.wait_for("4,242 ± 6")
        first.wait_for("noisegate> ")
        assert first.leave() == 0
    file = tmp_path / "noisegate" / "history"
    assert "SELECT ward, n FROM visits;" in file.read_text()
    assert "4242" not in file.read_text()  # questions are remembered, answers are not
    assert "garbage" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with Terminal(tmp_path) as second:
        second.wait_for("noisegate> ")
        second.send("\x1b[A")  # the arrow that brings the last line back
        second.wait_for("SELECT ward, n FROM visits;")
        second.send("\n")
        second.wait_for("4,242 ± 6")
        second.wait_for("noisegate> ")
        assert second.leave() == 0
