import json
import subprocess
import sys
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from noisegate.arrow import arrow_column, arrow_table, numbers

DAY, MOMENT = date(2024, 2, 29), datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("values", "kind"),
    [([True, None, False] * 5, pa.bool_()), ([1, None, -(2**63)], pa.int64()),
     ([0.5, None, -1e308], pa.float64()), (["é", None, "", "a" * 300], pa.string()),
     ([DAY, None, date(1, 1, 1)], pa.date32()), ([MOMENT, None], pa.timestamp("us")),
     ([], pa.int64()), ([], pa.string()), ([None, None], pa.string())],
)  # fmt: skip
def test_a_column_is_what_arrow_itself_makes(values, kind):
    found = arrow_column(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))


@pytest.mark.parametrize(
    ("values", "kind"),
    [(np.array([1, 2]), pa.int64()), (np.array([1.5, 2]), pa.float64()),
     (np.array(["2024-02-29"], "M8[D]"), pa.date32()),
     (np.array(["2024-02-29T01:02:03.000004"], "M8[us]"), pa.timestamp("us"))],
)  # fmt: skip
def test_arrays_are_columns_too(values, kind):
    assert arrow_column(values, kind).equals(pa.array(values, kind))


def test_numbers_come_back_as_they_were():
    chunks = pa.chunked_array([[1, 2], [], [3]], pa.int64())
    assert numbers(chunks).tolist() == [1, 2, 3]
    assert numbers(pa.chunked_array([], pa.int64())).tolist() == []
    assert numbers(arrow_table({"x": pa.array([0.5])}).column("x")).tolist() == [0.5]


def test_a_first_answer_loads_nothing_slow():
    code = (
        "import sys; from noisegate.cli import app\n"
        "app(['ask', 'examples/people.csv', '--budget', '1', '--ledger', ':memory:', '--json',"
        " 'SELECT ward, COUNT(*) AS n FROM people GROUP BY ward', '--epsilon', '1',"
        " '--keys', 'ward=north,south'], standalone_mode=False)\n"
        "slow = {'altair', 'pandas', 'polars', 'pydantic', 'rich', 'scipy'}\n"
        "print(*slow & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer, loaded = ran.stdout.splitlines()
    assert json.loads(answer)["columns"] == ["ward", "n"]
    assert loaded == ""
