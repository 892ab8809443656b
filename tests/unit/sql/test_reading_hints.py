"""Hints say what to pay, wherever they stand, and nothing inside a string is one."""

from fractions import Fraction

import pytest
from reading_oracle import TABLES

from noisegate.desk.terms.terms import Terms
from noisegate.errors import UserError
from noisegate.sql.reading.reader import read
from refusals import listed

COUNT = "COUNT(*) AS n FROM patients"


@pytest.mark.parametrize(
    ("sql", "terms"),
    [
        (f"SELECT {COUNT}", Terms()),
        (
            f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0.1, delta=1e-6, max_groups_contributed=3) {COUNT}",
            Terms(epsilon=Fraction(1, 10), delta=Fraction(1, 10**6), groups_per_unit=3),
        ),
        (f"select with differential_privacy {COUNT}", Terms()),
        (f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS() {COUNT}", Terms()),
        (
            f"/* noisegate: within=50 confidence=0.95 */ SELECT {COUNT}",
            Terms(within=Fraction(50), confidence=Fraction(19, 20)),
        ),
        (f"SELECT {COUNT} -- NoiseGate: epsilon=1/3", Terms(epsilon=Fraction(1, 3))),
        (f"-- noisegate: relative=0.05, rows_per_unit=4\nSELECT {COUNT}", Terms(relative=Fraction(1, 20), rows_per_unit=4)),
        (f"SELECT {COUNT} /* noisegate: relative=0.05 rows=1e4 */", Terms(relative=Fraction(1, 20), rows=10_000)),
        (f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(rows=500) {COUNT}", Terms(rows=500)),
        (f"SELECT /* noisegate: epsilon=1 */ {COUNT} /* noisegate: epsilon=1 */", Terms(epsilon=Fraction(1))),
        (f"/* \N{ROCKET} é */ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) {COUNT}", Terms(epsilon=Fraction(1))),
        (f"SELECT {COUNT} /* a remark about noisegate: epsilon=1 */", Terms()),
        (f"SELECT {COUNT} WHERE name = '/* noisegate: epsilon=1 */'", Terms()),
        (f"SELECT {COUNT} WHERE name = 'SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1)'", Terms()),
    ],
)  # fmt: skip
def test_a_hint_is_read_and_cut_out(sql, terms):
    question = read(sql, TABLES)
    assert question.terms == terms
    assert question.columns == ("n",)
    assert not question.explain
    assert "noisegate:" not in question.outer


@pytest.mark.parametrize(
    "sql",
    [
        f"EXPLAIN SELECT {COUNT}",
        f"explain\n/* noisegate: epsilon=2 */ SELECT {COUNT}",
        f"/* noisegate: epsilon=2 */ EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2) {COUNT}",
    ],
)
def test_explain_asks_for_the_plan_of_the_same_question(sql):
    question = read(sql, TABLES)
    plain = read(f"SELECT {COUNT}", TABLES)
    assert question.explain
    assert question.blocks == plain.blocks
    assert question.terms in (Terms(), Terms(epsilon=Fraction(2)))


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("/* noisegate: epsilom=1 */", "option 'epsilom'"),
        ("/* noisegate: privacy_unit_column=x */", "option privacy_unit_column"),
        ("/* noisegate: purpose=report */", "purpose"),
        ("/* noisegate: epsilon */", "option name=value"),
        ("/* noisegate: epsilon=0 */", "positive"),
        ("/* noisegate: epsilon=lots */", "number 'lots'"),
        ("/* noisegate: confidence=1 */", "confidence"),
        ("/* noisegate: rows_per_unit=1.5 */", "whole"),
        ("/* noisegate: rows=1.5 */", "whole"),
        ("/* noisegate: epsilon=1 */ /* noisegate: epsilon=2 */", "twice"),
        ("WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon 1)", "option"),
        ("WITH DIFFERENTIAL_PRIVACY OPTIONS epsilon=1", "option OPTIONS"),
        ("WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1; DROP TABLE patients)", "option"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_refused(hint, words):
    with pytest.raises(UserError, check=listed(words)):
        read(f"SELECT {hint} {COUNT}", TABLES)
