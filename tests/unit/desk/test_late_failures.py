"""Nothing fails after it was paid for: what cannot be written or drawn is refused before, or said."""

from itertools import count

import pyarrow as pa
import pytest
from command_line import run
from test_answer import answer

from noisegate.ledger.open import open_ledger

pytest.importorskip("altair")
FACTS = (
    "--keys", "ward=north,south", "--between", "age=0,100", "--between", "x=0,10", "--between",
    "y=0,10", "--type", "age=integer", "--budget", "100", "--delta", "1e-3",
)  # fmt: skip
CROWD = ("--epsilon", "0.01", "--option", "probability=1/100", "--option", "delta=1e-9")
SPARSE = ("release", "sparse", "people.csv", "--columns", "age=1,x=1,y=1,ward", "--epsilon", "0.5")
MEAN = "def mean(data):\n    return float(data['age'].mean())\n"
_ledgers = count()


@pytest.fixture
def folder(tmp_path):
    rows = "".join(
        f"{i},{i % 90},{'north' if i % 4 else 'south'},{i % 10},{i // 10 % 10}\n"
        for i in range(400)
    )
    (tmp_path / "people.csv").write_text("id,age,ward,x,y\n" + rows)
    (tmp_path / "program.py").write_text(MEAN)
    (tmp_path / "questions.sql").write_text("SELECT COUNT(*) FROM people WHERE age < 30\n")
    return tmp_path


def paid(folder, *words, code=0):
    """What a command says, and what it spent of a ledger of its own."""
    ledger = folder / f"{next(_ledgers)}.db"
    shown = run(*words, *FACTS, "--ledger", str(ledger), code=code, cwd=folder)
    if not ledger.exists():
        return shown, 0
    return shown, open_ledger(ledger).balance("people").spent.epsilon


EMPTY = [  # false alarms: that a cell is shown has a chance below 1e-9
    (*SPARSE, "--option", "tau=1000"),
    ("release", "crowd-histogram", "people.csv", "--columns", "ward", *CROWD),
    ("release", "crowd-points", "people.csv", "--columns", "x=1,y=1", *CROWD),
    ("ask", "people.csv", "SELECT id, COUNT(*) AS n FROM people GROUP BY id",
     "--epsilon", "0.0001", "--keys-delta", "1e-12"),
    ("ask", "people.csv", "SELECT COUNT(*) AS n FROM people HAVING COUNT(*) > 100000",
     "--epsilon", "1"),
    ("ask", "people.csv", "SELECT ward, NULLIF(COUNT(*), COUNT(*)) AS n FROM people GROUP BY ward",
     "--epsilon", "1"),
]  # fmt: skip


@pytest.mark.parametrize("words", EMPTY)
def test_a_picture_of_nothing_says_so_and_fails_nowhere(folder, words):
    files = ("a.svg", "a.html", "a.csv", "a.parquet")
    _, spent = paid(folder, *words, *(word for name in files for word in ("--save", name)))
    assert spent > 0
    said = (folder / "a.svg").read_text()
    assert (
        "nothing to draw" in said
        or "no row to draw" in said
        or "no number" in said
        or "no points" in said
    )
    assert all((folder / name).stat().st_size for name in files)


def test_of_too_many_rows_the_first_are_drawn():
    table = pa.table({"place": range(6_000), "n": range(6_000)})
    chart = answer(table, [None, (6,) * 6_000]).plot().to_dict()
    assert "the first 5,000 of 6,000 numbers" in str(chart["layer"])
    assert len(next(iter(chart["datasets"].values()))) == 5_000


ALL = {
    "ask": ("ask", "people.csv", "SELECT COUNT(*) AS n FROM people"),
    "release": ("release", "histogram", "people.csv", "--columns", "ward"),
    "synthetic": ("release", "synthetic", "people.csv", "--columns", "ward", "--rows", "9"),
    "questions": ("release", "questions", "people.csv", "--columns", "ward,age=10", "--workload",
                  "questions.sql"),
    "learn": ("learn", "people.csv", "KMeans", "--columns", "age,x"),
    "apply": ("apply", "people.csv", "program.py:mean", "--columns", "age", "--range", "0,100",
              "--blocks", "4", "--seconds", "0.1"),
    "many": ("many", "people.csv", "--questions", "questions.sql"),
    "choose": ("choose", "people.csv", "SELECT ward, COUNT(*) FROM people GROUP BY ward"),
    "smooth": ("smooth", "people.csv", "SELECT MEDIAN(age) FROM people", "--answer-delta", "1e-6"),
}  # fmt: skip
BAD = [
    ("--save", "a.geojson"), ("--save", "a.xyz"), ("--save", "nowhere/a.csv"), ("--save", "."),
    ("--save", "people.csv"), ("--confidence", "1"), ("--confidence", "much"),
    ("--report", "nowhere/a.html"), ("--report", "a.zip"), ("--rows", "0"),
    ("--practice", "--save", "a.md"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ALL)
def test_what_cannot_be_done_is_refused_before_the_charge(folder, name, bad):
    """The exit code is 2; options that a command does not have are refused by that as well."""
    shown, spent = paid(folder, *ALL[name], "--epsilon", "1", *bad, code=2)
    assert spent == 0
    assert "bug" not in shown.stderr


POLICY = """
name = "people"
source = "."
protects = "person"
[budget]
epsilon = 4
delta = 1e-6
[questions]
crowd = { probability = 0.1, delta = 1e-8 }
[tables.people]
every_row_is_one_person = true
[tables.people.columns]
ward = { in = ["north", "south"] }
"""


def test_a_crowd_in_sql_of_which_nothing_is_shown_is_an_empty_answer(folder):
    """Of 300 in the north a sample of a tenth holds 200 with a chance below 1e-9."""
    (folder / "policy.toml").write_text(POLICY)
    sql = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward HAVING COUNT(*) >= 200"
    run("ask", "policy.toml", sql, "--save", "a.svg", "--save", "a.csv", cwd=folder)
    assert (
        "nothing to draw" in (folder / "a.svg").read_text()
        or "no row" in (folder / "a.svg").read_text()
    )
    assert (folder / "a.csv").read_text().splitlines() == ["ward,n,n_margin"]
