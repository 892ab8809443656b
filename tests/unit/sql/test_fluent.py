"""The fluent form says the same as SQL, and neither names nor values can say more."""

from datetime import date, datetime

import duckdb
import pytest
import sqlglot

from noisegate.errors import SpecError
from noisegate.sql.fluent import TableQuestion
from refusals import about

VISITS = TableQuestion("visits", lambda sql, **terms: (sql, terms), lambda sql, **terms: terms)


def test_the_example_of_the_reference():
    question = (
        VISITS.where("age > 40")
        .where(ward="north")
        .group_by("ward", age_band="FLOOR(age/10)*10")
        .agg(n="COUNT(*)", mean="AVG(age)")
        .having("n > 10")
        .order_by("n DESC")
        .limit(5)
    )
    assert question.sql == (
        'SELECT "ward", FLOOR(age/10)*10 AS "age_band", COUNT(*) AS "n", AVG(age) AS "mean" '
        'FROM "visits" WHERE (age > 40) AND "ward" = \'north\' '
        'GROUP BY "ward", FLOOR(age/10)*10 HAVING (n > 10) ORDER BY n DESC LIMIT 5'
    )
    assert question.ask(epsilon=0.1) == (question.sql, {"epsilon": 0.1})
    assert question.plan(within=5) == {"within": 5}


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        (VISITS.count(), [(4,)]),
        (VISITS.where(ward="north").count(), [(2,)]),
        (VISITS.where(ward=["north", "o'x"]).count(), [(3,)]),
        (VISITS.where(ward=None).count(), [(1,)]),
        (VISITS.where(day=date(2024, 1, 1)).count(), [(2,)]),
        (VISITS.where(day=datetime.fromisoformat("2024-01-01 12:00")).count(), [(0,)]),
        (VISITS.where("age = 20 OR age = 30").where("ward = 'north'").count(), [(2,)]),
        (VISITS.where(sick=True, age=-1.5).count(), [(1,)]),
        (VISITS.sum("age").mean("age").median("age"), [(48.5, 12.125, 10.0)]),
        (VISITS.group_by("ward").order_by("ward"), [("north",), ("o'x",), (None,)]),
        (VISITS.group_by("ward").count().having("n > 1"), [("north", 2)]),
        (VISITS.where("age > 0 -- a comment").count(), [(2,)]),
        (VISITS.where("age > 0;").count(), [(2,)]),
    ],
)
def test_it_means_what_it_says(question, rows):
    with duckdb.connect() as engine:
        engine.execute(
            "CREATE TABLE visits AS SELECT * FROM (VALUES "
            "('north', 20, true, DATE '2024-01-01'), ('north', 30, false, DATE '2024-01-01'), "
            "('o''x', -1.5, true, DATE '2024-01-02'), (NULL, 0, NULL, NULL)) t(ward, age, sick, day)"
        )
        found = [tuple(map(plain, row)) for row in engine.execute(question.sql).fetchall()]
    assert found == rows


def plain(value):
    return value if isinstance(value, str | None) else float(value)


def test_steps_leave_the_question_as_it_was():
    counted = VISITS.count()
    counted.where(ward="north").limit(1)
    assert counted.sql == 'SELECT COUNT(*) AS "n" FROM "visits"'


@pytest.mark.parametrize("name", ['x"; DROP TABLE visits; --', "a b", "select", "é", 'a""b'])
def test_names_are_names(name):
    sql = TableQuestion(name, None, None).group_by(name).sum(name, name=name).sql
    (tree,) = sqlglot.parse(sql, dialect="duckdb")
    assert {column.name for column in tree.find_all(sqlglot.exp.Column)} == {name}
    assert [table.name for table in tree.find_all(sqlglot.exp.Table)] == [name]


@pytest.mark.parametrize("value", ["'; DROP TABLE x; --", "\\' OR 1=1", "a\nb", "/*"])
def test_values_are_values(value):
    (tree,) = sqlglot.parse(VISITS.where(ward=value).count().sql, dialect="duckdb")
    assert [each.this for each in tree.find_all(sqlglot.exp.Literal)] == [value]
    with duckdb.connect() as engine:
        engine.execute("CREATE TABLE visits AS SELECT ? AS ward", [value])
        assert engine.execute(VISITS.where(ward=value).count().sql).fetchall() == [(1,)]


@pytest.mark.parametrize(
    "text", ["1; DROP TABLE x", "a b c", "", "1) FROM x --", "age >", "a, b", None, 3]
)
def test_what_is_no_single_expression_is_refused(text):
    for step in (VISITS.where, VISITS.having, VISITS.order_by, lambda sql: VISITS.agg(n=sql)):
        with pytest.raises(SpecError, check=about("expression")):
            step(text)


def test_values_and_limits_that_are_none_are_refused():
    for value in (float("nan"), float("inf"), object(), b"x", {"a": 1}):
        with pytest.raises(SpecError, check=about("literal")):
            VISITS.where(ward=value)
    for rows in (-1, 1.5, True, "5"):
        with pytest.raises(SpecError, check=about("limit")):
            VISITS.limit(rows)
    with pytest.raises(SpecError, check=about("nothing")):
        _ = VISITS.where(ward="north").sql
    with pytest.raises(SpecError, check=about("name")):
        VISITS.group_by("")
