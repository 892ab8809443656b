"""An answer that is sent is the same answer to whoever receives it."""

import pyarrow as pa
import pytest

import noisegate
from noisegate.desk.sent import received, sent
from noisegate.errors import SpecError
from refusals import about

WARDS = {"in": ["north", "south"]}
ROWS = pa.table({
    "id": [1, 1, 2, 3, 3, 3], "ward": ["north", "south", "north", None, "south", "south"],
    "age": [31, 31, 45, 62, 62, None],
})  # fmt: skip
QUESTIONS = (
    "SELECT ward, COUNT(*) AS n, AVG(age) AS age FROM data GROUP BY ward",
    "SELECT COUNT(*) AS n, 7 AS seven FROM data",
    'SELECT COUNT(*) AS "n_margin", SUM(age) AS n FROM data',
    "SELECT ward, COUNT(*) AS n FROM data GROUP BY ward HAVING COUNT(*) > 100000",
)  # fmt: skip


@pytest.fixture(params=["pure", "zcdp"])
def gate(request):
    return noisegate.open(
        ROWS, epsilon=20, delta=1e-6, unit="id", rows_per_unit=2, accountant=request.param,
        columns={"ward": WARDS, "age": {"between": [0, 120]}, "id": {"type": "integer"}},
    )  # fmt: skip


@pytest.mark.parametrize("sql", QUESTIONS)
def test_what_is_received_is_what_was_sent(gate, sql):
    answer = gate.sql(sql, epsilon=1)
    asked = []

    def again(confidence):
        asked.append(confidence)
        return sent(answer, confidence)

    found = received(sent(answer), again, answer.log)
    assert found.table.equals(answer.table)
    assert found.to_dict() == answer.to_dict()
    assert asked == []
    assert found.to_dict(0.99) == answer.to_dict(0.99)
    assert found.margins("0.99") == answer.margins("0.99")
    assert len(asked) == 1
    assert (found.cost, found.remaining) == (answer.cost, answer.remaining)
    assert found.guarantee == answer.guarantee
    assert found.card().to_dict() == answer.card().to_dict()
    assert str(found) == str(answer)


def test_practice_stays_practice():
    gate = noisegate.open(ROWS, epsilon=20, practice=True)
    found = received(sent(gate.sql("SELECT COUNT(*) FROM data", epsilon=1)), sent)
    assert found.practice
    assert "made up" in found.promise


@pytest.mark.parametrize("text", [b"{}", b"[]", b"no", b'{"format": "noisegate-answer/9"}'])
def test_another_table_is_refused(text):
    table = pa.table({"n": [1]})
    for each in (table, table.replace_schema_metadata({b"noisegate.answer": text})):
        with pytest.raises(SpecError, check=about("answer")):
            received(each, sent)
