import pytest
from test_transforms import table

from noisegate.errors import Unsupported
from noisegate.query.sql import parse


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM people",
        "select count(*) as n from People",
        'SELECT COUNT(*) n FROM "people"',
        "SELECT COUNT(*) AS n FROM people;",
        "SELECT /* hello */ COUNT(*) AS n -- there\nFROM people",
    ],
)
def test_spellings_of_one_question_are_one_question(sql):
    selection = parse(sql, table())
    assert (
        selection.query.to_record()
        == parse("SELECT COUNT(*) AS n FROM people", table()).query.to_record()
    )
    assert (selection.key_column, selection.count_column) == (None, "n")


def test_a_grouped_count_shows_its_key():
    selection = parse(
        "SELECT Ward AS w, COUNT(*) FROM people WHERE ward = 'north' GROUP BY ward", table()
    )
    assert (selection.key_column, selection.count_column) == ("w", "count")
    assert selection.query.tally.by is not None
    assert selection.query.tally.by.name == "ward"
    assert [key for _, key in selection.query.tally.where] == ["north"]


@pytest.mark.parametrize(
    "sql",
    [
        "", "SELECT", "SELEC COUNT(*) FROM people", "SELECT COUNT(*) FROM people; SELECT 1",
        "DROP TABLE people", "INSERT INTO people VALUES (1)", "SELECT * FROM people",
        "SELECT 1", "SELECT COUNT(*)", "SELECT COUNT(*) FROM other", "SELECT COUNT(*) FROM x.people",
        "SELECT COUNT(*) FROM people p", "SELECT COUNT(*) FROM people, people",
        "SELECT COUNT(*) FROM people JOIN people ON true", "SELECT COUNT(*) FROM (SELECT 1)",
        "SELECT COUNT(*) FROM read_csv('x')", "SELECT COUNT(*) FROM 'x.csv'",
        "SELECT COUNT(*) FROM people LIMIT 1", "SELECT COUNT(*) FROM people ORDER BY 1",
        "SELECT DISTINCT COUNT(*) FROM people", "SELECT COUNT(*) FROM people HAVING COUNT(*) > 3",
        "SELECT COUNT(DISTINCT ward) FROM people", "SELECT COUNT(ward) FROM people",
        "SELECT COUNT(*) + 1 FROM people", "SELECT COUNT(*), COUNT(*) FROM people",
        "SELECT SUM(age) FROM people", "SELECT ward FROM people GROUP BY ward",
        "SELECT COUNT(*) FROM people GROUP BY ward", "SELECT age, COUNT(*) FROM people GROUP BY ward",
        "SELECT ward, COUNT(*) FROM people", "SELECT ward, COUNT(*) FROM people GROUP BY 1",
        "SELECT ward, COUNT(*) FROM people GROUP BY ROLLUP (ward)", "SELECT ward, COUNT(*) FROM people GROUP BY ALL",
        "SELECT ward, COUNT(*) FROM people GROUP BY ward, age", "SELECT age, COUNT(*) FROM people GROUP BY age",
        "SELECT COUNT(*) FROM people WHERE age > 3", "SELECT COUNT(*) FROM people WHERE 1/(age-42) = 1",
        "SELECT COUNT(*) FROM people WHERE ward = 'west'", "SELECT COUNT(*) FROM people WHERE ward = age",
        "SELECT COUNT(*) FROM people WHERE ward = 'north' OR ward = 'south'",
        "SELECT COUNT(*) FROM people WHERE ward = 'north' AND ward = 'south'",
        "SELECT COUNT(*) FROM people WHERE ward IN (SELECT 1)", "SELECT COUNT(*) FROM people WHERE ward = 1.5",
        "SELECT COUNT(*) FILTER (WHERE age > 3) FROM people", "SELECT COUNT(*) OVER () FROM people",
        "SELECT COUNT(*) FROM people TABLESAMPLE 10%", "SELECT COUNT(*) FROM people QUALIFY 1=1",
        "WITH people AS (SELECT 1) SELECT COUNT(*) FROM people", "SELECT COUNT(*) FROM people UNION ALL SELECT 1",
        "SELECT COUNT(*) INTO x FROM people", "PRAGMA version", "SELECT people.* FROM people", "EXPLAIN SELECT 1",
        "SELECT ward AS n, COUNT(*) AS N FROM people GROUP BY ward",
        "SELECT COUNT(*) FROM people WINDOW w AS ()", "SELECT COUNT(*) FROM people FOR UPDATE",
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_refused(sql):
    with pytest.raises(Unsupported) as refusal:
        parse(sql, table())
    assert refusal.value.fix
