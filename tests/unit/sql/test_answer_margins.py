"""Error bars follow the numbers through the free SQL."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import SpecError
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.sql.laws.laws import Draws, Law
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.outer.margins import Margins
from refusals import about

TABLE = pa.table({"k0": ["n", "s", "w"], "a0": [10, 30, 20], "a1": [100.0, 200.0, 2.0]})
PUBLIC = {"wards": pa.table({"ward": ["n", "s"], "beds": [5, 10]})}
ASKED = []


def widths(name, confidence):
    """Wider for a surer statement: 100 times the failure's inverse, in thousandths."""
    ASKED.append(confidence)
    return [int(5 * Fraction(5, 100) / (1 - confidence))] * 3 if name == "a0" else [10.5] * 3


BLOCK = ReleasedBlock(table=TABLE, noisy=("a0", "a1"), half_widths=widths)


def margins(sql, *, block=BLOCK):
    released = {"noisegate_0": block}
    return Margins(sql, released, PUBLIC, run_outer(sql, {"noisegate_0": block.table}, PUBLIC))


def bars(sql, confidence=0.95):
    return margins(sql).at(confidence)


def test_a_released_number_keeps_its_half_width_exactly():
    assert bars("SELECT k0 AS ward, a0 AS n, a1 FROM noisegate_0") == [
        None,
        (5, 5, 5),
        (10.5, 10.5, 10.5),
    ]


def test_rows_are_followed_through_where_order_and_limit():
    block = ReleasedBlock(table=TABLE, noisy=("a0",), half_widths=lambda *_: np.array([1, 2, 3]))
    for sql, expected in [
        ("SELECT a0 FROM noisegate_0 ORDER BY a0 DESC", (2, 3, 1)),
        ("SELECT a0 FROM noisegate_0 WHERE k0 <> 's' ORDER BY a0 DESC LIMIT 1", (3,)),
        ("WITH t AS (SELECT * FROM noisegate_0) SELECT t.a0 FROM t WHERE a0 > 15", (2, 3)),
        ("SELECT n FROM (SELECT a0 AS n, k0 FROM noisegate_0) ORDER BY k0 DESC", (3, 2, 1)),
        ("FROM noisegate_0 SELECT a0 QUALIFY ROW_NUMBER() OVER (ORDER BY a0) = 3", (2,)),
    ]:
        assert margins(sql, block=block).at(0.95) == [expected], sql


@pytest.mark.parametrize(
    ("item", "low", "high"),
    [
        ("-a0", lambda a, _: -a - 5, lambda a, _: -a + 5),
        ("(a0)", lambda a, _: a - 5, lambda a, _: a + 5),
        ("a0 * 2 + 1", lambda a, _: 2 * a - 9, lambda a, _: 2 * a + 11),
        ("3 - a0", lambda a, _: -2 - a, lambda a, _: 8 - a),
        ("ABS(a0 - 12)", lambda a, _: np.maximum(0, np.maximum(a - 17, 7 - a)), lambda a, _: np.maximum(abs(a - 17), abs(a - 7))),
        ("GREATEST(a0, 9)", lambda a, _: np.maximum(a - 5, 9), lambda a, _: np.maximum(a + 5, 9)),
        ("CAST(a0 AS DOUBLE)", lambda a, _: a - 5, lambda a, _: a + 5),
        ("a0::FLOAT", lambda a, _: (a - 5) * (1 - 2**-22), lambda a, _: (a + 5) * (1 + 2**-22)),
        ("COALESCE(NULLIF(a0, 0), 0)", lambda a, _: a - 5, lambda a, _: a + 5),
        ("FLOOR(a0 / 4)", lambda a, _: np.floor((a - 5) / 4), lambda a, _: np.floor((a + 5) / 4)),
        ("CAST(a0 / 2 AS INTEGER)", lambda a, _: np.round((a - 5) / 2), lambda a, _: np.floor((a + 5) / 2 + 0.5)),
        ("CAST(a0 * 0.5 AS INTEGER)", lambda a, _: np.ceil((a - 5) / 2 - 0.5), lambda a, _: np.floor((a + 5) / 2 + 0.5)),
        ("SQRT(a0)", lambda a, _: np.sqrt(a - 5), lambda a, _: np.sqrt(a + 5)),
        ("CBRT(a0 - 20)", lambda a, _: np.cbrt(a - 25), lambda a, _: np.cbrt(a - 15)),
        ("TRUNC(a0 - 20.5)", lambda a, _: np.trunc(a - 25.5), lambda a, _: np.trunc(a - 15.5)),
        ("EXP(a0)", lambda a, _: np.exp(a - 5), lambda a, _: np.exp(a + 5)),
        ("LN(a0)", lambda a, _: np.log(a - 5), lambda a, _: np.log(a + 5)),
        ("LOG10(a0)", lambda a, _: np.log10(a - 5), lambda a, _: np.log10(a + 5)),
        ("LOG(a0)", lambda a, _: np.log10(a - 5), lambda a, _: np.log10(a + 5)),
        ("LOG(0.5, a0)", lambda a, _: -np.log2(a + 5), lambda a, _: -np.log2(a - 5)),
        ("POWER(a0 - 20, 2)", lambda a, _: np.where(a == 20, 0, 25), lambda a, _: np.where(a == 20, 25, 225)),
        ("(a0 - 20) ** 3", lambda a, _: (a - 25) ** 3, lambda a, _: (a - 15) ** 3),
        ("POWER(a0, -0.5)", lambda a, _: (a + 5) ** -0.5, lambda a, _: (a - 5) ** -0.5),
        ("POWER(0.9, a0)", lambda a, _: 0.9 ** (a + 5), lambda a, _: 0.9 ** (a - 5)),
        ("ROUND(a0 / 4, 1)", lambda a, _: np.round((a - 5) / 4 - 0.01, 1), lambda a, _: np.round((a + 5) / 4 + 0.01, 1)),
    ],
)  # fmt: skip
def test_arithmetic_has_the_ends_of_its_interval(item, low, high):
    shown = run_outer(f"SELECT {item} AS x FROM noisegate_0", {"noisegate_0": TABLE}, {})
    value, exact = np.array(shown.column("x").to_pylist()), np.array([10.0, 30.0, 20.0])
    expected = np.maximum(value - low(exact, None), high(exact, None) - value)
    (found,) = bars(f"SELECT {item} AS x FROM noisegate_0")
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_bars_of_random_arithmetic_hold_whenever_those_of_its_parts_do():
    """Exact values anywhere inside the parts' bars give results inside the item's bar."""
    rng = np.random.default_rng(7)
    items = [
        "a0 * 100.0 / a1",
        "a0 / a1 - a1 / 300",
        "ROUND(a0 * a1 / 7, 2)",
        "ABS(a0 - a1) * a0",
        "LEAST(a0, a1) / 3 - CAST(a1 AS INT)",
        "-a1 * (a0 - 12) / (a1 + 100)",
        "CEIL(a0 / 3) * GREATEST(a1, 5)",
        "CAST(a0 / a1 AS DECIMAL(9, 3))",
        "100 * a0::FLOAT / a1::REAL",
        "SQRT(a0 + a1) - LN(a1)",
        "POWER(a0 - a1 / 10, 3) / POWER(a1 - 50, 2)",
        "POWER(a0 / 10, a1 / 100 - 1)",
        "EXP(a0 / 10 - a1 / 100)",
        "LOG(a0, a1) + CBRT(a0 - a1)",
        "CAST(TRUNC(a0 / 2) - a1 / 2 AS INTEGER)",
    ]
    sql = "SELECT {} FROM noisegate_0".format(", ".join(items))
    shown = run_outer(sql, {"noisegate_0": TABLE}, {})
    found = bars(sql)
    at_two = widths("a0", Fraction(975, 1000))[0]  # each item has two parts
    checked = 0
    for _ in range(50):
        exact = TABLE.set_column(
            1, "a0", pa.array(TABLE["a0"].to_numpy() + rng.uniform(-at_two, at_two, 3))
        )
        exact = exact.set_column(
            2, "a1", pa.array(TABLE["a1"].to_numpy() + rng.uniform(-10.5, 10.5, 3))
        )
        truth = run_outer(sql, {"noisegate_0": exact}, {})
        for place in range(len(items)):
            for row in range(3):
                width = found[place][row]
                if width is not None:
                    true, seen = truth.column(place)[row].as_py(), shown.column(place)[row].as_py()
                    assert abs(true - seen) <= width, items[place]
                    checked += 1
    assert checked > 800


def test_an_item_of_k_numbers_takes_each_at_the_split_confidence():
    ASKED.clear()
    (one, two) = bars("SELECT a0, a0 + a1 AS b FROM noisegate_0", 0.9)
    assert set(ASKED) == {Fraction(9, 10), Fraction(95, 100)}
    assert one == (2, 2, 2)
    assert two == pytest.approx((15.5,) * 3)
    # the same column of two rows is two numbers
    (difference,) = bars(
        "SELECT x.a0 - y.a0 AS d FROM noisegate_0 x, noisegate_0 y WHERE x.k0 = 'n' AND y.k0 = 's'"
    )
    assert difference == (20,)


def test_exact_columns_join_in_without_noise():
    assert bars("SELECT ward, a0 / beds AS per, beds FROM noisegate_0 JOIN wards ON ward = k0") == [
        None,
        pytest.approx((1.0, 0.5)),
        None,
    ]


def test_a_quotient_near_zero_has_no_bar():
    (found,) = bars("SELECT a0 / a1 AS r FROM noisegate_0")
    assert found[2] is None  # 2 ± 10.5 may be 0
    assert found[0] is not None


@pytest.mark.parametrize(
    "item", ["SQRT(a1 - 5)", "LN(a1)", "LOG10(a1)", "POWER(a1, 0.5)", "POWER(a1, -2)"]
)
def test_an_interval_that_leaves_the_domain_of_a_function_has_no_bar(item):
    (found,) = bars(f"SELECT {item} AS r FROM noisegate_0")
    assert found[2] is None  # 2 ± 10.5: what is there may have no value
    assert found[0] is not None


def test_roots_of_what_cannot_be_negative_begin_at_0():
    block = replace(BLOCK, unsigned=frozenset({"a1"}))
    for item in ("SQRT(a1)", "POWER(a1, 0.5)", "SQRT(2 * a1)"):
        (found,) = margins(f"SELECT {item} AS r FROM noisegate_0", block=block).at(0.95)
        at = 2 if "*" in item else 1
        assert found[2] == pytest.approx((12.5 * at) ** 0.5 - (2 * at) ** 0.5), item
    (found,) = margins("SELECT LN(a1) AS r FROM noisegate_0", block=block).at(0.95)
    assert found[2] is None


@pytest.mark.parametrize(
    "item",
    [
        "SUM(a0) OVER ()",
        "CASE WHEN a0 > 15 THEN 1 ELSE 0 END",
        "(SELECT MAX(a0) FROM noisegate_0)",
        "(SELECT SUM(a0) FROM noisegate_0 WHERE a0 > 15)",
        "(SELECT SUM(t.a0) FROM noisegate_0 t WHERE t.k0 = noisegate_0.k0)",
        "(SELECT a0 FROM noisegate_0 ORDER BY a0 LIMIT 1)",
        "a0 % 7",
        "SIN(a0)",
        "TRUNC(a0 / 7, 1)",
        "k0 || a0",
        "a0 > 15",
        "LEAD(a0) OVER (ORDER BY a0)",
        "RANK() OVER (ORDER BY a0)",
        "SUM(a0) OVER (PARTITION BY a1 > 5)",
        "MAX(a0) OVER ()",
    ],
)
def test_what_cannot_be_followed_has_no_bar_and_spoils_no_other(item):
    known, other = bars(f"SELECT a0, {item} AS x FROM noisegate_0")
    assert known == (5, 5, 5)
    assert not any(other or ())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(a0) AS s FROM noisegate_0",
        "SELECT DISTINCT a0 FROM noisegate_0",
        "SELECT a0 FROM noisegate_0 UNION SELECT 7",
        "SELECT a0 FROM noisegate_0 UNION ALL SELECT MAX(a0) FROM noisegate_0",
        "SELECT k0, MAX(a0) AS m FROM noisegate_0 GROUP BY k0",
        "SELECT m + 1 AS x FROM (SELECT MAX(a0) AS m FROM noisegate_0)",
        "WITH t AS (SELECT SUM(a0) OVER () AS s FROM noisegate_0) SELECT s FROM t",
    ],
)
def test_what_rows_have_in_common_has_no_bar_if_it_is_not_known(sql):
    assert not any(width for each in bars(sql) for width in each or ())


def powers(weights, _):
    """Tens to the power of the row, times its weight."""
    if weights.keys() != {"a0"}:
        return None
    return abs(sum(weight * 10**row for row, weight in weights["a0"].items()))


ADDED = replace(BLOCK, weighted=powers)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT SUM(a0) FROM noisegate_0", (111,)),
        ("SELECT k0, SUM(a0) FROM noisegate_0 WHERE k0 <> 'n' GROUP BY k0 ORDER BY k0", (10, 100)),
        ("SELECT SUM(a0) OVER (ORDER BY k0) FROM noisegate_0 ORDER BY k0", (1, 11, 111)),
        ("SELECT SUM(a0) FILTER (WHERE k0 = 's') FROM noisegate_0", (10,)),
        ("SELECT SUM(CASE WHEN k0 < 't' THEN a0 ELSE 0 END) FROM noisegate_0", (11,)),
        ("SELECT AVG(a0) FROM noisegate_0", (37,)),
        ("SELECT (SELECT SUM(a0) FROM noisegate_0) FROM noisegate_0", (111, 111, 111)),
        ("SELECT (SELECT SUM(-a0) FROM noisegate_0 WHERE k0 = 's') / 2", (5,)),
        ("SELECT SUM(COALESCE(n, 0)) + 1 FROM (SELECT -a0 AS n FROM noisegate_0)", (111,)),
        ("SELECT s / 10 FROM (SELECT SUM(a0) OVER () AS s FROM noisegate_0) LIMIT 1", (11.1,)),
        ("SELECT SUM(a0) FROM noisegate_0 JOIN (VALUES (1), (2)) t(i) ON true", (222,)),
        ("SELECT LAG(a0) OVER (ORDER BY k0) FROM noisegate_0 ORDER BY k0", (None, 5, 5)),
        ("SELECT LEAD(a0, 2, 0) OVER (ORDER BY k0) FROM noisegate_0 ORDER BY k0", (5, None, None)),
        ("SELECT FIRST_VALUE(a0) OVER (ORDER BY k0) FROM noisegate_0", (5, 5, 5)),
        ("SELECT CASE WHEN k0 = 'n' THEN a0 WHEN k0 = 's' THEN 2 * a0 ELSE 7 END FROM noisegate_0",
         (5, 10, 0)),
        ("SELECT IF(k0 = 'n', a0, a1) FROM noisegate_0", (5, 10.5, 10.5)),
        ("SELECT a0 FROM noisegate_0 UNION ALL SELECT 7", (5, 5, 5, 0)),
        ("(SELECT a0 AS x FROM noisegate_0 LIMIT 1) UNION ALL (SELECT a1 FROM noisegate_0 LIMIT 1)",
         (5, 10.5)),
        ("FROM noisegate_0 SELECT a0 UNION ALL FROM noisegate_0 SELECT SUM(a0)",
         (5, 5, 5, 111)),
        ("SELECT 2 * x FROM (SELECT k0, a0 AS x FROM noisegate_0 UNION ALL FROM (SELECT 'z', 1))",
         (10, 10, 10, 0)),
    ],
)  # fmt: skip
def test_sums_windows_and_unions_are_followed_to_their_rows(sql, expected):
    found = margins(sql, block=ADDED)
    assert found.at(0.95)[-1] == pytest.approx(expected)


def test_a_sub_query_whose_rows_noise_chooses_is_not_exact():
    keys = "(SELECT k0 FROM noisegate_0 WHERE a0 > 15 LIMIT 1)"
    assert margins(f"SELECT {keys} AS x FROM noisegate_0").unknown() == ["x"]
    assert margins(f"SELECT k0 IN {keys} AS x FROM noisegate_0").unknown() == ["x"]
    assert margins("SELECT (SELECT COUNT(*) FROM noisegate_0) AS x").unknown() == []
    later = "SELECT (SELECT SUM(a0) FROM noisegate_0) FROM noisegate_0 WHERE a0 > 15"
    assert margins(later, block=ADDED).at(0.95) == [(111, 111)]


def test_values_without_noise_need_no_bar_and_are_not_called_unknown():
    sql = "SELECT k0, ROW_NUMBER() OVER (ORDER BY k0) AS place, COUNT(*) OVER () AS n FROM noisegate_0"
    assert margins(sql).unknown() == []


def test_sums_over_rows_that_noise_has_chosen_have_no_bar():
    for sql in (
        "SELECT SUM(a0) FROM noisegate_0 WHERE a0 > 15",
        "SELECT SUM(n) FROM (SELECT a0 AS n FROM noisegate_0 ORDER BY n LIMIT 2)",
    ):
        assert margins(sql, block=ADDED).at(0.95) == [None]


def test_without_the_same_rows_there_are_no_bars():
    other = pa.table({"a0": [11, 30, 20]})
    found = Margins("SELECT a0 FROM noisegate_0", {"noisegate_0": BLOCK}, {}, other)
    assert found.at(0.95) == [None]


def test_it_is_said_when_noise_chooses_the_rows():
    for sql, chosen in [
        ("SELECT a0 FROM noisegate_0", False),
        ("SELECT a0 FROM noisegate_0 WHERE k0 = 'n'", False),
        ("SELECT a0 FROM noisegate_0 ORDER BY a0", False),
        ("SELECT a0 FROM noisegate_0 WHERE k0 IN (SELECT ward FROM wards)", False),
        ("SELECT a0 FROM noisegate_0 ORDER BY k0 LIMIT 1", False),
        ("SELECT a0 FROM noisegate_0 ORDER BY a0 LIMIT 1", True),
        ("SELECT a0 AS n FROM noisegate_0 ORDER BY n DESC LIMIT 1", True),
        ("SELECT a0 FROM noisegate_0 WHERE a0 > 15", True),
        ("SELECT n FROM (SELECT a0 AS n FROM noisegate_0) WHERE n > 15", True),
        ("SELECT k0 FROM noisegate_0 WHERE k0 IN (SELECT k0 FROM noisegate_0 WHERE a0 > 15)", True),
    ]:
        assert margins(sql).chosen is chosen, sql


def test_a_noisy_column_without_half_widths_has_none_in_any_row():
    block = ReleasedBlock(table=TABLE, noisy=("a0",), half_widths=lambda *_: None)
    found = margins("SELECT k0, a0, a0 + 1 AS x FROM noisegate_0", block=block).at(0.95)
    assert found == [None, (None,) * 3, (None,) * 3]


def test_a_ratio_to_what_may_be_0_is_shown_as_without_bound_and_not_as_exact():
    rows = pa.table({"x": [4.0] * 20})
    gate = noisegate.open(rows, table="t", epsilon=9, columns={"x": {"between": [0, 10]}})
    answer = gate.sql("SELECT SUM(x) / (COUNT(*) - 20) AS a, COUNT(*) AS n FROM t", epsilon="0.1")
    assert answer.margins()["a"] == (None,)
    assert "a_margin" in answer.to_arrow("0.95").column_names
    pytest.importorskip("altair")
    assert answer.plot().to_dict()
    shown, known = answer.cells()[0]
    assert shown.endswith(" ± ?")
    assert not known.endswith(" ± ?")
    assert "± ?: no bound on the error is known" in answer.footer()
    assert "± ?" not in gate.sql("SELECT COUNT(*) AS n FROM t", epsilon="0.1").footer()


def test_a_confidence_that_is_none_is_refused():
    with pytest.raises(SpecError, check=about("confidence")):
        bars("SELECT a0 FROM noisegate_0", 1)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("a0", True),
        ("a1", False),
        ("-a0", False),
        ("a0 - 3", False),
        ("a0 + a1", False),
        ("abs(a1)", True),
        ("100.0 * a0 / NULLIF(a0, 0)", True),
        ("round(a0 / 7, 2)", True),
        ("COALESCE(a0, -1)", False),
        ("greatest(a0, a1)", False),
        ("a0 * -2", False),
        ("CAST(a0 AS DOUBLE)", True),
        ("k0", False),
    ],
)
def test_what_cannot_be_negative_is_known_from_its_parts(item, expected):
    block = replace(BLOCK, unsigned=frozenset({"a0"}))
    for sql in (
        f"SELECT {item} AS x FROM noisegate_0",
        f"SELECT x FROM (SELECT {item} AS x FROM noisegate_0)",
    ):
        assert margins(sql, block=block).unsigned() == (("x",) if expected else ())


def test_a_sum_of_groups_errs_by_the_law_of_their_noise_together():
    rows = pa.table({"k": ["a", "b", "c"] * 40})
    gate = noisegate.open(rows, epsilon=9, columns={"k": {"in": ["a", "b", "c"]}}, table="rows")
    sql = "SELECT k, COUNT(*) AS n, SUM(COUNT(*)) OVER () AS every FROM rows GROUP BY k"
    found = gate.sql(sql, epsilon="1/2")
    law = Law((Draws(Fraction(1), 3, Geometric(scale=Fraction(2))),))
    width = int(law.half_width(Fraction(9, 10)))  # of whole numbers
    assert found.margins(0.9)["every"] == (width,) * 3
    assert (
        found.margins(0.9)["n"][0] < found.margins(0.9)["every"][0] < 3 * found.margins(0.9)["n"][0]
    )
