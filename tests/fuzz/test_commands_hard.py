"""Every command that pays, on a hard table: its plan is one free JSON object, so is its result.

The table has units of many rows behind caps that bind, NULLs, undeclared keys and two analysts
below one zCDP budget.
"""

import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
from hard_worlds import world
from typer.main import get_command

from noisegate.cli import app
from noisegate.cli.ending import ended
from noisegate.ledger.open import open_ledger

ROOT = get_command(app)
COUNTS = "SELECT COUNT(*) FROM visits WHERE \"odd name\" < 2; SELECT COUNT(*) FROM visits WHERE ward = 'north';"
PROGRAM = "def middle(rows):\n    found = [each for each in rows['odd name'] if each == each]\n    return float(len(found))\n"
BY_WARD = 'SELECT ward, COUNT(*) AS n, SUM("odd name") AS s FROM visits GROUP BY ward'
ASKED = {
    "ask": ("hard.toml", BY_WARD),
    "ask, a file": ("hard.toml", "@ward.sql"),
    "ask, undeclared keys": ("hard.toml", "SELECT code, COUNT(*) AS n FROM visits GROUP BY code"),
    "plan": ("hard.toml", BY_WARD),
    "describe": ("hard.toml", "--table", "visits", "--columns", "ward,odd name"),
    "choose": ("hard.toml", "SELECT ward, COUNT(*) FROM visits GROUP BY ward"),
    "auction": ("hard.toml", "days", "--table", "prescriptions", "--prices", "1:5"),
    "many": ("hard.toml", "--questions", "counts.sql", "--surprises", "2"),
    "thresholds": ("hard.toml", "--questions", "counts.sql", "--threshold", "5", "--count", "1", "--bound", "3"),
    "smooth": ("hard.toml", 'SELECT MEDIAN("odd name") FROM visits'),
    "distance": ("hard.toml", "SELECT COUNT(*) FILTER (WHERE ward <> 'north'), COUNT(*) FROM visits"),
    "graph": ("hard.toml", "edges", "--table", "patients", "--source", "sex", "--target", "region", "--nodes", "f,m,x"),
    "statistic": ("hard.toml", '"odd name" / 5', "--table", "visits"),
    "apply": ("hard.toml", "own.py:middle", "--table", "visits", "--columns", "odd name", "--range", "0,9",
              "--blocks", "3", "--seconds", "0.2"),
    "bounds": ("hard.toml", "prescriptions", "days"),
    "caps": ("hard.toml", "visits"),
    "order": ("hard.toml", "order.json"),
    "release": ("histogram", "hard.toml", "SELECT ward, COUNT(*) FROM visits GROUP BY ward"),
    "release, synthetic": ("synthetic", "hard.toml", "--table", "visits", "--columns", "ward"),
    "learn": ("hard.toml", "KMeans", "--table", "visits", "--columns", "odd name,cost", "--set", "n_clusters=2"),
    "hypothesis": ("hard.toml", '"odd name" >= t', "--candidates", "t=1,2", "--label", "ward = 'north'",
                   "--table", "visits"),
}  # fmt: skip
REFUSED = {"ask": ("hard.toml", "SELECT * FROM visits"), "learn": ("hard.toml", "Oracle")}


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hard")
    shutil.copytree(world("tight-zcdp").folder, folder, dirs_exist_ok=True)
    (folder / "counts.sql").write_text(COUNTS)
    (folder / "ward.sql").write_text(BY_WARD)
    (folder / "own.py").write_text(PROGRAM)
    order = {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM prescriptions", "epsilon": "1/2"}
    (folder / "order.json").write_text(json.dumps(order))
    return folder


def run(folder, *words):
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["noisegate", *words])
        code = ended(ROOT)
    return code, out.getvalue(), err.getvalue()


def spent(folder):
    file = folder / "hard.toml.ledger"
    if not file.exists():
        return 0
    with open_ledger(str(file)) as ledger:
        return ledger.balance("hard").spent.epsilon


def words_of(name):
    price = () if name == "order" else ("--epsilon", "20" if name == "bounds" else "1")
    return name.partition(",")[0], *ASKED[name], *price, "--analyst", "ana"


def some(names, *quick):
    """All of them where there is time, else the quick ones."""
    return [
        each if each in quick else pytest.param(each, marks=pytest.mark.audit) for each in names
    ]


@pytest.mark.parametrize("name", some(ASKED, "ask", "caps", "learn"))
def test_a_plan_is_free_and_what_follows_is_one_object(name, hard):
    before = spent(hard)
    code, shown, told = run(hard, *words_of(name), "--plan", "--json")
    assert code == 0, told
    assert json.loads(shown)["price"] >= 0
    assert spent(hard) == before
    if name in ("plan", "many", "apply"):
        return
    code, shown, told = run(hard, *words_of(name), "--json")
    assert code == 0, told
    assert isinstance(json.loads(shown), dict)
    paid = spent(hard)
    code, shown, told = run(hard, *words_of(name))
    assert code == 0, told
    assert shown
    assert "\x1b" not in shown
    assert spent(hard) == paid


@pytest.mark.parametrize("name", some(REFUSED, "ask"))
def test_a_refusal_is_one_object_and_free(name, hard):
    before = spent(hard)
    code, shown, told = run(
        hard, name, *REFUSED[name], "--analyst", "ana", "--epsilon", "1", "--json"
    )
    assert set(json.loads(shown)["error"]) == {"code", "message", "fix"}
    assert (code, told.startswith(json.loads(shown)["error"]["code"].partition(".")[0])) == (
        2,
        True,
    )
    assert spent(hard) == before
