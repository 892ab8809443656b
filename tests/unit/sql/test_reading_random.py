"""Questions put together at random mean what DuckDB means."""

import os
import random

import pytest
from random_questions import KEYS, ROWS, question
from reading_oracle import TABLES, answer, database, same_rows

from noisegate.sql.reading.reader import read

EXPLORE = os.environ.get("NOISEGATE_EXPLORE")  # `make fuzz` tries more seeds

COUNTED = [
    "SELECT COUNT(*) AS a, COUNT(x) AS b FROM (SELECT DISTINCT {} AS x FROM {})",
    "SELECT COUNT(*) + COUNT(DISTINCT x) AS a FROM (SELECT {} AS x FROM {} GROUP BY x)",
    "WITH d AS (SELECT DISTINCT {} AS x FROM {}) SELECT COUNT(*) AS a FROM d",
]


@pytest.mark.parametrize("seed", range(20 if EXPLORE else 2))
def test_counts_over_distinct_values_count_values(seed):
    pick = random.Random(seed)
    with database() as con:
        for _ in range(10):
            source, tables = pick.choice(ROWS)
            key = pick.choice([word for table in tables for word in KEYS.get(table, [])])
            sql = pick.choice(COUNTED).format(key, source.replace("{}", "LEFT JOIN"))
            assert not any(block.by for block in read(sql, TABLES).blocks), sql
            assert same_rows(answer(con, sql)[1], con.execute(sql).fetchall()), sql


@pytest.mark.parametrize("seed", range(40 if EXPLORE else 3))
def test_random_questions_mean_what_their_sql_means(seed):
    pick = random.Random(seed)
    with database() as con:
        for _ in range(25):
            sql = question(pick)
            assert same_rows(answer(con, sql)[1], con.execute(sql).fetchall()), sql
