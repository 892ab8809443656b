"""Times from today on mean what their value means, are told, and cost once as long as it stays."""

from datetime import date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from reading_oracle import TABLES

import noisegate as ng
from noisegate.desk.display.numbers import TIMED
from noisegate.errors import Unsupported
from noisegate.gate import as_of
from noisegate.sql import job
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.reading.clock import Clock
from noisegate.sql.reading.reader import read
from refusals import about

NOW = datetime.fromisoformat("2024-03-31 10:37:12")
CLOCK = Clock(NOW, lambda sql: run_outer(f"SELECT {sql}", {}, {}).column(0)[0].as_py())
COUNT = "SELECT COUNT(*) AS n FROM visits WHERE"


def blocks(sql):
    return read(sql, TABLES, lines=True, clock=CLOCK).blocks


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("seen >= CURRENT_DATE", "seen >= DATE '2024-03-31'"),
        ("seen >= TODAY() - 30", "seen >= DATE '2024-03-01'"),
        ("seen >= CURRENT_DATE - INTERVAL '1 month'", "seen >= TIMESTAMP '2024-02-29 00:00:00'"),
        ("seen >= CURRENT_DATE + (-29 * INTERVAL '1 DAY')", "seen >= TIMESTAMP '2024-03-02 00:00:00'"),
        ("seen >= DATE_TRUNC('day', (NOW() + INTERVAL '-30 day'))", "seen >= TIMESTAMP '2024-03-01 00:00:00'"),
        ("seen < CAST(CAST(NOW() AS timestamp) AS date)", "seen < DATE '2024-03-31'"),
        ("seen < DATE_TRUNC('month', CURRENT_TIMESTAMP)", "seen < TIMESTAMP '2024-03-01 00:00:00'"),
        ("seen < DATE_TRUNC('hour', NOW() AT TIME ZONE 'UTC') - INTERVAL '2 hours'", "seen < TIMESTAMP '2024-03-31 08:00:00'"),
        ("YEAR(seen) = EXTRACT(year FROM LOCALTIMESTAMP) - 1", "YEAR(seen) = 2023"),
        ("CURRENT_DATE - CAST(seen AS DATE) < 7", "DATE '2024-03-31' - CAST(seen AS DATE) < 7"),
        ("EXTRACT(year FROM AGE(CURRENT_DATE, CAST(seen AS DATE))) > 1", "EXTRACT(year FROM AGE(DATE '2024-03-31', CAST(seen AS DATE))) > 1"),
        ("seen AT TIME ZONE 'UTC' > '2024-01-01'", "seen > '2024-01-01'"),
        ("timezone('UTC', seen) > TIMESTAMPTZ '2024-01-01 01:00:00+02'", "seen > TIMESTAMP '2023-12-31 23:00:00'"),
        ("seen > TIMESTAMP WITH TIME ZONE '2024-01-01 00:00:00.000Z'", "seen > TIMESTAMP '2024-01-01 00:00:00'"),
        ("seen > TO_TIMESTAMP('2024-01-01 00:00:30.250000', 'YYYY-MM-DD HH24:MI:SS.US')", "seen > TIMESTAMP '2024-01-01 00:00:30.25'"),
        ("seen > TO_DATE('01.02.2024', 'DD.MM.YYYY')", "seen > DATE '2024-02-01'"),
    ],
)  # fmt: skip
def test_a_time_from_today_on_is_the_question_with_its_value_typed(said, typed):
    assert blocks(f"{COUNT} {said}") == blocks(f"{COUNT} {typed}")


def test_the_value_stands_in_free_sql_too_and_columns_keep_their_names():
    question = read(
        f"SELECT CURRENT_DATE, n FROM ({COUNT} TRUE) WHERE n > YEAR(NOW())", TABLES, clock=CLOCK
    )
    assert question.columns == ("CURRENT_DATE", "n")
    assert "2024-03-31" in question.outer
    assert "2024)" in question.outer
    assert question.caveats == (
        "CURRENT_DATE is DATE '2024-03-31' here.",
        "YEAR(NOW()) is 2024 here.",
        TIMED,
    )


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("NOW() - INTERVAL '7 days'", ["DATE_TRUNC('HOUR', NOW()) - INTERVAL '7' DAYS", "TIMESTAMP '2024-03-24 10:37:12'"]),
        ("DATE_TRUNC('minute', CURRENT_TIMESTAMP)", ["TIMESTAMP '2024-03-31 10:37:00'"]),
        ("DATEADD(hour, -1, NOW())", ["TIMESTAMP '2024-03-31 10:37:12'"]),
    ],
)  # fmt: skip
def test_what_changes_within_the_hour_is_refused_with_what_to_type(time, words):
    with pytest.raises(Unsupported, check=about("clock")) as refusal:
        blocks(f"{COUNT} seen >= {time}")
    assert all(each in str(refusal.value) for each in words)


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("seen AT TIME ZONE 'Europe/Berlin' > CURRENT_DATE", "function"),
        ("CAST(code AS TIMESTAMPTZ) > CURRENT_DATE", "function"),
        ("seen > TO_TIMESTAMP('2024', 'YYYY-MM')", "argument"),
        ("seen > DATEADD('day', -7, CURRENT_DATE)", "function"),
        ("seen > CURRENT_TIME", "function"),
    ],
)
def test_other_zones_and_formats_are_refused_by_name(condition, code):
    with pytest.raises(Unsupported, check=about(code)):
        blocks(f"{COUNT} {condition}")


def test_without_a_clock_the_date_is_asked_for():
    with pytest.raises(Unsupported, check=about("function")):
        read(f"{COUNT} seen >= CURRENT_DATE", TABLES)


def test_a_day_costs_once_and_the_next_day_anew(monkeypatch):
    days = [date(2024, 1, 1) + timedelta(days=i) for i in range(60)]
    gate = ng.open(
        pa.table({"day": days}), epsilon=10, columns={"day": {"between": [days[0], days[-1]]}}
    )
    sql = "SELECT day, COUNT(*) AS n FROM data WHERE day > CURRENT_DATE - 5 GROUP BY day"
    asked = []
    for moment in (
        "2024-02-27 00:00:00",
        "2024-02-27 23:59:59",
        "2024-02-28 00:00:00",
    ):
        monkeypatch.setattr(job, "_now", lambda said=moment: datetime.fromisoformat(said))
        asked.append(gate.sql(sql, epsilon=1))
    assert [answer.free for answer in asked] == [False, True, False]
    assert [answer.table["day"].to_pylist()[0] for answer in asked] == [
        date(2024, 2, 23), date(2024, 2, 23), date(2024, 2, 24),
    ]  # fmt: skip
    assert gate.sql(sql.replace("CURRENT_DATE", "DATE '2024-02-27'"), epsilon=1).free
    assert any("5 is DATE '2024-02-23' here" in words for words in asked[-1].caveats)


def test_numbers_that_come_first_are_asked_at_the_same_moment(monkeypatch):
    rows = pa.table(
        {"day": [date(2024, 1, 1 + i % 30) for i in range(300)], "x": [i % 10 for i in range(300)]}
    )
    gate = ng.open(
        rows,
        epsilon=1000,
        columns={
            "day": {"between": [date(2024, 1, 1), date(2024, 1, 31)]},
            "x": {"between": [0, 9]},
        },
    )
    moments = iter(
        datetime.fromisoformat("2024-01-15 10:00:00") + timedelta(days=i) for i in range(9)
    )
    monkeypatch.setattr(job, "_now", lambda: next(moments))
    answer = gate.sql(
        "SELECT COUNT(*) AS n FROM data WHERE day <= CURRENT_DATE AND x > (SELECT AVG(x) - 2 FROM data WHERE day <= CURRENT_DATE)",
        epsilon=100,
    )
    exact = [day <= date(2024, 1, 15) for day in rows["day"].to_pylist()]
    mean = sum(x for x, kept in zip(rows["x"].to_pylist(), exact, strict=True) if kept) / sum(exact)
    truth = sum(x > mean - 2 and kept for x, kept in zip(rows["x"].to_pylist(), exact, strict=True))
    assert answer.table["n"].to_pylist() == [truth]


def test_a_gate_as_of_another_moment_finds_what_was_asked_then():
    days = pa.table({"day": [date(2024, 5, 1), date(2024, 5, 2)] * 20})
    gate = ng.open(days, epsilon=2)
    sql = "SELECT CURRENT_DATE AS today, COUNT(*) AS n FROM data WHERE day < CURRENT_DATE"
    first = as_of(gate, datetime(2024, 5, 2, 23, 59)).sql(sql, epsilon=1)  # noqa: DTZ001 - of UTC
    east = timezone(timedelta(hours=2))
    again = as_of(gate, datetime(2024, 5, 3, 1, 30, tzinfo=east)).sql(sql, epsilon=1)
    assert first.rows == again.rows
    assert first.rows[0][0] == date(2024, 5, 2)
    assert gate.spent.epsilon == 1
