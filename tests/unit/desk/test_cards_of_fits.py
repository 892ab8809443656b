"""Sums of owners and likelihood fits are releases like all others: card, files, picture, seal."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import noisegate as ng
from noisegate.cli import app
from noisegate.curator.owner import Agreement
from noisegate.desk.card import verify
from noisegate.errors import SpecError
from noisegate.federated.release import LEFT, OwnersRelease, fourier_left, plain
from noisegate.learners.items.likelihood import LikelihoodFit, fit_likelihood
from noisegate.ledger.signing import Signer, make_key
from noisegate.transforms.strategy import Groups
from refusals import about

BLOCKS = {
    "plain": (plain(6), 0, np.array([5, 60, 70, 80, -3, 2])),
    "groups": (Groups(np.array([1, 0, 0, -1], np.int32), 2), 0, np.array([7, 9])),
    "fourier": (fourier_left(8, 2), LEFT, np.array([4096, 100, -50, 900])),
}


def summed(name):
    block, extra, numbers = BLOCKS[name]
    agreed = Agreement(
        session="flu", owners=5, drop_outs=1, colluding=1, block=block, per_unit=2,
        epsilon=Fraction(1, 3), extra=extra,
    )  # fmt: skip
    return OwnersRelease(agreement=agreed, numbers=numbers, stayed=(0, 1, 2, 4))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_sum_of_owners_is_saved_and_loaded(name, tmp_path):
    made = summed(name)
    made.save(tmp_path / "sum.parquet")
    again = OwnersRelease.load(tmp_path / "sum.parquet")
    assert np.array_equal(again.series(), made.series())
    for confidence in (0.5, 0.99):
        assert np.array_equal(again.margins(confidence), made.margins(confidence))
        assert made.answer().margins(confidence)["sum"] == tuple(made.margins(confidence))
    assert (again.stayed, again.agreement.name()) == (made.stayed, made.agreement.name())
    card = made.card().to_dict()
    assert card["measurements"][0]["agreement"] == made.agreement.name().hex()
    assert card["price"]["epsilon"] == "1/3"
    assert again.card().to_dict() == card
    assert "any 1 owners" in made.card().to_markdown()


def test_a_sum_of_owners_has_files_and_a_seal(tmp_path):
    made = summed("plain")
    make_key(tmp_path / "key.pem")
    made.save(tmp_path / "sum.parquet", sign=Signer.load(tmp_path / "key.pem"))
    made.save(tmp_path / "sum.csv")
    made.save(tmp_path / "sum.md")
    made.save(tmp_path / "sum.card.json")
    assert (tmp_path / "sum.csv").read_text().count("\n") == 7
    assert json.loads(made.to_json())["rows"]
    table = pq.read_table(tmp_path / "sum.parquet")
    numbers = pa.array(table["numbers"].to_numpy() + 1)
    moved = table.set_column(0, "numbers", numbers).replace_schema_metadata(table.schema.metadata)
    pq.write_table(moved, tmp_path / "changed.parquet")
    with pytest.raises(SpecError, check=about("changed")):
        OwnersRelease.load(tmp_path / "changed.parquet")


def quadratic(theta):
    return float(theta @ theta) / 2


@pytest.fixture(scope="module")
def gates():
    rng = np.random.default_rng(4)
    rows = pa.table({"id": rng.integers(0, 200, 1000), "cost": rng.uniform(0, 10, 1000)})
    terms = {"columns": {"cost": {"between": [0, 10]}}, "table": "visits", "ledger": ":memory:"}
    return [
        ng.open(rows, epsilon=90, **terms),
        ng.open(rows, epsilon=90, delta=1e-6, accountant="zcdp", unit="id", rows_per_unit=20, **terms),
    ]  # fmt: skip


def test_a_fit_has_a_card_that_its_ledger_confirms(gates, tmp_path):
    for gate in gates:
        fit = fit_likelihood(gate, ["cost / 10"], quadratic, epsilon=20)
        assert fit.parameters == pytest.approx(fit.means, abs=1e-4)  # the slope of A is θ
        assert verify(fit.card(), gate.ledger) == []
        file = tmp_path / "fit.parquet"
        fit.save(file)
        again = LikelihoodFit.load(file)
        for confidence in (0.5, 0.99):
            assert np.array_equal(again.within(confidence), fit.within(confidence))
            assert again.answer().margins(confidence) == fit.answer().margins(confidence)
        assert again.card().to_dict() == fit.card().to_dict()
        assert again.remaining is None
        assert fit.free == (fit.cost.epsilon == 0)
        assert "parameter" in str(fit)
        assert fit.plot() is not None


@pytest.mark.parametrize("program", [lambda _: None, lambda _: "many", lambda theta: theta.nothing])
def test_a_function_that_gives_no_number_is_refused_before_any_charge(gates, program):
    for gate in gates:
        before = gate.spent
        with pytest.raises(SpecError, check=about("log-partition")):
            fit_likelihood(gate, ["cost / 10"], program, epsilon=20)
        assert gate.spent == before


def test_the_command_line_saves_a_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "def a(t):\n    return float(t @ t) / 2\ndef none(t):\n    pass\n"
    )
    (tmp_path / "visits.csv").write_text("cost\n" + "\n".join(str(n % 10) for n in range(300)))
    words = ["statistic", "visits.csv", "cost / 10", "--between", "cost=0,10", "--epsilon", "2"]
    words += ["--budget", "3", "--type", "cost=number"]
    run = CliRunner()
    refused = run.invoke(app, [*words, "--family", "own.py:none"])
    assert refused.exception.about == "log-partition"
    refused = run.invoke(app, [*words, "--save", "means.xlsx"])
    assert refused.exception.about == "save"
    made = run.invoke(app, [*words, "--family", "own.py:a", "--save", "fit.card.json", "--json"])
    assert json.loads(made.stdout)["price"] == 2  # nothing was charged before
    assert json.loads((tmp_path / "fit.card.json").read_text())["price"]["epsilon"] == "2"
