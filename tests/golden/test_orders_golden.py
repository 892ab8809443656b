"""A ledger with one answer or release of every kind: later versions find each of them for free.

The ledgers were written by ``python tests/golden/test_orders_golden.py 2``, which writes the next
number and never an old one; with names behind the number, of these kinds alone. A change of a
canonical text, of a stored form or of an order's meaning shows here as a second charge, or as other
numbers.
"""

import json
import re
import shutil
import sys
from contextlib import contextmanager
from hashlib import sha256
from itertools import compress
from pathlib import Path

import numpy as np
import pytest

import noisegate as ng
from noisegate import learners
from noisegate.ledger.open import open_ledger, restore_ledger
from noisegate.ledger.origin import Origin, origins_of
from noisegate.root import hosting
from noisegate.transforms import records

HERE = Path(__file__).parent
POLICY = "orders_{version}.toml"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
WARDS = "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
CELLS = {"ward": None, "cost": 100}
BORN = """SELECT BIN(born, 50), COUNT(*) FROM (
    SELECT patient_id, MAX(birth_year) AS born FROM patients GROUP BY patient_id
) AS u GROUP BY 1"""
CROWD = {"probability": "1/4", "delta": "1e-6", "crowd": 40}


def share(rows):
    return float((rows["cost"] > 100).mean())


def halves(rows):
    high = float((rows["cost"] > 100).mean())
    return [1 - high, high]


def rows_of(answer):
    """The numbers of an answer, as text that later versions must give again."""
    return answer.to_csv() if hasattr(answer, "to_csv") else answer.to_pandas().to_csv(index=False)


def released(name, **terms):
    return lambda gate: rows_of(gate.release(name, **{"table": "visits", "epsilon": 1} | terms))


def asked(sql, **terms):
    return lambda gate: rows_of(gate.sql(sql, **{"epsilon": 1} | terms))


def fitted(model, columns, **terms):
    def fit(gate):
        made = model.fit(gate.matrix("visits", columns, **terms))
        kept = [name for name in vars(made) if name.endswith("_") and not name.startswith("_")]
        numbers = {name: getattr(made, name) for name in kept}
        return repr(
            {name: numbers[name] for name in sorted(numbers) if hasattr(numbers[name], "shape")}
        )

    return fit


ORDERS = {
    "sql": asked(WARDS),
    "sql: sums beside counts": asked("SELECT COUNT(*), SUM(cost), AVG(cost) FROM visits"),
    "sql: quantiles": asked("SELECT MEDIAN(cost), MAX(cost) FROM visits"),
    "sql: keys that are found": asked("SELECT town, COUNT(*) FROM patients GROUP BY town"),
    "sql: units": asked("SELECT ward, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward"),
    "sql: a cap that is found": asked("SELECT COUNT(*) FROM prescriptions"),
    "sql: a join": asked(
        "SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex"
    ),
    "sql: a number first": asked(
        "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)", epsilon=2
    ),
    "sql: a crowd": lambda gate: rows_of(
        gate.sql(f"{BORN} HAVING COUNT(*) >= 40")
    ),
    "sql: a sample": lambda gate: rows_of(gate.sample("1/2").sql(WARDS, epsilon=1)),
    "choose": lambda gate: repr(gate.choose(WARDS, epsilon=1).winner),
    "choose: a list": lambda gate: repr(
        gate.choose(
            "SELECT SUM(CASE WHEN BIN(cost, 50) >= price THEN price ELSE 0 END) FROM visits",
            candidates={"price": [100, 200.5, 400], "w": [1, 2, 1]}, prior="w", epsilon=1,
        ).winner
    ),
    "choose: an interval": lambda gate: repr(
        gate.choose(
            "SELECT COUNT(*) FILTER (WHERE at BETWEEN cost AND cost + 50) FROM visits",
            candidates={"at": (0, 800)}, epsilon=1,
        ).winner
    ),
    "auction": lambda gate: repr(
        gate.auction("cost", prices=range(50, 801, 50), table="visits", epsilon=1).winner
    ),
    "score": lambda gate: repr(
        gate.choose_by(
            halves, table="visits", columns=["cost"], candidates=["low", "high"], range=(0, 1),
            blocks=2, seconds="0.3", epsilon=1,
        ).winner
    ),
    "apply": lambda gate: rows_of(
        gate.apply(
            share, table="visits", columns=["cost"], range=(0, 1), blocks=2, seconds="0.3",
            epsilon=1,
        )
    ),
    "statistic": lambda gate: repr(
        gate.statistic(["cost >= 100"], table="visits", epsilon=1).values
    ),
    "smooth": lambda gate: rows_of(
        gate.smooth("SELECT MEDIAN(birth_year) AS m FROM patients", epsilon=1)
    ),
    "smooth: a trimmed mean": lambda gate: rows_of(
        gate.smooth("SELECT AVG(birth_year) AS m FROM patients", trim="0.1", epsilon=1)
    ),
    "smooth: Huber's estimate": lambda gate: rows_of(
        gate.smooth("SELECT AVG(birth_year) AS m FROM patients", clip=20, epsilon=1)
    ),
    "distance: clusters": lambda gate: rows_of(
        gate.distance(table="patients", columns=["birth_year"], clusters=2, radius=20, epsilon=1)
    ),
    "distance": lambda gate: rows_of(
        gate.distance(
            table="patients", columns=["birth_year"], centers=[(1950,), (2000,)], radius=10,
            epsilon=1,
        )
    ),
    "caps": lambda gate: repr(gate.caps("visits", epsilon=1).units_max),
    "bounds": lambda gate: repr(gate.bounds("visits", "cost", epsilon=5)),
    "histogram": released("histogram", columns=CELLS),
    "tree": released("tree", columns={"cost": 100}),
    "marginals": released("marginals", columns=CELLS),
    "cube": released("cube", columns=CELLS, sets=1),
    "sparse": released("sparse", columns={"ward": None, "cost": 10}),
    "above": released("above", columns=CELLS, questions="cells", threshold=20),
    "boxplot": released("boxplot", columns={"cost": None, "ward": None}),
    "cdf": released("cdf", columns={"cost": 100}),
    "describe": lambda gate: rows_of(gate.describe("visits", epsilon=1)),
    "describe: keys that are found": lambda gate: rows_of(
        gate.describe("patients", columns=["town"], epsilon=2)
    ),
    "series": released("series", columns={"day": "month"}, until="2024-06-30"),
    "synthetic": released("synthetic", columns=["ward", "cost"], method="mst"),
    "questions": released(
        "questions", columns=CELLS, rounds=1,
        workload=["SELECT COUNT(*) FROM visits WHERE cost < 100"],
    ),
    "crowd-histogram": lambda gate: rows_of(gate.release("crowd-histogram", BORN, **CROWD)),
    "crowd-points": lambda gate: rows_of(gate.release("crowd-points", BORN, **CROWD)),
    "KMeans": fitted(learners.KMeans(n_clusters=2, epsilon=1), ["cost"]),
    "LinearRegression": fitted(learners.LinearRegression(epsilon=1), ["ward"], target="cost"),
    "LogisticRegression": fitted(learners.LogisticRegression(epsilon=1), ["cost"], target="ward"),
    "DecisionTreeClassifier": fitted(
        learners.DecisionTreeClassifier(epsilon=1, max_depth=2), ["cost"], target="ward"
    ),
}  # fmt: skip


def without_margins(text):
    """A table without its error bars, which later versions may narrow."""
    rows = [line.split(",") for line in text.split("\n")]
    shown = [not name.endswith("_margin") for name in rows[0]]
    if all(shown):
        return text
    return "\n".join(",".join(compress(row, shown)) for row in rows)


def same(now, then):
    """Equal texts, and numbers that differ by a tenth at most, all together.

    What is stored are noisy numbers; a later version may make a better estimate of them.
    """
    (words, numbers), (old_words, old) = (
        (NUMBER.sub("#", text), np.array([float(each) for each in NUMBER.findall(text)]))
        for text in map(without_margins, (now, then))
    )
    return words == old_words and np.linalg.norm(numbers - old) <= np.linalg.norm(old) / 10


def policy(version, accountant, where):
    """The golden policy with an accountant, beside a copy of its rows."""
    shutil.copytree(HERE.parents[1] / "examples" / "clinic", where / "clinic", dirs_exist_ok=True)
    text = (HERE / POLICY.format(version=version)).read_text()
    text = text.replace("[budget]", f'[budget]\naccountant = "{accountant}"')
    (where / "clinic.toml").write_text(text)
    return where / "clinic.toml"


@contextmanager
def gate_of(version, accountant, ledger, where):
    """A gate whose questions name one place of the rows, wherever the copy is."""
    here = str(where.resolve())

    def places(origin, table):
        return [Origin(each.place.replace(here, "/data")) for each in origins_of(origin, table)]

    with pytest.MonkeyPatch.context() as patch:
        known = lambda text: sha256(text.replace(here.encode(), b"/data"))  # noqa: E731
        patch.setattr(records, "sha256", known)
        patch.setattr(hosting, "origins_of", places)
        yield ng.open(policy(version, accountant, where), ledger=ledger, analyst="ana")


def kept(version, accountant):
    return HERE / f"orders_{version}_{accountant}.jsonl"


VERSIONS = sorted(int(file.stem.split("_")[1]) for file in HERE.glob("orders_*.toml"))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_that_was_ever_stored_is_found_for_free(version, accountant, tmp_path):
    expected = json.loads((HERE / f"orders_{version}.json").read_text())[accountant]
    with kept(version, accountant).open() as lines:
        ledger = restore_ledger(lines, str(tmp_path / "ledger.db"))
    with gate_of(version, accountant, ledger, tmp_path) as gate:
        entries, spent = len(gate.history()), gate.spent
        for name, words in expected.items():
            found = ORDERS[name](gate)
            assert gate.spent == spent, f"{name} was paid for again"
            assert same(found, words), name
        assert len(gate.history()) == entries
    assert ledger.verify().ok


def test_the_ledgers_hold_every_kind():
    stored = [json.loads((HERE / f"orders_{version}.json").read_text()) for version in VERSIONS]
    for accountant in ("pure", "zcdp"):
        assert {name for words in stored for name in words[accountant]} == set(ORDERS)


def write(version, where, names):
    """Two ledgers of today's version, and what they answer once all of it is paid."""
    asked = {name: ORDERS[name] for name in names or ORDERS}
    words = {}
    for accountant in ("pure", "zcdp"):
        ledger = open_ledger(str(where / f"{accountant}.db"))
        with gate_of(version, accountant, ledger, where) as gate:
            for order in asked.values():
                order(gate)
            words[accountant] = {name: order(gate) for name, order in asked.items()}
        with kept(version, accountant).open("w") as file:
            ledger.export(file)
    (HERE / f"orders_{version}.json").write_text(json.dumps(words, indent=1) + "\n")


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        write(int(sys.argv[1]), Path(folder), sys.argv[2:])
