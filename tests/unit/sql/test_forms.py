"""Differences, shares, growth and rates err by one noise, and not by that of each number in them."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.sql.estimates.bounded import Loss
from noisegate.sql.estimates.unseen import even_normal
from noisegate.sql.laws.laws import Draws, Law
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.outer.forms import Form
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.outer.margins import Margins

SURE = Fraction(95, 100)
NOISE = Geometric(scale=Fraction(2))
ROWS = pa.table({"k": ["a"] * 90 + ["b"] * 60 + ["c"] * 50, "v": list(range(200))})


def gate(**more):
    columns = {"k": {"in": ["a", "b", "c"]}, "v": {"type": "integer", "between": [0, 200]}}
    return noisegate.open(ROWS, epsilon=99, columns=columns, table="rows", **more)


def law(*weights):
    return Law(tuple(Draws(abs(Fraction(each)), 1, NOISE) for each in weights if each))


def asked(sql):
    found = gate().sql(sql, epsilon="1/2", fresh=True)
    return found.to_arrow().to_pylist(), found.margins(0.95)


@pytest.mark.parametrize(
    ("item", "weights"),
    [
        ("MAX(a) - MAX(b)", (1, 1)),
        ("MAX(a) + MAX(b) - 2 * MAX(c)", (1, 1, 2)),
        ("MAX(a) - (MAX(a) - MAX(b))", (1,)),
        ("MAX(a) - MAX(a)", ()),
    ],
)
def test_a_difference_errs_by_the_law_of_its_weights(item, weights):
    parts = ", ".join(f"COUNT(*) FILTER (WHERE k = '{key}') AS {key}" for key in "abc")
    sql = f"SELECT {item.replace('MAX', '')} AS d FROM (SELECT {parts} FROM rows)"
    _, margins = asked(sql)
    expected = law(*weights).half_width(SURE) if weights else 0
    assert margins["d"] == (int(expected),)


def test_growth_errs_by_the_row_and_the_one_before():
    _, margins = asked(
        "SELECT k, COUNT(*) AS n, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY k) AS more "
        "FROM rows GROUP BY k ORDER BY k"
    )
    width = int(law(1, 1).half_width(SURE))
    assert margins["more"] == (None, width, width)


def test_the_ends_of_a_share_are_all_ratios_that_its_noise_does_not_contradict():
    rows, margins = asked(
        "SELECT k, n, n / every AS share FROM (SELECT k, COUNT(*) AS n, "
        "SUM(COUNT(*)) OVER () AS every FROM rows GROUP BY k) ORDER BY k"
    )
    every = sum(row["n"] for row in rows)
    for row, told in zip(rows, margins["share"], strict=True):
        left = [
            t
            for t in np.arange(0, 1, 1 / 512)
            if abs(row["n"] - t * every)
            <= law(1 - Fraction(t), Fraction(t), Fraction(t)).half_width(SURE)
        ]
        far = max(row["share"] - left[0], left[-1] - row["share"])
        assert far <= told <= 1.03 * far + 2 / 512
    alone = law(1).half_width(SURE)
    assert max(margins["share"]) < 0.8 * (rows[0]["n"] + alone) / (every - 3 * alone)


def test_a_ratio_whose_divisor_may_be_nothing_has_no_bar():
    _, margins = asked(
        "SELECT COUNT(*) / NULLIF(COUNT(*) FILTER (WHERE v < 3), 0) AS often FROM rows"
    )
    assert margins["often"] == (None,)


def test_two_names_of_one_number_have_one_noise():
    _, margins = asked("SELECT a - b AS d FROM (SELECT COUNT(*) AS a, COUNT(*) AS b FROM rows)")
    assert margins["d"] == (0,)


def test_a_sum_may_hold_the_noise_of_the_count_beside_it():
    """Both are measured apart, or one of the other: half-widths for half of the failure add up."""
    found = gate().sql("SELECT COUNT(*) AS n, SUM(v) AS s FROM rows", epsilon=1)
    ratio = gate().sql("SELECT SUM(v) - COUNT(*) AS d FROM rows", epsilon=1)
    each = found.margins(Fraction(975, 1000))
    (told,) = ratio.margins(0.95)["d"]
    assert told == pytest.approx(each["n"][0] + each["s"][0], rel=0.1)


CELLS = pa.table({"k": ["n", "s", "w"], "a": [10.0, 30.0, 20.0], "b": [100.0, 200.0, 50.0]})
FAR = 1e-4


def outer(sql, table=CELLS):
    found = run_outer(sql, {"noisegate_0": table}, {})
    return np.array(found.column(found.num_columns - 1).to_pylist(), np.float64)


@pytest.mark.parametrize(
    ("item", "source"),
    [
        ("a - b", "noisegate_0"),
        ("-(a - 3 * b) / 4", "noisegate_0"),
        ("100 * a / NULLIF(b, 0) - 7", "noisegate_0"),
        ("a / SUM(a) OVER ()", "noisegate_0"),
        ("a - SUM(-a) OVER ()", "noisegate_0"),
        ("SUM(b) OVER (ORDER BY k) / SUM(a) OVER ()", "noisegate_0"),
        ("a - AVG(a) OVER ()", "noisegate_0"),
        ("a + AVG(-a) FILTER (WHERE k <> 'n') OVER ()", "noisegate_0"),
        ("a - LAG(-a, 1, 5) OVER (ORDER BY k)", "noisegate_0"),
        ("a / LAST_VALUE(a) OVER () - 1", "noisegate_0"),
        ("a - SUM(CASE WHEN k = 'n' THEN -a ELSE a END) OVER ()", "noisegate_0"),
        ("a - SUM(CASE WHEN k = 'n' THEN 4 ELSE -a END) OVER ()", "noisegate_0"),
        ("SUM(a) / SUM(b)", "noisegate_0"),
        ("SUM(a) FILTER (WHERE k = 'n') / SUM(a)", "noisegate_0"),
        ("x / y", "(SELECT SUM(a) AS y, SUM(-a) FILTER (WHERE k = 's') AS x FROM noisegate_0)"),
        ("s.x - t.y", "(SELECT -a AS x FROM noisegate_0) s, (SELECT SUM(a) AS y FROM noisegate_0) t"),
        ("s.a - t.a", "noisegate_0 s JOIN noisegate_0 t ON t.k > s.k"),
        ("a / (SELECT SUM(a) FROM noisegate_0)", "noisegate_0"),
        ("a - (SELECT SUM(-a) FROM noisegate_0) / (SELECT SUM(b) FROM noisegate_0)",
         "noisegate_0"),
        ("a - (SELECT SUM(a) FROM noisegate_0 WHERE k <> 'n')", "noisegate_0"),
        ("(SELECT a FROM noisegate_0 WHERE k = 's') - a", "noisegate_0"),
        ("SUM(a) / (SELECT s FROM (SELECT SUM(b) AS s FROM noisegate_0))", "noisegate_0"),
    ],
)  # fmt: skip
def test_weights_are_the_slopes_of_what_the_engine_calculates(item, source):
    """Half-widths that add up, very small ones: so a ± is the sum of all slopes times them."""
    block = ReleasedBlock(
        table=CELLS,
        noisy=("a", "b"),
        half_widths=lambda *_: [FAR] * 3,
        added=frozenset({"a", "b"}),
        weighted=lambda weights, _: FAR * sum(abs(w) for r in weights.values() for w in r.values()),
    )
    sql = f"SELECT {item} AS d FROM {source}"
    shown, slopes = outer(sql), 0
    for name in "ab":
        for row in range(3):
            moved = CELLS.to_pydict()
            moved[name][row] += FAR
            slopes = slopes + np.abs(outer(sql, pa.table(moved)) - shown) / FAR
    run = run_outer(sql, {"noisegate_0": CELLS}, {})
    (widths,) = Margins(sql, {"noisegate_0": block}, {}, run).at(0.95)
    told = np.array(widths, np.float64) / FAR
    if "THEN -a ELSE a" in item:  # of two signs: each number by itself
        assert (told >= 0.99 * slopes)[~np.isnan(told)].all()
    else:
        known = ~np.isnan(told)
        assert known.any()
        assert told[known] == pytest.approx(slopes[known], rel=0.01)


def loss(**more):
    drawn = 300 + 40 * even_normal(5)
    return Loss(cap=5, kept=1000.0, drawn=drawn, squares=np.full(drawn.shape, 900.0), **more)


def test_what_one_group_loses_is_what_a_weight_of_one_loses():
    lost, share = loss(), np.array([0.3, 0.2])
    off = np.quantile(np.abs(lost.contrast(share, np.array([1.0, 0.0]), signed=False)), 0.95)
    (alone,) = lost.off(np.array([0.3]), SURE)
    assert off == pytest.approx(alone, rel=0.05)


def test_what_all_groups_lose_cancels_in_a_ratio():
    share = np.array([0.5, 0.5])
    alike = loss(unlike=0.0)
    one, other = (
        np.abs(alike.contrast(share, np.array(weights), signed=False)).max()
        for weights in ([1.0, 1.0], [0.5, -0.5])
    )
    assert one > 100
    spread = np.sqrt(0.25 * 900) * np.abs(even_normal(2)).max()
    assert other == pytest.approx(spread)


def test_forms_are_joint_where_two_numbers_stand_in_one_table():
    one, two = (Form.of((block, "n"), "v", "r") for block in "ab")
    assert not Form(one.over, two.over).is_joint
    assert Form(one.over, one.over).is_joint


def test_a_share_of_rows_that_a_cap_cuts_is_told_more_sharply_than_its_parts():
    rng = np.random.default_rng(7)
    rows = np.minimum(np.exp(rng.normal(0.8, 1.3, 3000)).astype(int), 400)
    unit = np.repeat(np.arange(3000), rows)
    key = rng.choice(["a", "b", "c"], unit.size, p=[0.5, 0.3, 0.2])
    found = noisegate.open(
        pa.table({"who": unit, "k": key}),
        epsilon=9, unit="who", table="rows", columns={"k": {"in": ["a", "b", "c"]}},
    ).sql(
        "SELECT k, COUNT(*) AS n, SUM(COUNT(*)) OVER () AS every, "
        "COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM rows GROUP BY k",
        epsilon=2,
    )  # fmt: skip
    margins = found.margins(0.95)
    for place, row in enumerate(found.to_arrow().to_pylist()):
        n, every, share = (margins[name][place] for name in ("n", "every", "share"))
        apart = (n + row["share"] * every) / row["every"]
        assert share < 0.8 * apart
        assert abs(row["share"] - np.mean(key == row["k"])) <= 2 * share
