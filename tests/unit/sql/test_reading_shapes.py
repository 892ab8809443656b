"""How questions are built: the trees, names and columns that the rooms below see."""

from fractions import Fraction

import pytest
from reading_oracle import TABLES

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Filter,
    Fold,
    Folded,
    Join,
    JoinKind,
    Matching,
    PerUnit,
    Project,
    Table,
    Union,
)
from noisegate.sql.question import Aggregate, Function
from noisegate.sql.reading.reader import read

PATIENTS, VISITS, CODES = (Table(TABLES[name]) for name in ("patients", "visits", "codes"))
ADULT = Call("ge", (Field("age"), Literal(18)))


def block(sql):
    question = read(sql, TABLES, lines=True)
    assert len(question.blocks) == 1
    return question.blocks[0]


def relation(sql):
    return block(f"SELECT COUNT(*) FROM {sql}").relation


@pytest.mark.parametrize(
    ("sql", "tree"),
    [
        ("patients", PATIENTS),
        ('"PATIENTS" AS p', PATIENTS),
        ("(SELECT * FROM patients)", PATIENTS),
        ("(SELECT * FROM visits) v", VISITS),
        ("patients WHERE age >= 18", Filter(PATIENTS, ADULT)),
        ("patients WHERE age >= 18 AND smoker", Filter(PATIENTS, Call("and", (ADULT, Field("smoker"))))),
        ("(SELECT age AS a FROM patients)", PATIENTS),
        ("(SELECT a FROM (SELECT age AS a FROM patients) WHERE a >= 18) WHERE a >= 18", Filter(PATIENTS, Call("and", (ADULT, ADULT)))),
        ("(SELECT patient_id FROM visits)", VISITS),
        ("(SELECT patient_id FROM visits GROUP BY patient_id)", PerUnit(VISITS, (), ())),
        ("(SELECT DISTINCT patient_id, code FROM visits)", Project(PerUnit(VISITS, (("k0", Field("code")),), ()), (("code", Field("k0")),))),
        (
            "(SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)",
            Project(PerUnit(VISITS, (), (Folded("v0", Fold.COUNT, Literal(1)),)), (("n", Field("v0")),)),
        ),
        ("patients WHERE patient_id IN (SELECT patient_id FROM visits)", Matching(PATIENTS, VISITS, ())),
        ("patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id)", Matching(PATIENTS, VISITS, (), negated=True)),
        ("(SELECT code FROM visits UNION ALL SELECT name FROM patients)", Union((
            Project(VISITS, (("code", Field("code")),)), Project(Project(PATIENTS, (("name", Field("name")),)), (("code", Field("name")),)),
        ))),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_from_and_where_become_a_tree(sql, tree):
    assert relation(sql) == tree


def test_a_join_keeps_the_private_side_on_the_left_and_names_apart():
    right = Project(CODES, (("code_2", Field("code")), ("chapter", Field("chapter"))))
    tree = relation("visits v LEFT JOIN codes c USING (code)")
    assert tree == Join(VISITS, right, ((Field("code"), Field("code_2")),), JoinKind.LEFT)
    swapped = relation("codes c JOIN visits v ON c.code = v.code")
    assert type(swapped) is Join
    assert swapped.right == CODES
    assert type(swapped.left) is Project
    assert swapped.left.of == VISITS


def test_conditions_of_a_left_join_are_asked_before_joining():
    tree = relation("visits v LEFT JOIN codes c ON v.code = c.code AND c.chapter = 'A'")
    assert type(tree.right) is Filter
    assert tree.right.condition == Call("eq", (Field("chapter"), Literal("A")))


def test_equal_aggregates_share_a_column():
    found = block("SELECT AVG(age), 2 * AVG(age), COUNT(*) / COUNT(*), SUM(age) FROM patients")
    assert [(one.name, one.function) for one in found.aggregates] == [
        ("a0", Function.AVG), ("a1", Function.COUNT), ("a2", Function.SUM),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "function", "args", "level", "where"),
    [
        ("COUNT(*)", Function.COUNT, (), None, None),
        ("COUNT(patient_id)", Function.COUNT, (), None, None),
        ("COUNT(DISTINCT patient_id)", Function.COUNT_UNITS, (), None, None),
        ("COUNT(DISTINCT p.patient_id) FILTER (WHERE age >= 18)", Function.COUNT_UNITS, (), None, ADULT),
        ("COUNT(DISTINCT region)", Function.COUNT_DISTINCT, (Field("region"),), None, None),
        ("COUNT(age)", Function.COUNT_VALUES, (Field("age"),), None, None),
        ("COUNT_IF(age >= 18)", Function.COUNT, (), None, ADULT),
        ("COUNT(CASE WHEN age >= 18 THEN 'x' END)", Function.COUNT, (), None, ADULT),
        ("SUM(smoker)", Function.SUM, (Call("to_integer", (Field("smoker"),)),), None, None),
        ("MEDIAN(age)", Function.QUANTILE, (Field("age"),), Fraction(1, 2), None),
        ("APPROX_QUANTILE(age, 0.9)", Function.QUANTILE, (Field("age"),), Fraction(9, 10), None),
        ("QUANTILE(age, 0.9)", Function.QUANTILE, (Field("age"),), Fraction(9, 10), None),
        ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY age DESC)", Function.QUANTILE, (Field("age"),), Fraction(1, 10), None),
        ("CORR(age, weight)", Function.CORR, (Field("age"), Field("weight")), None, None),
        ("MAX(born)", Function.MAX, (Field("born"),), None, None),
    ],
)  # fmt: skip
def test_aggregates_are_told_apart(sql, function, args, level, where):
    found = block(f"SELECT {sql} FROM patients p").aggregates
    assert found == (Aggregate(name="a0", function=function, args=args, level=level, where=where),)


def test_keys_are_listed_where_they_are_known():
    found = block(
        "SELECT region, smoker, age // 10, name, FLOOR(weight / 50) * 50, COUNT(*) FROM patients GROUP BY ALL"
    )
    region, smoker, decade, name, weight = (key.domain.keys for key in found.by)
    assert region == ("north", "south")
    assert smoker == (False, True)
    assert decade == tuple(range(13))
    assert name is None
    assert weight is not None
    assert len(weight) == 5
    assert found.sets == ((0, 1, 2, 3, 4),)


def test_grouping_sets_are_indexes_of_the_keys():
    found = block("SELECT region, smoker, COUNT(*) FROM patients GROUP BY ROLLUP (region, smoker)")
    assert found.sets == ((0, 1), (0,), ())
    assert block("SELECT COUNT(*) FROM patients").sets == ((),)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT COUNT(*) FROM patients", ("count",)),
        ("SELECT COUNT(*), COUNT(*) FROM patients", ("count", "count_1")),
        ("SELECT Region, AVG(age) FROM patients GROUP BY region", ("Region", "avg(age)")),
        ("SELECT COUNT(*) AS n, sum(weight) / count(*) FROM patients", ("n", "sum(weight) / count(*)")),
        ("SELECT * FROM (SELECT region r, COUNT(*) n FROM patients GROUP BY r)", ("r", "n")),
        ("SELECT * FROM codes", ("code", "chapter")),
        ("WITH c(x) AS (SELECT COUNT(*) FROM patients) SELECT * FROM c", ("x",)),
        ("SELECT (SELECT COUNT(*) FROM patients), 1 + 1", ("(SELECT count(*) FROM patients)", "1 + 1")),
        ("SELECT AVG(n) FROM (SELECT region, COUNT(*) n FROM patients GROUP BY region)", ("avg(n)",)),
    ],
)  # fmt: skip
def test_the_answer_shows_names_as_written(sql, columns):
    assert read(sql, TABLES).columns == columns


def test_private_names_are_gone_from_the_free_sql():
    question = read(
        "WITH old AS (SELECT * FROM patients WHERE age > 60), r AS (SELECT region, COUNT(*) n FROM old GROUP BY region) "
        "SELECT country, SUM(n) FROM r JOIN Regions USING (region) GROUP BY country", TABLES,
    )  # fmt: skip
    assert "patients" not in question.outer
    assert "age" not in question.outer
    assert '"regions"' in question.outer
    assert [one.name for one in question.blocks] == ["noisegate_0"]


def test_a_question_about_public_tables_has_no_block():
    assert read("SELECT chapter, COUNT(*) FROM codes GROUP BY 1", TABLES).blocks == ()


def test_a_released_table_used_twice_is_measured_once():
    question = read(
        "WITH r AS (SELECT COUNT(*) n FROM patients) SELECT a.n + b.n FROM r a, r b", TABLES
    )
    assert len(question.blocks) == 1


def test_numbers_of_sub_queries_stand_beside_the_rows_and_are_measured_once():
    question = read(
        "SELECT COUNT(*) v, (SELECT COUNT(*) FROM patients) p, v / (SELECT COUNT(*) FROM patients) q FROM visits",
        TABLES,
    )
    assert sorted(one.name for one in question.blocks) == ["noisegate_0", "noisegate_1"]
    assert "SELECT" not in question.outer[6:]  # so that error bars follow


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) FROM (SELECT name, COUNT(*) n FROM patients GROUP BY name) WHERE n > 1", "Rare groups"),
        ("SELECT AVG(n) FROM (SELECT region, COUNT(*) n FROM patients GROUP BY region)", "declared groups"),
        ("SELECT name, COUNT(*) n FROM patients WHERE name > '' GROUP BY name HAVING n > 1", None),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT name FROM patients)", None),
    ],
)  # fmt: skip
def test_the_answer_says_which_groups_it_is_computed_over(sql, words):
    caveats = read(sql, TABLES).caveats
    assert bool(caveats) == (words is not None)
    assert words is None or words in caveats[0]


def test_sums_that_differ_by_constants_are_one_sum_and_one_count():
    sums = ", ".join(f"SUM(age + {shift})" for shift in range(90))
    question = read(f"SELECT {sums}, AVG(2 * age - 1), SUM(-age), SUM(0.5 * age) FROM patients", TABLES, lines=True)  # fmt: skip
    (found,) = question.blocks
    assert [(one.function, one.args) for one in found.aggregates] == [
        (Function.SUM, (Field("age"),)),
        (Function.COUNT_VALUES, (Field("age"),)),
        (Function.AVG, (Field("age"),)),
    ]
    assert block("SELECT SUM(age + 1) FROM patients").aggregates[0].args[0] != Field("age")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT age + 1 AS next, COUNT(*) FROM patients WHERE smoker GROUP BY next",
        "SELECT 7 - age, COUNT(*) FROM patients WHERE smoker GROUP BY 1",
        "SELECT a, COUNT(*) FROM (SELECT age AS a, smoker AS s FROM patients) WHERE s GROUP BY a",
        "SELECT 'x' AS c, age AS a, COUNT(*) FROM patients p WHERE p.smoker GROUP BY c, p.age",
        "SELECT age, age - 1, COUNT(*) FROM patients WHERE smoker GROUP BY ALL",
    ],
)
def test_a_constant_renamed_or_shifted_key_is_the_same_cells(sql):
    plain = block("SELECT age, COUNT(*) FROM patients WHERE smoker GROUP BY age")
    found = block(sql)
    assert (found.relation, found.by, found.aggregates) == (
        plain.relation, plain.by, plain.aggregates,
    )  # fmt: skip


def test_who_reads_no_free_sql_gets_sums_and_keys_as_they_are_written():
    sql = "SELECT age + 1 AS a, SUM(age), SUM(age + 1) FROM patients GROUP BY a"
    (found,) = read(sql, TABLES).blocks
    shifted = Call("add", (Field("age"), Literal(1)))
    assert [key.expression for key in found.by] == [shifted]
    assert [one.args for one in found.aggregates] == [(Field("age"),), (shifted,)]


def test_the_path_says_how_rows_were_made():
    found = block(
        "SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) n FROM visits GROUP BY 1) JOIN patients USING (patient_id)"
    )
    text = " / ".join(found.path)
    for words in ("table visits", "one row per patient_id", "joined with", "table patients"):
        assert words in text
