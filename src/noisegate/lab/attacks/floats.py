"""Laplace noise in doubles has holes: some answers can come from one table alone [Mir12]."""

from math import exp, log

import pyarrow as pa

from noisegate.lab.attacks.base import Outcome, Setting, Trial, number, worlds

_FINE = 1 << 53  # how many values a random double in (0, 1] has
_NEAR = 3  # of the likeliest values that are tried


def run(setting: Setting) -> Outcome:
    """Is there a person with the rare illness, or nobody? The last bits of the answer say so."""
    scale = 1 / setting.epsilon
    rows = pa.table({"ill": [1]})
    gates = worlds("rare", rows, 0, {"ill": {"type": "integer", "between": [0, 1]}})

    def textbook(held: int) -> bool:
        whole = int(setting.coins.integers(1, _FINE, endpoint=True))
        sign = 1 if setting.coins.integers(2) else -1
        return _guess(float(held) + sign * _noise(whole, scale), scale)

    def noisy(held: int) -> bool:
        return _guess(number(gates[held], "SELECT COUNT(*) AS n FROM rare", setting.epsilon), scale)

    return setting.of_a_bit(
        title="The last bits of a double",
        story="Laplace noise by the textbook is a logarithm in floating point. Near 0 doubles are "
        "finer than near 1, and the logarithm of a random double skips most of them: many answers "
        "can come from a count of 0 or of 1 alone, whatever ε says. Better coins change nothing. "
        "The gate draws whole numbers, exactly by their law.",
        measure="right guesses between a count of 0 and of 1",
        raw=Trial("exact counts", setting.played(lambda held: held == 1)),
        classic=Trial("textbook Laplace noise in doubles", setting.played(textbook, often=50)),
        gate=setting.played(noisy),
    )


def _noise(whole: int, scale: float) -> float:
    return -scale * log(whole / _FINE)


def _guess(answer: float, scale: float) -> bool:
    """The count that the answer can come from; of two, the nearer one."""
    possible = [_possible(answer, count, scale) for count in (0.0, 1.0)]
    return possible[1] if possible[0] != possible[1] else answer > 1 / 2


def _possible(answer: float, count: float, scale: float) -> bool:
    """Whether some random double gives this answer to this count."""
    away = abs(answer - count)
    likely = round(exp(-away / scale) * _FINE)
    sign = 1 if answer >= count else -1
    tried = range(max(likely - _NEAR, 1), min(likely + _NEAR, _FINE) + 1)
    return any(count + sign * _noise(whole, scale) == answer for whole in tried)
