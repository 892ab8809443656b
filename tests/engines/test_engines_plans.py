"""What an engine cannot plan is refused before it is charged, and nothing is read for that."""

import logging
from fractions import Fraction

import engine_worlds
import pytest
from test_engines_datafusion import on_fusion
from test_engines_spark import on_spark

import noisegate
from noisegate.algebra.expression import Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Sums, Term, Values
from noisegate.curator.measurement import Measurement
from noisegate.errors import OverBudget, SourceError
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.transforms.query import Query
from refusals import about

QUESTIONS = [
    "SELECT COUNT(*) FROM people",
    "SELECT ward, AVG(age) FROM people GROUP BY ward",
    "SELECT MEDIAN(cost) FROM visits",
    "SELECT COUNT(DISTINCT pid), SUM(cost) FROM visits WHERE code = 'a'",
    "SELECT city, COUNT(*) FROM people GROUP BY city",
    """SELECT p.ward, SUM(t.dose) FROM taken t JOIN visits v ON t.vid = v.vid
    JOIN people p ON v.pid = p.pid GROUP BY p.ward""",
]
WORD = "no_such_function_at_all"


def broken(source, only=object):
    """The source's statements with a name in them that no engine knows."""
    real = source._statement

    def statement(tally, names):
        text = real(tally, names)
        return (
            f"SELECT * FROM ({text}) AS q WHERE {WORD}(1) = 1" if isinstance(tally, only) else text
        )

    source._statement = statement
    return lambda: setattr(source, "_statement", real)


@pytest.fixture(params=["postgres", "spark", "datafusion"])
def clinic(request, tmp_path):
    """A policy file: units with many rows, foreign keys, NULLs."""
    rows = engine_worlds.frames()

    def made(accountant="pure"):
        if request.param == "postgres":
            return engine_worlds.on_server(
                tmp_path / "server", request.getfixturevalue("database"), rows, accountant
            )
        if request.param == "spark":
            return on_spark(tmp_path, request.getfixturevalue("sail"), rows, accountant)[0]
        return on_fusion(tmp_path / "fusion", rows, accountant)

    return made


def opened(file):
    return noisegate.open(file, analyst="ann", ledger=":memory:")


def unread(source):
    """Fail if anything is asked of the source but plans."""

    def failing(*_, **__):
        raise AssertionError("Something was read.")

    for name in ("_parts", "_table", "_stream", "_batches"):
        setattr(source, name, failing)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_what_cannot_be_planned_costs_nothing_and_is_told_without_words(
    clinic, accountant, capfd, caplog
):
    caplog.set_level(logging.INFO)  # below it a parser writes down each statement
    gate = opened(clinic(accountant))
    source = gate.door._source
    for question in QUESTIONS:
        gate.plan(question, epsilon=9)
    broken(source)
    unread(source)
    for question in QUESTIONS:
        with pytest.raises(SourceError, check=about("plan")) as told:
            gate.sql(question, epsilon=9)
        assert told.value.__cause__ is told.value.__context__ is None
        assert WORD not in f"{told.value!r}"
    assert gate.spent.epsilon == 0
    assert WORD not in caplog.text + "".join(capfd.readouterr())


def test_the_numbers_are_planned_before_an_estimate_is_paid_for(clinic):
    gate = opened(clinic())
    broken(gate.door._source, Values)
    with pytest.raises(SourceError, check=about("plan")):
        gate.sql("SELECT MEDIAN(cost), COUNT(*) FROM visits", epsilon=1, choose="caps")
    assert gate.spent.epsilon == 0


def test_nothing_is_planned_for_an_account_that_cannot_pay(clinic):
    """How long planning takes may depend on statistics: nobody may ask for it again and again."""
    gate = noisegate.open(clinic(), analyst="bob", ledger=":memory:")
    source, planned = gate.door._source, []
    source._plan = planned.append
    one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    query = Query(Sums(relation=Table(gate.door.tables["people"]), terms=(one,), rows_per_unit=1))
    noise = Geometric.for_epsilon(11, sensitivity=query.l1s[0])
    with pytest.raises(OverBudget):
        gate.door.measure(Measurement(query=query, mechanisms=(noise,)))
    assert not planned


def test_a_steward_sees_the_words_of_the_engine(clinic, monkeypatch):
    gate = opened(clinic())
    broken(gate.door._source)
    monkeypatch.setenv("NOISEGATE_DEBUG", "1")
    with pytest.raises(Exception, match=WORD):
        gate.sql(QUESTIONS[0], epsilon=9)
    assert gate.spent.epsilon == 0


def test_the_same_question_is_answered_when_it_can_be_planned(clinic):
    gate = opened(clinic())
    mend = broken(gate.door._source)
    with pytest.raises(SourceError, check=about("plan")):
        gate.sql(QUESTIONS[0], epsilon=9000)
    mend()
    price = gate.plan(QUESTIONS[0], epsilon=9000).price.epsilon
    assert gate.sql(QUESTIONS[0], epsilon=9000).rows[0][0] == 60
    assert gate.spent.epsilon == price > 0


def test_of_several_measurements_none_is_paid_if_one_cannot_be_planned(clinic):
    gate = opened(clinic())
    broken(gate.door._source, Values)
    with pytest.raises(SourceError, check=about("plan")):
        gate.sql("SELECT COUNT(*), MEDIAN(cost) FROM visits", epsilon=9)
    assert gate.spent.epsilon == 0


def test_a_release_and_a_program_that_cannot_be_planned_cost_nothing(clinic, tmp_path):
    (tmp_path / "prog.py").write_text("def size(rows):\n    return [len(rows)]\n")
    gate = opened(clinic())
    source = gate.door._source
    broken(source)
    sql = "SELECT ward, COUNT(*) FROM people GROUP BY ward"
    with pytest.raises(SourceError, check=about("plan")):
        gate.release("histogram", sql, epsilon=9)
    dealing = source._dealing
    source._dealing = lambda *asked: f"SELECT * FROM ({dealing(*asked)}) AS q WHERE {WORD}(1) = 1"
    with pytest.raises(SourceError, check=about("plan")):
        gate.apply(
            f"{tmp_path}/prog.py:size", table="people", columns=["age"], range=[[0, 9]],
            blocks=4, epsilon=9,
        )  # fmt: skip
    assert gate.spent.epsilon == 0


def test_what_was_answered_is_given_again_without_a_plan(clinic):
    """Also by the name of its request, when the engine is away."""
    gate = opened(clinic())
    door = gate.door
    one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    query = Query(Sums(relation=Table(door.tables["people"]), terms=(one,), rows_per_unit=1))
    asked = Measurement(query=query, mechanisms=(Geometric(scale=Fraction(1, 900)),))
    first = door.measure(asked, request_id="mine")
    plain = door.measure(asked)
    broken(door._source)
    door._source._planned.clear()
    assert door.measure(asked, request_id="mine").values.tolist() == first.values.tolist()
    assert door.measure(asked).values.tolist() == plain.values.tolist()
    with pytest.raises(SourceError, check=about("plan")):
        door.measure(asked, request_id="another")


def test_a_statement_is_planned_once(clinic, monkeypatch):
    gate = opened(clinic())
    source, planned = gate.door._source, []
    plan = source._plan
    monkeypatch.setattr(source, "_plan", lambda text: planned.append(text) or plan(text))
    sql = "SELECT COUNT(*) FROM visits WHERE cost > {}"
    for _ in range(3):
        gate.sql(sql.format(7), epsilon=9, fresh=True)
    assert len(planned) == 1
    gate.sql(sql.format(8), epsilon=9)
    assert len(planned) == (2 if source.dialect.name == "Postgres" else 1)
    gate.sql(sql.format(8).replace("cost >", "cost <"), epsilon=9)
    assert len(planned) == (3 if source.dialect.name == "Postgres" else 2)


def test_a_statement_of_spark_is_planned_and_run_as_it_was_sent(sail, tmp_path, monkeypatch):
    gate = opened(on_spark(tmp_path, sail, engine_worlds.frames())[0])
    (line,) = gate.door._source._lines._free
    sent, sql = [], line.session.sql
    monkeypatch.setattr(line.session, "sql", lambda text: sent.append(text) or sql(text))
    for question in QUESTIONS:
        gate.sql(question, epsilon=9)
    assert len(sent) == len({*sent}) >= len(QUESTIONS)
    assert len(line.planned) < len(sent)  # of caps that were not known yet
    sent.clear()
    gate.sql(QUESTIONS[0], epsilon=9, fresh=True)
    assert len(sent) == 1


@pytest.mark.parametrize("engine", ["spark", "datafusion"])
def test_sums_of_0_once_failed_after_the_charge(engine, request, tmp_path, monkeypatch):
    """Their planners fail at such a statement, which is not asked any more."""
    rows = engine_worlds.frames()
    file = (
        on_fusion(tmp_path / "fusion", rows)
        if engine == "datafusion"
        else on_spark(tmp_path, request.getfixturevalue("sail"), rows)[0]
    )
    gate = opened(file)
    monkeypatch.setattr("noisegate.sources.asked.source._not_zero", lambda tally: tally)
    monkeypatch.setattr("noisegate.sql.steps.asked.without_zeros", lambda block: block)
    with pytest.raises(SourceError, check=about("plan")):
        gate.sql("SELECT SUM(0) FROM visits", epsilon=9)
    assert gate.spent.epsilon == 0
