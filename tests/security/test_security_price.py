"""Prices, plans and messages: words about the question and the policy, never about rows."""

import math

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from naive import Fitted, Rewriter
from worlds import CANARY, EVE, SCHEMA, eve, everything_in, gate, planned, row, seen, visits, worlds

import noisegate as ng

QUESTIONS = [
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM visits GROUP BY ward",
    "SELECT note, COUNT(*) AS n FROM visits GROUP BY note",
    "SELECT MEDIAN(cost) AS m, MAX(age) AS x FROM visits WHERE note LIKE 'a%'",
    "SELECT COUNT(DISTINCT who) AS n, COUNT(DISTINCT note) AS k FROM visits",
    "SELECT ward, age // 30 AS a, STDDEV(cost) AS s FROM visits GROUP BY ROLLUP (ward, a)",
    "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.who = b.who AND a.note = b.note",
    "SELECT AVG(LEAST(n, 9)) AS m FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who)",
    "SELECT SUM(LEAST(9, GREATEST(0, CAST(note AS INTEGER) / big))) AS s FROM visits",
]
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # rows of a gate are slow to shrink
NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, math.nan, 1e308])
WHOLES = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
ROWS = st.lists(
    st.builds(
        row, st.none() | TEXTS, name=TEXTS, ward=st.sampled_from(["north", "attic"]) | TEXTS,
        cost=st.none() | NUMBERS, age=st.none() | WHOLES, big=st.none() | WHOLES,
        note=st.none() | TEXTS,
    ),
    max_size=30,
)  # fmt: skip


def test_noise_that_fits_the_data_tells_the_largest_value():
    plans = [Fitted(rows).plan("age") for rows in (visits(eve(age=119)), visits())]
    assert plans == ["± 357", "± 207"]


def refusal_of(gate, asked):
    try:
        gate.plan(**asked)
    except ng.NoisegateError as refusal:
        return str(refusal)
    return None


@pytest.fixture(scope="module")
def nobody():
    return gate(SCHEMA.empty_table())


@settings(max_examples=15, phases=NO_SHRINKING)
@given(rows=ROWS, sql=st.sampled_from(QUESTIONS), terms=st.sampled_from([
    {"epsilon": "0.3"}, {"within": 50}, {"within": 9, "confidence": "0.99"},
]))  # fmt: skip
def test_price_and_plan_are_those_of_an_empty_table(rows, sql, terms, nobody):
    mine = gate(pa.Table.from_pylist(rows, schema=SCHEMA))
    asked = {"sql": sql, "fresh": True, **terms}
    refusals = [refusal_of(each, asked) for each in (mine, nobody)]
    assert refusals[0] == refusals[1]
    if refusals[0] is not None:
        return
    plan, expected = mine.plan(**asked), nobody.plan(**asked)
    assert plan.price == expected.price
    assert str(plan) == str(expected)
    assert plan.to_dict() == expected.to_dict()
    assert plan._repr_html_() == expected._repr_html_()


@settings(max_examples=10, phases=NO_SHRINKING)
@given(rows=ROWS, sql=st.sampled_from(QUESTIONS))
def test_what_is_charged_and_shown_beside_the_numbers_is_that_of_an_empty_table(rows, sql, nobody):
    """Also that no row makes a question fail. Found keys are left out: these are an answer.

    The number of rows is said, as an error is else foreseen by released counts: by answers too.
    """
    mine = gate(pa.Table.from_pylist(rows, schema=SCHEMA))
    here, there = (seen(each, sql, rows=1000) for each in (mine, nobody))
    assert here[0] == there[0] == "answer"
    if "GROUP BY note" not in sql:
        assert here == there
        assert mine.spent.epsilon == 1


def test_prices_after_earlier_answers_are_the_same_in_both_worlds():
    """What is free now depends on what was asked, not on what was answered."""
    story = [
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", "0.5"),
        ("SELECT COUNT(*) AS n FROM visits", "0.1"),
        ("SELECT ward, COUNT(*) AS n FROM visits WHERE ward = 'north' GROUP BY ward", "0.5"),
        ("SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits GROUP BY ward", "0.9"),
        ("SELECT ward, AVG(cost) AS s FROM visits GROUP BY ward", "0.9"),
        ("SELECT COUNT(*) AS n FROM visits", "3"),
    ]
    paid = []
    for mine in worlds(*[eve(ward="attic", cost=1e9)] * 9):
        plans = []
        for sql, epsilon in story:
            plans.append((planned(mine.plan(sql, epsilon=epsilon)), mine.spent))
            mine.sql(sql, epsilon=epsilon)
        paid.append(plans)
    assert paid[0] == paid[1]


# messages

WRONG = [
    "SELECT COUNT(*) FROM visits WHERE CAST(note AS INTEGER) > 1",
    "SELECT CAST(note AS INTEGER) FROM visits",
    "SELECT SUM(CAST(note AS INTEGER)) FROM visits",
    "SELECT note FROM visits",
    "SELECT ERROR(note) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE ERROR(note) IS NULL",
    "SELECT COUNT(*) FROM visits WHERE STRPTIME(note, '%Y') > NOW()",
    "SELECT COUNT(*) FROM visits WHERE DATE_TRUNC(note, NOW()) IS NULL",
    "SELECT MAX(note) FROM visits",
    "SELECT note::DATE, COUNT(*) FROM visits GROUP BY 1",
    "SELECT COUNT(*) FROM visits WHERE note::UUID IS NULL",
    "SELECT COUNT(*) FROM visits WHERE JSON_EXTRACT(note, '$') IS NULL",
    "SELECT COUNT(*)::DATE FROM visits",
    "SELECT CAST(ward AS INTEGER), COUNT(*) FROM visits GROUP BY ward",
    "SELECT ERROR(ward), COUNT(*) FROM visits GROUP BY ward",
    "SELECT nothing FROM visits",
    "SELECT COUNT(*) FROM visit",
]


def test_the_engines_own_words_quote_rows():
    naive = Rewriter(visits=visits(eve()))
    for sql in (WRONG[0], WRONG[2], WRONG[5], WRONG[6]):
        with pytest.raises(duckdb.Error) as failure:
            naive.sql(sql.replace("visits WHERE", f"visits WHERE NOTE = '{CANARY}' AND"))
        assert CANARY in everything_in(failure.value)


def assert_says_nothing(error):
    text = everything_in(error)
    assert error.__cause__ is None
    for word in (CANARY, EVE, "p07", "n42"):
        assert word not in text, text


@pytest.mark.parametrize("sql", WRONG)
def test_no_refusal_quotes_a_row(sql):
    mine = gate(visits(eve(ward=CANARY)))
    for asked in (sql, f"EXPLAIN {sql}", f"SELECT * FROM ({sql})"):
        try:
            answer = mine.sql(asked, epsilon=1)
        except ng.NoisegateError as refusal:
            assert_says_nothing(refusal)
        else:
            assert CANARY not in str(answer) + answer.to_json()


BAD_FILES = {
    "ragged.csv": f"who,cost\n{EVE},1\n{CANARY},2,3,4\n",
    "quote.csv": f'who,cost\n{EVE},"{CANARY}\n',
    "bytes.csv": f"who,cost\n{EVE},{CANARY}".encode() + b"\xff\xfe\n",
    "no.parquet": f"PAR1{CANARY}",
    "no.duckdb": f"{CANARY}" * 999,
    "headless.csv": "\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_no_file_that_cannot_be_read_is_quoted(name, tmp_path):
    content = BAD_FILES[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ng.NoisegateError) as refusal:
        ng.open(file, table="t", epsilon=1)
    assert_says_nothing(refusal.value)


@pytest.mark.parametrize(
    ("column", "terms"),
    [
        (pd.Series([CANARY, 1, None], dtype=object), {"type": "integer"}),
        (pd.Series([{"a": CANARY}, 1, [2]], dtype=object), {}),
        (pd.Series([CANARY, "\ud800", "x"], dtype=object), {}),
        (pd.Series([CANARY.encode(), b"\xff", b""], dtype=object), {"type": "text"}),
        (pd.Series([10**400, 1, 2], dtype=object), {"between": [0, 1]}),
    ],
    ids=["mixed", "nested", "surrogate", "bytes", "huge"],
)
def test_no_frame_that_cannot_be_read_is_quoted(column, terms):
    frame = pd.DataFrame({"who": [EVE, "b", "c"], "x": column})
    try:
        mine = ng.open(frame, table="t", epsilon=9, columns={"x": terms})
        assert "x" in mine.tables["t"].columns
        for sql in ("SELECT COUNT(x) AS n FROM t", "SELECT COUNT(*) AS n FROM t WHERE x > x"):
            assert seen(mine, sql)[0] in {"answer", "Unsupported"}
    except ng.NoisegateError as refusal:
        assert_says_nothing(refusal)


@pytest.mark.parametrize("content", [b"", b"PAR1", f"PAR1{CANARY}PAR1".encode() * 50])
def test_a_file_that_goes_bad_later_is_not_quoted(content, tmp_path):
    file = tmp_path / "visits.parquet"
    pq.write_table(visits(eve()), file)
    mine = ng.open(file, unit="who", rows_per_unit=3, epsilon=9)
    file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(ng.NoisegateError) as failure:
            mine.sql("SELECT COUNT(*) AS n FROM visits WHERE cost > 3", epsilon=1)
        assert_says_nothing(failure.value)
    assert mine.spent.epsilon == 1  # charged once; the same request may run again under it
