"""Dinur and Nissim: many counts or means, each a little wrong, give nearly every secret bit away.

The rows of a table `infected` are secret; who might be in it, people 0 to n - 1, is public. Each
question counts a random half of them. Least squares or a linear program finds the bits that fit
all answers best [DN03]; [DMT07] for the program.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.outcome import Outcome, Trial
from noisegate.lab.attacks.run import ROOM, Facts, Setting, number
from noisegate.root import open as open_gate

_PEOPLE = 40
_QUESTIONS = 3 * _PEOPLE
_GRID = 4  # counts are rounded to multiples of it: less than the square root of n
Bits = NDArray[np.int64]
Solve = Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]


def least_squares(setting: Setting) -> Outcome:
    """By one line of linear algebra."""
    return _outcome(setting, "least squares", _nearest)


def linear_program(setting: Setting) -> Outcome:
    """By the bits whose answers err least in all, which also stands a few wild answers."""
    return _outcome(setting, "a linear program", _least_wrong)


def _outcome(setting: Setting, method: str, solve: Solve) -> Outcome:
    secret: Bits = setting.coins.integers(0, 2, _PEOPLE)
    groups: Bits = setting.coins.integers(0, 2, (_QUESTIONS, _PEOPLE))
    exact = (groups @ secret).astype(np.float64)

    def right(answers: NDArray[np.float64]) -> float:
        return float(((solve(groups, answers) > 1 / 2) == secret).mean())

    return Outcome(
        name=setting.name,
        title=f"Reconstruction by {method}",
        story=f"{_QUESTIONS} counts of random halves of {_PEOPLE} people. Even when every count is "
        f"rounded to a multiple of {_GRID}, {method} finds nearly all secret bits: answers "
        "to many questions with errors below the square root of n leave nothing private. The "
        "gate shares one ε among all questions, so the noise grows with their number.",
        measure="share of secret bits found",
        epsilon=setting.epsilon,
        chance=max(float(secret.mean()), 1 - float(secret.mean())),
        bound=setting.within(),
        raw=Trial("exact counts", right(exact)),
        classic=Trial(f"rounded to multiples of {_GRID}", right(np.round(exact / _GRID) * _GRID)),
        gate=Trial(setting.gate_name, right(_noisy(secret, groups, setting))),
    )


def _noisy(secret: Bits, groups: Bits, setting: Setting) -> NDArray[np.float64]:
    """The answers of a gate whose whole budget is spent on these questions, in equal shares."""
    gate = open_gate(
        pa.table({"place": np.flatnonzero(secret)}),
        table="infected",
        epsilon=ROOM,
        columns={"place": {"type": "integer", "between": [0, _PEOPLE - 1]}},
    )
    each = setting.epsilon / _QUESTIONS
    return np.array([number(gate, _question(group), each) for group in groups])


def _question(group: Bits) -> str:
    people = ", ".join(str(person) for person in np.flatnonzero(group))
    return f"SELECT COUNT(*) AS n FROM infected WHERE place IN ({people})"  # noqa: S608


def _nearest(groups: Bits, answers: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.linalg.lstsq(groups.astype(np.float64), answers, rcond=None)[0]
    return found.astype(np.float64)


def _least_wrong(groups: Bits, answers: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to load

    questions, people = groups.shape
    eye = np.eye(questions)
    cost = np.r_[np.zeros(people), np.ones(questions)]
    above, below = np.hstack([groups, -eye]), np.hstack([-groups, -eye])
    limits = [(0, 1)] * people + [(0, None)] * questions
    found = linprog(cost, np.vstack([above, below]), np.r_[answers, -answers], bounds=limits)
    bits: NDArray[np.float64] = found.x[:people]
    return bits


_GROUP, _TRAITS = 40, 800


def tracing(setting: Setting) -> Outcome:
    """Is the target among those whose shares of traits were published?

    Many means betray who is among them, though each is of many people [HSR+08], [DSS+15].
    """
    chance = setting.coins
    usual = chance.uniform(0.2, 0.8, _TRAITS)  # how common each trait is: public
    carried = chance.random((_GROUP, _TRAITS)) < usual
    target = carried[0]
    tables = (carried[1:], carried)
    facts: Facts = {"person": {"type": "integer"}, "trait": {"in": list(range(_TRAITS))}}
    gates = [
        open_gate(
            pa.table(dict(zip(("person", "trait"), np.nonzero(table), strict=True))),
            table="traits", unit="person", rows_per_unit=_TRAITS, epsilon=ROOM, columns=facts,
        )
        for table in tables
    ]  # fmt: skip

    def guess(shares: NDArray[np.float64]) -> bool:
        """Whether the shares lean towards the target more than half of what one person adds."""
        lean = float(((shares - usual) * (target - usual)).sum())
        return lean > float(((target - usual) ** 2).sum()) / _GROUP / 2

    def noisy(held: int) -> bool:
        sql = "SELECT trait, COUNT(*) AS n FROM traits GROUP BY trait ORDER BY trait"
        found = gates[held].sql(sql, epsilon=setting.epsilon, fresh=True).table
        return guess(np.asarray(found["n"].to_pylist(), np.float64) / _GROUP)

    return setting.of_a_bit(
        title="Membership in a table of means",
        story=f"The shares of {_TRAITS} traits among {_GROUP} people. Each share hides everybody, "
        "but all of them lean a little towards every person inside, and the leanings add up. "
        "Rounding to one decimal does not help. The gate's noise for one person grows with the "
        "number of traits that are told.",
        measure="right guesses whether the target is among the people",
        raw=Trial("exact shares", setting.played(lambda held: guess(tables[held].mean(axis=0)))),
        classic=Trial(
            "shares to one decimal",
            setting.played(lambda held: guess(np.round(tables[held].mean(axis=0), 1))),
        ),
        gate=setting.played(noisy),
    )
