"""Many questions: MWEM's error curve, and sessions of 10,000 random counting questions on Adult.

The curve is that of Hardt, Ligett and McSherry (2012, their Adult data and random ranges): with too
few rounds little is learned, with too many each is drowned in noise, and the best number grows with
ε. A session goes through a door with real noise and a ledger in memory.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import log, sqrt
from statistics import mean
from time import process_time

import numpy as np
import pyarrow as pa

import noisegate
from grids import random_ranges
from noisegate.noise.bits import SYSTEM
from noisegate.releases.cells.workload import Workload, boxes_matrix
from noisegate.releases.fit.multiplicative import build
from section import DATA, Effort, Shown, standard_error
from show import Column, Row
from trials import TrialAsk

EPSILONS = (Fraction(1, 100), Fraction(1, 10), Fraction(1))
RANGES = 500
ROUNDS = (1, 3, 9, 27, 81)
QUESTIONS = 10_000
CONFIDENCE = Fraction(95, 100)
COLUMNS = {"age": 10, "edu": None, "marital": None, "sex": None, "race": None, "income": None}
SIZES = {"age": 9, "edu": 16, "marital": 7, "sex": 2, "race": 5, "income": 2}
RANGED = ("age", "edu")
Question = dict[str, list[int]]  # the keys of each column that it names
CURVE: tuple[Column, ...] = (
    ("ε", "epsilon", "g"),
    *((f"T = {times}", f"rounds_{times}", ".3f") for times in ROUNDS),
    ("T by the bound", "bound", "d"),
    ("its error", "own", ".3f"),
    ("±", "own_se", ".2g"),
    ("best T", "best", "d"),
    ("uniform", "uniform", ".3f"),
    ("falls, then rises", "met", "met"),
)
SESSIONS: tuple[Column, ...] = (
    ("account", "account", ""),
    ("ε", "epsilon", "g"),
    ("cells", "cells", ",d"),
    ("asked", "asked", ",d"),
    ("promised", "promised", ",d"),
    ("surprises", "surprises", ",d"),
    ("of", "paid", ",d"),
    ("stated ±", "stated", ",.0f"),
    ("max |error|", "largest", ",.0f"),
    ("mean", "mean", ",.1f"),
    ("noise on each ±", "plain", ",.0f"),
    ("proven to the end ±", "sure", ",.0f"),
    ("CPU s", "cpu_s", ".1f"),
    ("met", "met", "met"),
)


def many(effort: Effort) -> Iterator[Shown]:
    """The curve, then sessions."""
    yield Shown(
        "MWEM on Adult's capital loss, 4096 cells, 500 random ranges: RMS error, % of the rows",
        CURVE,
        curve(effort),
    )
    yield Shown(f"{QUESTIONS:,} random counting questions on Adult", SESSIONS, sessions(effort))


def curve(effort: Effort) -> list[Row]:
    """Error by rounds, for each ε."""
    table = np.load(DATA / "dpbench-1d" / "dpbench_1d_4096.npz")["ADULT"]
    asked = random_ranges(table.size, RANGES)
    flat = np.full(table.size, table.sum() / table.size)
    rows = []
    for epsilon in EPSILONS:
        row = curve_row(table, asked, epsilon, effort.trials)
        rows.append({"epsilon": float(epsilon), "uniform": error(flat, table, asked), **row})
        effort.say(f"MWEM ε = {float(epsilon):g}: best T = {row['best']}")
    return rows


def curve_row(table: np.ndarray, asked: Workload, epsilon: Fraction, trials: int) -> Row:
    """All rounds at one ε; the curve falls, then rises, if its best is not at an end."""
    block = boxes_matrix(asked)

    def tried(rounds: int | None) -> tuple[list[float], str]:
        made = [
            build(TrialAsk(table, epsilon, bits=SYSTEM), block, rounds=rounds)
            for _ in range(trials)
        ]
        return [error(each.cells, table, asked) for each in made], made[0].words[0]

    found = {times: mean(tried(times)[0]) for times in ROUNDS}
    own, words = tried(None)
    best = min(found, key=lambda times: found[times])
    return {
        **{f"rounds_{times}": value for times, value in found.items()},
        "bound": int(words.split()[0]),
        "own": mean(own),
        "own_se": standard_error(own),
        "best": best,
        "trials": trials,
        "met": found[best] < found[ROUNDS[0]] and found[best] < found[ROUNDS[-1]],
    }


def error(cells: np.ndarray, table: np.ndarray, asked: Workload) -> float:
    """Root mean square over the questions, in percent of the rows."""
    off = asked.answers(cells) - asked.answers(table)
    return float(100 * np.sqrt(np.mean(off**2)) / table.sum())


def sessions(effort: Effort) -> list[Row]:
    """Sessions in an account that adds up ρ, and in one that adds up ε."""
    rows = adult()
    asked = random_questions(QUESTIONS // 10 if effort.quick else QUESTIONS)
    found = []
    for account, epsilon in (("zcdp", "5.4"), ("zcdp", "0.45"), ("pure", "1")):  # ρ = 0.5, 0.005
        found.append(session(rows, asked, account, Fraction(epsilon)))
        effort.say(f"{account} ε = {epsilon}: {found[-1]['largest']:.0f}")
    return found


def session(rows: pa.Table, asked: list[Question], account: str, epsilon: Fraction) -> Row:
    """One session: all answers beside the exact counts."""
    facts = {"age": {"between": [0, 89], "nullable": False}} | {
        name: {"in": list(range(int(rows[name].to_numpy().max()) + 1))}
        for name in COLUMNS
        if name != "age"
    }
    delta = 0 if account == "pure" else "1e-6"
    gate = noisegate.open(
        rows, epsilon=100, delta=delta, accountant=account, table="adult", columns=facts
    )
    terms = {"epsilon": epsilon, "questions": len(asked), "confidence": CONFIDENCE}
    plan = gate.many_plan(COLUMNS, rows=rows.num_rows, **terms)
    started = process_time()
    with gate.many(COLUMNS, **terms) as opened:
        answers = opened.answers([sql_of(each) for each in asked])
        balance = opened.balance
        spent = process_time() - started
    exact = counts(rows, asked)
    off = np.abs(np.array([each.value for each in answers]) - exact)
    kept = np.array([each.margin is not None for each in answers])
    return {
        "account": account,
        "epsilon": float(epsilon),
        "cells": plan.expected.cells,
        "asked": len(asked),
        "promised": int(kept.sum()),
        "surprises": balance.surprises,
        "paid": plan.expected.surprises,
        "stated": plan.expected.within,
        "largest": float(off.max()),
        "mean": float(off.mean()),
        "plain": plain_margin(account, epsilon, len(asked)),
        "sure": plan.expected.sure_within,
        "cpu_s": spent,
        "met": bool(off[kept].max() <= max(plan.expected.within, plan.expected.number_within)),
    }


def plain_margin(account: str, epsilon: Fraction, count: int) -> float:
    """The ± of all questions together, if each got noise of its own for a share of the price."""
    failure = float(1 - CONFIDENCE) / count
    if account == "pure":
        return count / float(epsilon) * log(1 / failure)
    return sqrt(count / float(epsilon) ** 2) * sqrt(2 * log(1 / failure))


def adult() -> pa.Table:
    """Six columns of Adult."""
    stored = np.load(DATA / "tabular" / "adult.npz")
    names = {
        "age": "age", "edu": "education-num", "marital": "marital-status", "sex": "sex",
        "race": "race", "income": "income>50K",
    }  # fmt: skip
    return pa.table({name: stored[column] for name, column in names.items()})


def random_questions(count: int, seed: int = 5) -> list[Question]:
    """Conditions on one to four columns: ranges of ages and schooling, sets of the others."""
    dice = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        asked: Question = {}
        for name in dice.choice(list(SIZES), dice.integers(1, 5), replace=False).tolist():
            size = SIZES[name]
            if name in RANGED:
                low, high = sorted(dice.integers(0, size, 2).tolist())
                asked[name] = list(range(low, high + 1))
            else:
                most = dice.integers(1, max(1, size // 2) + 1)
                asked[name] = sorted(dice.choice(size, most, replace=False).tolist())
        found.append(asked)
    return found


def sql_of(asked: Question) -> str:
    """A question as people ask it."""
    parts = []
    for name, keys in asked.items():
        if name == "age":
            parts.append(f"age BETWEEN {10 * keys[0]} AND {10 * keys[-1] + 9}")
        elif name in RANGED:
            parts.append(f"{name} BETWEEN {keys[0]} AND {keys[-1]}")
        else:
            parts.append(f"{name} IN ({', '.join(map(str, keys))})")
    return f"SELECT COUNT(*) FROM adult WHERE {' AND '.join(parts)}"


def counts(rows: pa.Table, asked: list[Question]) -> np.ndarray:
    """The exact counts."""
    columns = [rows[name].to_numpy() // (10 if name == "age" else 1) for name in SIZES]
    table = np.zeros(tuple(SIZES.values()), np.int64)
    np.add.at(table, tuple(columns), 1)
    places = [[each.get(name, range(size)) for name, size in SIZES.items()] for each in asked]
    return np.array([table[np.ix_(*each)].sum() for each in places])
