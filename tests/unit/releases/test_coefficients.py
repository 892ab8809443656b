"""Noisy coefficients of wavelets and waves can be read as they were measured, with their ±."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import noisegate as ng
from noisegate.cli import app
from noisegate.errors import SpecError
from refusals import about

AGES = np.clip(np.random.default_rng(3).normal(50, 20, 3000), 0, 99).astype(int)
ROWS = pa.table({"age": AGES, "ward": ["north", "south"] * 1500, "id": np.arange(3000) // 2})
COLUMNS = {"age": {"between": [0, 99]}, "ward": {"in": ["north", "south"]}}


def people(**terms):
    return ng.open(ROWS, epsilon=1000, columns=COLUMNS, table="people", **terms)


@pytest.fixture(scope="module")
def exact():
    """The exact cells, but for e^-90."""
    gate = people()
    return {
        width: gate.release("series", columns={"age": width}, method="cells", epsilon=90).values
        for width in (1, 10)
    }


@pytest.mark.parametrize("unit", [None, "id"])
def test_haar_coefficients_are_within_their_margin(exact, unit):
    gate = people(**({"unit": unit, "rows_per_unit": 2} if unit else {}))
    terms = {"method": "haar", "axes": "all", "epsilon": 1}
    release = gate.release("series", columns={"age": 1}, **terms)
    spent = gate.spent
    found = release.coefficients()
    assert gate.spent == spent
    rows = found.to_arrow(confidence=0.999999).to_pylist()
    assert any(row["age level"] == 0 for row in rows)
    for row in rows:
        low, high, level = row["age from"], row["age to"] + 1, row["age level"]
        cells = exact[1][low:high]
        half = 1 << (level - 1) if level else 0
        true = cells[:half].sum() - cells[half:].sum() if level else cells.sum()
        assert abs(row["coefficient"] - true) <= row["coefficient_margin"] + 0.5  # 2e-4
    assert len(rows) == len({(r["age level"], r["age from"]) for r in rows})


def test_fourier_coefficients_are_those_of_the_cells(exact):
    release = people().release(
        "series", columns={"age": 10}, method="fourier", frequencies=4, epsilon=1
    )
    found = release.coefficients().to_arrow(confidence=0.999999).to_pylist()
    assert len(found) == 8
    cells = exact[10]
    n = cells.size
    for row in found:
        wave = {"cosine": np.cos, "sine": np.sin}[row["wave"]]
        true = (cells * wave(2 * np.pi * row["frequency"] * np.arange(n) / n)).sum()
        assert abs(row["coefficient"] - true) <= row["coefficient_margin"] + 1  # 8e-6


def test_a_saved_release_has_them_too(tmp_path):
    release = people().release(
        "histogram", columns={"age": 10, "ward": None}, method="haar", epsilon=1
    )
    release.save(tmp_path / "ages.parquet")
    again = type(release).load(tmp_path / "ages.parquet")
    assert again.coefficients().rows == release.coefficients().rows
    assert again.coefficients().card().record["columns"]


def test_where_no_wave_is_worth_it_cells_are_what_was_measured():
    """Rows in one cell of eight are no sum of few waves: cells are chosen but for e^-20."""
    rows = pa.table({"age": [3] * 5000})
    gate = ng.open(rows, epsilon=100, columns={"age": {"type": "integer", "between": [0, 7]}})
    release = gate.release("series", columns={"age": 1}, method="fourier", epsilon=20)
    found = release.coefficients()
    assert release.words[0] == "every cell, unchanged"
    assert found.to_arrow()["cell"].to_pylist() == list(range(8))
    assert abs(found.to_arrow()["coefficient"].to_pylist()[3] - 5000) < 10  # e^-160


def test_other_methods_have_none():
    release = people().release("histogram", columns={"age": 10}, method="tree", epsilon=1)
    with pytest.raises(SpecError, check=about("coefficients")):
        release.coefficients()


def test_the_command_prints_them_and_refuses_first(tmp_path):
    csv.write_csv(ROWS, tmp_path / "people.csv")
    words = ["release", "histogram", str(tmp_path / "people.csv"), "--columns", "age=10",
             "--between", "age=0,99", "--epsilon", "1", "--budget", "2", "--json", "--coefficients"]  # fmt: skip
    for wrong in ([], ["--method", "haar", "--sample", "1/2"]):
        refused = CliRunner().invoke(app, [*words, *wrong])
        assert refused.exit_code != 0
    done = CliRunner().invoke(app, [*words, "--method", "haar"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["columns"][-1] == "coefficient"
    assert found["remaining"] == 1
