"""Many means betray who is among them, though each is of many people [HSR+08], [DSS+15]."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.base import ROOM, Facts, Outcome, Setting, Trial
from noisegate.root import open as open_gate

_PEOPLE, _TRAITS = 40, 800


def run(setting: Setting) -> Outcome:
    """Is the target among those whose shares of traits were published?"""
    chance = setting.coins
    usual = chance.uniform(0.2, 0.8, _TRAITS)  # how common each trait is: public
    carried = chance.random((_PEOPLE, _TRAITS)) < usual
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
        return lean > float(((target - usual) ** 2).sum()) / _PEOPLE / 2

    def noisy(held: int) -> bool:
        sql = "SELECT trait, COUNT(*) AS n FROM traits GROUP BY trait ORDER BY trait"
        found = gates[held].sql(sql, epsilon=setting.epsilon, fresh=True).table
        return guess(np.asarray(found["n"].to_pylist(), np.float64) / _PEOPLE)

    return setting.of_a_bit(
        title="Membership in a table of means",
        story=f"The shares of {_TRAITS} traits among {_PEOPLE} people. Each share hides everybody, "
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
