"""Synthetic rows that are disguised rows: an unusual person is seen in them."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.base import Outcome, Setting, Trial, worlds

_PEOPLE, _FAR, _MOST = 150, 95, 65
Rows = NDArray[np.float64]


def run(setting: Setting) -> Outcome:
    """Was the target, older and richer than all others, among the rows behind the made-up ones?"""
    chance = setting.coins
    others = np.clip(chance.normal(40, 8, (_PEOPLE - 1, 2)), 0, _MOST).round()
    rows = np.vstack([others, [_FAR, _FAR]])
    tables = (others, rows)
    facts = {name: {"type": "integer", "between": [0, 99]} for name in ("age", "income")}
    table = pa.table({"age": rows[:, 0].astype(int), "income": rows[:, 1].astype(int)})
    gates = worlds("people", table, _PEOPLE - 1, facts)

    def blurred(held: int) -> bool:
        made = tables[held][chance.integers(0, len(tables[held]), 3 * _PEOPLE)]
        return _guess(made + chance.normal(0, 2, made.shape))

    def between(held: int) -> bool:
        """Rows on the lines between each row and its nearest others (SMOTE)."""
        table = tables[held]
        apart = ((table[:, None] - table[None]) ** 2).sum(axis=2)
        near = apart.argsort(axis=1)[:, 1:4]
        first = np.repeat(np.arange(len(table)), 3)
        second = near[first, chance.integers(0, 3, first.size)]
        return _guess(
            table[first] + chance.random((first.size, 1)) * (table[second] - table[first])
        )

    def private(held: int) -> bool:
        release = gates[held].release(
            "synthetic", table="people", epsilon=setting.epsilon, fresh=True
        )
        made = release.to_arrow()
        return _guess(np.column_stack([made[name].to_numpy() for name in facts]))

    return setting.of_a_bit(
        title="Disguised rows",
        story="Made-up rows that are real rows with a blur, or lie between real rows, fill the "
        "place around an unusual person exactly if that person is there. The gate's synthetic "
        "rows follow from noisy tables; noise also fills places where nobody is.",
        measure="right guesses whether the target was among the rows",
        raw=Trial("rows with a blur", setting.played(blurred)),
        classic=Trial("rows between neighbours (SMOTE)", setting.played(between)),
        gate=setting.played(private, less=4),
    )


def _guess(made: Rows) -> bool:
    """Whether a made-up row lies in the corner where only the target could be."""
    return bool((made > _MOST + 5).all(axis=1).any())
