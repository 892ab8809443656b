"""Noise fitted to the rows leaks through its own width."""

import numpy as np
import pyarrow as pa

from noisegate.lab.attacks.base import Outcome, Setting, Trial, number, worlds

_PEOPLE, _USUAL, _RICH, _BOUND = 400, 100, 1_000_000, 1_000


def run(setting: Setting) -> Outcome:
    """Is the millionaire in the table?"""
    incomes = np.append(setting.coins.integers(1, _USUAL, _PEOPLE - 1), _RICH)
    others = int(incomes[:-1].sum())
    rows = pa.table({"income": incomes})
    facts = {"income": {"type": "integer", "between": [0, _BOUND]}}
    gates = worlds("incomes", rows, _PEOPLE - 1, facts)

    def fitted(held: int) -> bool:
        """Laplace noise of the largest value that there is: the local sensitivity of the sum."""
        table = incomes if held else incomes[:-1]
        scale = float(table.max()) / setting.epsilon
        return _guess(float(table.sum() + setting.coins.laplace(0, scale)), others)

    def noisy(held: int) -> bool:
        sql = "SELECT SUM(income) AS total FROM incomes"
        return number(gates[held], sql, setting.epsilon) > others + _BOUND / 2

    return setting.of_a_bit(
        title="Noise that fits the rows",
        story="Why add noise for a millionaire where there is none? So the scale was set to the "
        "largest income in the table. Then an answer that is far off says that there is a "
        "millionaire, and one that is close that there is none. The gate's noise depends on "
        "declared bounds, or on smooth bounds that one person hardly moves.",
        measure="right guesses whether the millionaire is in the table",
        raw=Trial("exact sums", setting.played(lambda held: _guess(others + held * _RICH, others))),
        classic=Trial("noise for the largest income in the table", setting.played(fitted)),
        gate=setting.played(noisy),
    )


def _guess(total: float, others: int) -> bool:
    """Farther from what the others have than the noise without the millionaire would reach."""
    return abs(total - others) > 50 * _USUAL
