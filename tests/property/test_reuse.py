"""An answer from the shelf is the answer that asking directly would give, whatever was asked before.

Random conversations, always the same ones, at a high ε, where a number is exact but for a chance below 1e-9 (counts
and sums of row-level tables) or within a small distance (weighted rows).
"""

import os
from collections import Counter
from fractions import Fraction
from random import Random
from types import MappingProxyType

import pyarrow as pa
import pytest

from noisegate.curator.curator import Curator
from noisegate.gate import Gate, Rules
from noisegate.ledger.open import open_ledger
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource

ROWS = pa.table(
    {
        "pid": [i % 17 for i in range(200)],
        "ward": [("north", "south", None, "elsewhere", "north")[i % 5] for i in range(200)],
        "k": [(i * i) % 7 for i in range(200)],
        "flag": [(True, False, None)[i % 3] for i in range(200)],
        "v": [i % 4 for i in range(200)],
    }
)
COLUMNS = {
    "pid": Column(name="pid", kind=Kind.INTEGER),
    "ward": Column(name="ward", keys=("south", "north", "nobody")),
    "k": Column(name="k", kind=Kind.INTEGER, keys=(0, 1, 2), nullable=False),
    "flag": Column(name="flag", kind=Kind.BOOLEAN),
    "v": Column(name="v", kind=Kind.INTEGER, between=(Fraction(0), Fraction(3))),
}
EXACT = ("COUNT(*)", "COUNT(v)", "COUNT_IF(k = 1)", "COUNT(ward)", "SUM(v)", "COUNT(flag)")
CONDITIONS = (
    "ward = 'north'", "ward = 'elsewhere'", "ward IN ('north', 'south')", "ward IN ('nobody', 'x')",
    "ward IS NULL", "ward = NULL", "ward IN ('north', NULL)", "NOT ward = 'north'",
    "ward IS NOT NULL", "k = 1", "1 = k", "k IN (1, 2)", "k IN (0, 1, 2)", "k IN (2, 4)", "k > 1",
    "flag", "NOT flag", "flag = TRUE", "flag IS NULL", "v = 1", "v IN (0, 1, 2, 3)",
)  # fmt: skip
KEYED = {
    "ward": ("ward = 'north'", "ward IN ('north', 'south')", "ward IS NULL", "ward = NULL"),
    "k": ("k = 1", "1 = k", "k IN (1, 2)", "k IN (0, 1, 2)"),
    "flag": ("flag = TRUE", "flag IS NULL", "flag = FALSE"),
}
EPSILONS = {None: (480, 960, 1000), "pid": (6000, 12_000, 16_000)}


# Of at most 12 rows of a unit 8 count: weights are 8/9, 4/5, 8/11 or 2/3, whose sums never lie
# half-way between whole numbers, where noise would decide how they are rounded.
CAP = 8
TALKS = 40 if os.environ.get("NOISEGATE_EXPLORE") else 5  # of four questions


def _table(unit):
    return TableDomain(
        dataset="d",
        name="t",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType(COLUMNS),
        rows_per_unit_max=None if unit is None else CAP,
    )


SOURCES = {unit: DuckDBSource({"t": ROWS}, {"t": _table(unit)}) for unit in (None, "pid")}


def gate_of(unit, accountant="pure"):
    """A gate with an empty ledger."""
    ledger = open_ledger(":memory:")
    budget = ApproxDP(10**7) if accountant == "pure" else ApproxDP(1000, "0.001")
    ledger.open_account(
        "d", parent=None, accountant=accountant, budget=budget, unit=str(_table(unit).unit)
    )
    return _asking(unit, ledger, "d")


def _asking(unit, ledger, account):
    tables = {"t": _table(unit)}
    curator = Curator(source=SOURCES[unit], tables=tables, ledger=ledger, account=account)
    return Gate(curator, Rules())


def two_analysts(unit, accountant):
    """Two gates over one ledger and one shelf of releases."""
    ledger = gate_of(unit, accountant).ledger
    root = ledger.balance("d")
    for name in ("d/ana", "d/ben"):
        ledger.open_account(
            name, parent="d", accountant=accountant, budget=root.budget, unit=root.unit
        )
    return [_asking(unit, ledger, name) for name in ("d/ana", "d/ben")]


DIRECT = {unit: gate_of(unit) for unit in SOURCES}


def sql_of(by, asked, where, *, rollup=False):
    """The question in SQL."""
    shown = ", ".join([*by, *(f"{each} AS a{i}" for i, each in enumerate(asked))])
    sql = f"SELECT {shown} FROM t"
    if where:
        sql += f" WHERE {' AND '.join(where)}"
    if by:
        listed = ", ".join(by)
        sql += f" GROUP BY ROLLUP ({listed})" if rollup else f" GROUP BY {listed}"
    return sql


def conversation(chance):
    """A question, and others that might be read off its answer: fewer or other groups and terms,
    more conditions, another order."""
    columns = chance.sample(("ward", "k", "flag"), chance.randint(1, 3))
    asked = chance.sample(EXACT, chance.randint(1, 2))
    where = chance.sample(CONDITIONS, chance.choice((0, 0, 1)))
    found = [sql_of(columns, asked, where, rollup=chance.random() < 0.15)]
    for _ in range(4):
        by = chance.sample(columns, chance.randint(0, len(columns)))
        others = chance.sample(asked, chance.randint(1, len(asked)))
        more = chance.sample(CONDITIONS, chance.choice((0, 0, 0, 1, 2)))
        gone = [name for name in columns if name not in by and chance.random() < 0.6]
        more += [chance.choice(KEYED[name]) for name in gone]
        rollup = bool(by) and chance.random() < 0.15
        found.append(sql_of(by, others, list(dict.fromkeys([*where, *more])), rollup=rollup))
    return found


@pytest.mark.parametrize("unit", [None, "pid"])
def test_an_answer_after_others_is_the_direct_answer(unit):
    chance, reused = Random(6), Counter()
    for _ in range(TALKS):
        gate = gate_of(unit)
        for sql in conversation(chance):
            epsilon = chance.choice(EPSILONS[unit])
            plan, spent = gate.plan(sql, epsilon=epsilon), gate.spent.epsilon
            answer = gate.sql(sql, epsilon=epsilon)
            assert gate.spent.epsilon - spent == plan.price.epsilon <= epsilon
            reused.update(words.split()[0] for words in plan.expected.reused)
            direct = DIRECT[unit].sql(sql, epsilon=EPSILONS[unit][0], fresh=True)
            assert_same(answer, direct, unit)
    assert reused["asked"] >= 2  # else the conversations would show nothing
    assert reused["added"] >= 2
    assert unit is not None or reused["picked"] >= 2


def assert_same(answer, direct, unit):
    """Same columns, keys and numbers."""
    assert answer.columns == direct.columns
    keys = sum(not name.startswith("a") for name in answer.columns)
    assert [row[:keys] for row in answer.rows] == [row[:keys] for row in direct.rows]
    for row, other in zip(answer.rows, direct.rows, strict=True):
        assert row[keys:] == pytest.approx(other[keys:], abs=1e-6 if unit is None else 0.25)


# parts that questions share

PARTS = ("COUNT(*)", "COUNT(v)", "SUM(v)", "AVG(v)", "COUNT(ward)", "COUNT(k)", "AVG(v + 1)", "COUNT_IF(flag)",
         "VAR_POP(v)")  # fmt: skip
REPORTED = (
    "SELECT COUNT(*), COUNT(v), AVG(v) FROM t",
    "SELECT COUNT(ward), COUNT(*) FROM t",
    "SELECT AVG(v) FROM t",
)


def some_parts(chance):
    """A question made of a few parts, about one or two sets of groups."""
    asked = chance.sample(PARTS, chance.randint(1, 4))
    by = chance.choice(((), (), ("ward",), ("k",)))
    sql = sql_of(by, asked, chance.choice(((), (), ("flag",))))
    if chance.random() < 0.2:
        other = sql_of((), chance.sample(PARTS, 2), ())
        sql = f"SELECT a.a0, b.a1 FROM ({sql_of((), asked, ())}) AS a, ({other}) AS b"
    return sql


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("unit", [None, "pid"])
def test_questions_of_shared_parts_are_each_found_or_paid(unit, accountant):
    """A draw that adds to a part of a release is not the one that adds to another part of it."""
    for seed in range(2):
        chance, gates = Random(seed), two_analysts(unit, accountant)
        listed = REPORTED if seed == 0 else [some_parts(chance) for _ in range(10)]
        for sql in listed:
            gate = chance.choice(gates) if seed else gates[0]
            terms = {"epsilon": chance.choice(("0.1", "0.1", "0.3", "1")) if seed else 1}
            plan, spent = gate.plan(sql, **terms), gate.spent.epsilon
            gate.sql(sql, **terms)
            if accountant == "pure":
                assert (
                    gate.spent.epsilon - spent == plan.price.epsilon <= Fraction(terms["epsilon"])
                )
            assert gate.plan(sql, **terms).price.epsilon == 0  # from here on it is found
            paid = gate.spent
            assert gate.sql(sql, **terms).cost.epsilon == 0
            assert gate.spent == paid
