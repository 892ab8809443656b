"""Whatever ends a command or a question: one line, nothing of a row, and what was charged by then."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from nasty import STRINGS
from worlds import CANARY

import noisegate as ng
from noisegate.curator.quietly import quietly
from noisegate.errors import Bug, SourceError, stumbled
from noisegate.ledger.open import open_ledger

NOISEGATE = Path(sys.executable).with_name("noisegate")
SQL = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"
TERMS = ("--keys", "ward=north,söuth", "--epsilon", "1", "--budget", "9")


@pytest.fixture
def people(tmp_path):
    (tmp_path / "people.csv").write_text("ward,age\nnorth,3\nsöuth,4\n")
    return tmp_path / "people.csv"


def process(*words, **terms):
    done = subprocess.run([NOISEGATE, *words], capture_output=True, check=False, **terms)
    assert b"Traceback" not in done.stderr, done.stderr
    return done


# interrupts


def test_an_interrupted_command_says_what_was_charged(people):
    """Ctrl-C while a locked-in program has its time: the charge is durable by then."""
    program = people.with_name("program.py")
    program.write_text("def mean(rows):\n    return 1.0\n")
    words = ["apply", people, f"{program}:mean", "--columns", "age", "--type", "age=integer",
             "--between", "age=0,9", "--range", "0,9", "--blocks", "2", "--seconds", "600",
             "--no-rehearse", "--epsilon", "2", "--budget", "9"]  # fmt: skip
    ledger, deadline = Path(f"{people}.ledger"), time.monotonic() + 300
    with subprocess.Popen(
        [NOISEGATE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            while time.monotonic() < deadline and running.poll() is None:
                with suppress(ng.NoisegateError):  # it is being made
                    if ledger.exists() and open_ledger(str(ledger)).balance("people").reservations:
                        break
                time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=300)
        finally:
            running.kill()
    assert running.returncode == 130, err
    assert err.rstrip().endswith(
        "interrupted: Charged: the account has spent ε = 2, and ε = 0 before."
    )
    assert "Traceback" not in err
    assert out == ""


# outputs


def test_outputs_without_greek_letters_spell_them_out(people):
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    shown = process("ask", people, SQL, *TERMS, env=ascii_only)
    assert shown.returncode == 0
    text = shown.stdout.decode("ascii")
    assert "+/- 3" in text
    assert "eps = 1" in text
    plain = process("ask", people, SQL, *TERMS, "--json", env=ascii_only).stdout.decode("ascii")
    assert plain
    assert "s\\u00f6uth" in plain  # JSON has its own way, and loses nothing
    sheet = process("ask", people, SQL, *TERMS, "--csv", env=ascii_only).stdout.decode()
    assert "söuth" in sheet  # data is UTF-8, as files are


@pytest.mark.parametrize("how", ["| true", ">&-", "2>&-", "> /dev/full"])
def test_an_output_that_nobody_reads_is_no_bug(people, how):
    words = f"'{NOISEGATE}' ask '{people}' '{SQL}' {' '.join(TERMS)} {how}"
    done = subprocess.run(words, shell=True, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert b"bug: " not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_the_version_is_told():
    assert process("--version").stdout.decode().split() == ["noisegate", ng.__version__]


# inputs


def test_an_input_that_is_no_table_is_a_refusal(people):
    folder = people.parent
    (folder / "folder.csv").mkdir()
    (folder / "folder.toml").mkdir()
    os.mkfifo(folder / "pipe.csv")
    os.mkfifo(folder / "pipe.toml")
    for name in ("bytes.csv", "bytes.parquet", "bytes.duckdb", "bytes.toml"):
        (folder / name).write_bytes(bytes(range(256)) * 8)
    (folder / "empty.csv").touch()
    for file in [
        *folder.iterdir(),
        folder / "missing.csv",
        folder / "a\x00b.csv",
        folder / "a\x00b.toml",
    ]:
        if file.name not in ("people.csv", "people.csv.ledger"):
            with pytest.raises(ng.NoisegateError):
                ng.open(file, **({} if file.suffix == ".toml" else {"epsilon": 1}))


def test_rows_that_are_gone_meanwhile_are_a_refusal(people):
    gate = ng.open(people, epsilon=9, columns={"ward": {"in": ["north"]}})
    gate.plan(SQL, epsilon=1)
    people.unlink()
    with pytest.raises(SourceError):
        gate.sql(SQL, epsilon=1)


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("altair", "noisegate-dp[plot]", lambda a: a.plot()),
        ("polars", "polars", lambda a: a.to_polars()),
        ("pandas", "pandas", lambda a: a.to_pandas()),
        ("psycopg", "noisegate-dp[postgres]", lambda _: open_ledger("postgresql://nowhere/x")),
        (
            "vl_convert",
            "noisegate-dp[plot]",
            lambda _: __import__(
                "noisegate.desk.display.drawing", fromlist=["x"]
            ).require_drawing(),
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_missing_package_is_named_with_what_brings_it(monkeypatch, package, extra, use):
    answer = ng.open(pa.table({"x": [1]}), epsilon=1).sql(
        "SELECT COUNT(*) AS n FROM data", epsilon=1
    )
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ng.NoisegateError) as refusal:
        use(answer)
    assert f"pip install '{extra}'" in refusal.value.fix


def test_learners_without_their_package_name_what_brings_it():
    code = "import sys; sys.modules['sklearn'] = None\nimport noisegate\nnoisegate.learners.KMeans"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'noisegate-dp[learn]'" in done.stderr


# words


def test_an_unexpected_error_is_told_without_its_words():
    """Such errors quote values: a cast that fails names one."""
    try:
        int(CANARY)
    except ValueError as wrong:
        told = stumbled(wrong)
    assert isinstance(told, Bug)
    assert "ValueError in test_security_endings.py" in told.problem
    assert CANARY not in str(told)
    assert "No such file" in str(stumbled(FileNotFoundError(2, "No such file or directory", "x")))


@pytest.mark.parametrize(
    "wrong", [ValueError, KeyError, OverflowError, duckdb.Error, pa.ArrowInvalid, MemoryError]
)
def test_no_error_behind_the_door_is_the_context_of_another(wrong):
    def work():
        raise wrong(CANARY)

    with pytest.raises(ng.NoisegateError) as refusal:
        quietly(work)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None
    assert CANARY not in str(refusal.value)


def test_a_refusal_behind_the_door_keeps_its_words_and_loses_its_context():
    def work():
        try:
            int(CANARY)
        except ValueError:
            raise SourceError("No rows.", fix="Look.") from None

    with pytest.raises(SourceError, match="No rows") as refusal:
        quietly(work)
    assert refusal.value.__context__ is None


# keys that nobody can name


def test_rows_with_keys_that_nobody_can_name_fail_no_question():
    """Found keys with NUL, and the least whole number, failed after the charge."""
    for values in (["a\x00b", "c"], [-(2**63), 7]):
        gate = ng.open(pa.table({"k": values * 500}), epsilon=100, delta="1e-3")
        found = gate.sql("SELECT k, COUNT(*) AS n FROM data GROUP BY k", epsilon=40, delta="1e-4")
        assert [row[0] for row in found.rows] == values[1:]


def test_strings_are_many_enough():
    assert len(STRINGS) == len(set(STRINGS)) > 60
