"""What no gate promises: that nothing is learnt about people in general.

>>> stories = run(epsilon=1)
>>> [story.title for story in stories]
['The smoker who stayed at home', 'The average height']
"""

from typing import Any, final

import numpy as np
import pyarrow as pa

from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.releases.cells.chance import public_coins
from noisegate.root import open as open_gate

_PEOPLE = 4000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is learnt about somebody by answers with their row, and by answers without it."""

    title: str
    told: str
    with_row: float
    without_row: float
    unit: str

    def __str__(self) -> str:
        return (
            f"{self.title}. {self.told} With the row: {self.with_row:.3g} {self.unit}; "
            f"without it: {self.without_row:.3g} {self.unit}."
        )


def run(epsilon: Number = 1) -> list[Story]:
    """Two stories, each from a real gate in front of made-up people."""
    chance = public_coins("unpromised")
    smokes = chance.random(_PEOPLE) < 0.3
    ill = chance.random(_PEOPLE) < np.where(smokes, 0.4, 0.1)
    height = np.clip(chance.normal(165, 8, _PEOPLE), 120, 220).round()
    smokes[0], ill[0] = True, False
    rows = pa.table({"smokes": smokes, "ill": ill.astype(int), "height": height.astype(int)})
    facts: dict[str, dict[str, Any]] = {
        "smokes": {"type": "boolean"},
        "ill": {"type": "integer", "between": [0, 1]},
        "height": {"type": "integer", "between": [120, 220]},
    }

    def asked(table: pa.Table, sql: str) -> float:
        gate = open_gate(table, table="people", epsilon=epsilon, columns=facts)
        return float(gate.sql(sql, epsilon=epsilon).table.column(0)[0].as_py())

    def both(sql: str) -> tuple[float, float]:
        return asked(rows, sql), asked(rows.slice(1), sql)

    smoker = both("SELECT AVG(ill) AS share FROM people WHERE smokes")
    tall = both("SELECT AVG(height) AS mean FROM people")
    return [
        Story(
            title="The smoker who stayed at home",
            told="A study finds how often smokers fall ill, and an insurer who knows that Bob "
            "smokes raises his premium. The study did him harm, but his row did not: the same is "
            "found without it.",
            with_row=100 * smoker[0],
            without_row=100 * smoker[1],
            unit="% of smokers are ill",
        ),
        Story(
            title="The average height",
            told="Who knows that Ann is 5 cm taller than the average learns her height from the "
            "average, whether or not she was measured. What somebody knows already can make any "
            "useful answer harmful; the gate promises that taking part adds next to nothing.",
            with_row=tall[0] + 5,
            without_row=tall[1] + 5,
            unit="cm",
        ),
    ]
