"""Models, means and hypotheses have release cards that the ledger confirms."""

import json
import pickle
from pathlib import Path
from shutil import copy

import pyarrow as pa
import pytest
from command_line import run

import noisegate as ng
from noisegate.desk.card import Card, verify
from noisegate.errors import SpecError
from noisegate.learners import (
    AssociationRules,
    ExponentialFamily,
    FrequentItemsets,
    KMeans,
    LogisticRegression,
    NetDatabase,
    learn_class,
)
from refusals import about

PEOPLE = Path(__file__).parents[3] / "examples" / "people.csv"
FACTS = ["--keys", "ward=north,south,west", "--between", "age=0,109", "--type", "age=integer"]


@pytest.fixture(scope="module", params=["rows", "units"])
def gate(request):
    """Units with several rows, some without a value or with a key that nobody declared."""
    rows = pa.table({
        "p": [place % 70 or None for place in range(300)],
        "ward": ["north", "south", "nowhere"] * 100,
        "sick": ["yes", "no"] * 150,
        "age": [None if place % 9 == 0 else place % 100 for place in range(300)],
    })  # fmt: skip
    unit = {"unit": "p", "rows_per_unit": 3, "accountant": "zcdp", "delta": "1e-6"}
    columns = {"ward": {"in": ["north", "south"]}, "sick": {"in": ["yes", "no"]},
               "age": {"type": "integer", "between": [0, 99]}}  # fmt: skip
    more = unit if request.param == "units" else {}
    return ng.open(rows, table="t", columns=columns, epsilon=60, ledger=":memory:", **more)


MADE = {
    "KMeans": lambda g: KMeans(2, epsilon=2).fit(g.matrix("t", ["age"])),
    "LogisticRegression": lambda g: LogisticRegression(epsilon=2).fit(
        g.matrix("t", ["age"], target="sick")
    ),
    "FrequentItemsets": lambda g: FrequentItemsets(epsilon=2, k=3).fit(
        g.matrix("t", ["ward", "sick"])
    ),
    "AssociationRules": lambda g: AssociationRules(epsilon=2, k=3).fit(
        g.matrix("t", ["ward", "sick"])
    ),
    "NetDatabase": lambda g: NetDatabase(epsilon=2, size=2).fit(g.matrix("t", ["ward"])),
    "ExponentialFamily": lambda g: ExponentialFamily(epsilon=2).fit(g.matrix("t", ["age"])),
    "statistic": lambda g: g.statistic(["age >= 65", "age / 99.0"], epsilon=2),
    "hypothesis": lambda g: learn_class(
        g, "age >= t", "sick = 'yes'", candidates={"t": [20, 60]}, epsilon=2
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_the_ledger_confirms_the_card(gate, name):
    made = MADE[name](gate)
    card = made.card("0.9")
    assert verify(card, gate.ledger) == []
    assert verify(Card.from_json(card.to_json()), gate.ledger) == []
    assert card.record["price"]["epsilon"] != "0"
    assert "# Release card" in card.to_markdown()
    again = MADE[name](gate)  # found in the ledger, and so is its card
    assert verify(again.card(), gate.ledger) == []
    assert again.card().record["free"]


def test_what_is_known_about_errors_is_on_the_card(gate):
    stated = gate.statistic(["age >= 65", "age / 99.0"], epsilon=2).card().record["columns"]
    assert [each["name"] for each in stated] == ["statistic", "mean"]
    assert 0 < stated[1]["error"]["least"] <= stated[1]["error"]["most"] < 1
    words = MADE["KMeans"](gate).card().record["caveats"]
    assert any(each.startswith("centers: known error: ") for each in words)
    words = MADE["FrequentItemsets"](gate).card("0.9").record["caveats"]
    assert any(each.startswith("Counts are within ± ") and "90" in each for each in words)


def test_a_model_from_elsewhere_has_no_card(gate):
    model = MADE["KMeans"](gate)
    copied = pickle.loads(pickle.dumps(model))
    assert copied.cluster_centers_.tolist() == model.cluster_centers_.tolist()
    for one in (copied, KMeans(2, epsilon=1)):
        with pytest.raises(SpecError, check=about("card")):
            one.card()


def test_commands_write_cards(tmp_path):
    copy(PEOPLE, tmp_path)
    common = (*FACTS, "--epsilon", "1", "--budget", "9")
    said = ("KMeans", "--columns", "age", *common, "--save", "k.md", "--save", "k.json")
    run("learn", "people.csv", *said, cwd=tmp_path)
    run("statistic", "people.csv", "age >= 65", *common, "--save", "s.card.json", cwd=tmp_path)
    asked = ("age >= t", "--label", "ward = 'north'", "--candidates", "t=20,60")
    cards = ("--save", "h.md", "--save", "h.card.json")
    run("hypothesis", "people.csv", *asked, *common, *cards, cwd=tmp_path)
    wards = "SELECT ward, COUNT(*) FROM people GROUP BY ward"
    run("choose", "people.csv", wards, *common, "--save", "c.md", "--save", "d.md", cwd=tmp_path)
    assert all((tmp_path / file).exists() for file in ("k.json", "h.md", "c.md", "d.md"))
    assert "# Release card" in (tmp_path / "k.md").read_text()
    for file in ("s.card.json", "h.card.json"):
        assert json.loads((tmp_path / file).read_text())["ledger"]
    refused = run(
        "statistic", "people.csv", "age", *common, "--save", "s.csv", cwd=tmp_path, code=2
    )
    assert "only the card" in refused.stderr
