"""Many questions: differences of answers, and the same question again and again.

Time is out of scope in this folder: how long an answer takes depends on rows (see SECURITY.md).
"""

import pytest
from naive import Rewriter, Threshold
from worlds import eve, gate, loss, visits, worlds

from noisegate.errors import OverBudget

ALL = "SELECT COUNT(*) AS n FROM visits"
ALL_BUT_EVE = "SELECT COUNT(*) AS n FROM visits WHERE age <> 99"
SPELLINGS = [
    ALL,
    "select  count( * )  as n\nfrom VISITS",
    "SELECT COUNT(*) AS m FROM visits /* again */",
    "SELECT COUNT(*) AS n FROM visits AS v -- again",
    "SELECT (COUNT(*)) AS n FROM visits;",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM visits)",
    "WITH v AS (SELECT * FROM visits) SELECT COUNT(*) AS n FROM v",
    "SELECT COUNT(*) AS n FROM visits ORDER BY n LIMIT 1",
    "SELECT COUNT(*) + 0 AS n FROM visits",
]
OTHER_WORDS = [
    "SELECT COUNT(1) AS n FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE TRUE",
    "SELECT COUNT(*) AS n FROM visits WHERE 1 = 1",
    "SELECT COUNT(*) AS n FROM visits WHERE age >= 0",
    "SELECT SUM(1) AS n FROM visits",
    "SELECT COUNT_IF(TRUE) AS n FROM visits",
    "SELECT COUNT(*) FILTER (WHERE TRUE) AS n FROM visits",
    "SELECT n + 0 AS n FROM (SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits)",
]


def number(answer):
    return answer.table.column(0)[0].as_py()


def test_differencing_finds_one_person_behind_a_least_group_size():
    naive = Threshold(visits=visits(eve(age=99)))
    assert naive.count("SELECT COUNT(*) FROM visits WHERE age = 99") is None
    assert naive.count(ALL) - naive.count(ALL_BUT_EVE) == 1


def test_a_difference_costs_what_both_questions_cost_and_tells_no_more():
    here, there = worlds(eve(age=99), epsilon=2)
    assert loss(here, there, ALL) + loss(here, there, ALL_BUT_EVE) <= 2
    answers = [here.sql(sql, epsilon=1) for sql in (ALL, ALL_BUT_EVE)]
    assert here.spent.epsilon == sum(answer.cost.epsilon for answer in answers) == 2
    with pytest.raises(OverBudget):
        here.sql("SELECT COUNT(*) FROM visits WHERE age = 99", epsilon=1)


def test_differences_inside_one_question_are_within_its_price():
    here, there = worlds(eve(age=99))
    for sql in (
        f"SELECT ({ALL}) - ({ALL_BUT_EVE}) AS one",
        "SELECT COUNT(*) - COUNT(*) FILTER (WHERE age <> 99) AS one FROM visits",
        f"SELECT a.n - b.n AS one FROM ({ALL}) a, ({ALL_BUT_EVE}) b",
    ):
        assert 0 < loss(here, there, sql) <= here.plan(sql, epsilon=1).price.epsilon == 1


def test_averaging_finds_the_exact_count_where_every_answer_is_drawn_anew():
    """The mean of 500 draws of scale 1 errs by ½ with probability below 1e-12 (Chernoff)."""
    naive = Rewriter(visits=visits(eve()))
    assert abs(naive.average(ALL, 500) - 61) < 0.5


def test_asking_again_repeats_the_answer_however_it_is_spelt():
    mine = gate(visits(eve()), epsilon=1)
    answers = [mine.sql(sql, epsilon=1) for sql in SPELLINGS * 2]
    assert len({number(answer) for answer in answers}) == 1
    assert mine.spent.epsilon == 1
    assert [answer.free for answer in answers] == [False] + [True] * (len(answers) - 1)


def test_other_words_for_one_thing_give_no_draw_that_is_not_paid():
    mine = gate(visits(eve()))
    answers = [mine.sql(sql, epsilon=1) for sql in [ALL, *OTHER_WORDS] * 2]
    draws = len({number(answer) for answer in answers})
    assert draws <= mine.spent.epsilon == sum(answer.cost.epsilon for answer in answers)
    assert all(answer.free for answer in answers[len(answers) // 2 :])


def test_fresh_draws_end_with_the_budget():
    mine = gate(visits(eve()), epsilon=5)
    for _ in range(5):
        assert mine.sql(ALL, epsilon=1, fresh=True).cost.epsilon == 1
    for _ in range(3):
        with pytest.raises(OverBudget):
            mine.sql(ALL, epsilon=1, fresh=True)
    assert mine.spent.epsilon == 5


def test_a_new_process_or_another_analyst_gets_the_same_draw(tmp_path):
    ledger = tmp_path / "book"
    first = gate(visits(eve()), ledger=ledger, analyst="ana").sql(ALL, epsilon=1)
    for analyst in ("ana", "ben"):
        again = gate(visits(eve()), ledger=ledger, analyst=analyst)
        answer = again.sql(ALL, epsilon=1)
        assert (number(answer), answer.cost.epsilon) == (number(first), 0)
        assert again.ledger.balance("visits").spent.epsilon == 1


def test_more_precise_questions_cannot_be_averaged_with_earlier_ones():
    """Asking at a higher price pays the difference; all draws together cost no more than that."""
    mine = gate(visits(eve()), epsilon=3)
    for epsilon in (1, 2, 3):
        mine.sql(ALL, epsilon=epsilon)
        assert mine.spent.epsilon == epsilon
    with pytest.raises(OverBudget):
        mine.sql(ALL, epsilon="3.1")


def test_colluding_analysts_share_one_budget(tmp_path):
    asked = []
    for analyst in ("ana", "ben", "cem"):
        mine = gate(visits(eve()), epsilon=2, ledger=tmp_path / "book", analyst=analyst)
        try:
            asked.append(mine.sql(ALL, epsilon=1, fresh=True))
        except OverBudget:
            asked.append(None)
    assert [answer is not None for answer in asked] == [True, True, False]
