"""Counts and sums: what a single number, or a few of them, say of one person."""

from fractions import Fraction
from math import exp, log
from statistics import fmean

import numpy as np
import pyarrow as pa

from noisegate.errors import OverBudget
from noisegate.lab.attacks.outcome import Outcome, Trial
from noisegate.lab.attacks.run import Setting, listed, number, worlds
from noisegate.root import open as open_gate

_PEOPLE, _TARGET = 400, 17
_LEAST = 5  # a group of fewer is not counted
_ALL = "SELECT COUNT(*) AS n FROM infected"
_BUT_ONE = f"{_ALL} WHERE place <> {_TARGET}"


def differencing(setting: Setting) -> Outcome:
    """Is person 17 on the list? Everybody, and everybody but her: the difference says so."""
    gates = listed(_PEOPLE, _TARGET)

    def exact(held: int) -> bool:
        everybody, but_one = _PEOPLE - 1 + held, _PEOPLE - 1
        return everybody - but_one == 1

    def suppressed(held: int) -> bool:
        """Both groups are far above the threshold: nothing is hidden."""
        counts = [_PEOPLE - 1 + held, _PEOPLE - 1]
        return min(counts) >= _LEAST and counts[0] - counts[1] == 1

    def noisy(held: int) -> bool:
        half = setting.epsilon / 2
        return number(gates[held], _ALL, half) - number(gates[held], _BUT_ONE, half) > 1 / 2

    return setting.of_a_bit(
        title="Everybody, and everybody but her",
        story="Two counts of hundreds of people are harmless one by one. They differ in one "
        "person, so their difference is that person's secret. The gate charges both counts to "
        "the same budget and the noise of each hides one person.",
        measure="right guesses whether the target is on the list",
        raw=Trial("exact counts", setting.played(exact)),
        classic=Trial(f"groups below {_LEAST} suppressed", setting.played(suppressed)),
        gate=setting.played(noisy),
    )


_ASKED = 600
_WORDS = (
    "SELECT COUNT(*) AS n FROM infected",
    "select count( * ) as n from INFECTED",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM infected)",
    "SELECT COUNT(*) AS m FROM infected ORDER BY m LIMIT 1",
)


def averaging(setting: Setting) -> Outcome:
    """Is the count 400 or 399? Ask until the noise is gone: independent noise averages out."""

    def exact(held: int) -> bool:
        return _PEOPLE - 1 + held == _PEOPLE

    def anew(held: int) -> bool:
        """Textbook noise for ε, drawn anew for every question, and nobody keeps count."""
        noise = setting.coins.laplace(0, 1 / setting.epsilon, _ASKED)
        return float((_PEOPLE - 1 + held + noise).mean()) > _PEOPLE - 1 / 2

    def kept(held: int) -> bool:
        return _mean_answer(_PEOPLE - 1 + held, setting) > _PEOPLE - 1 / 2

    return setting.of_a_bit(
        title="The same question again",
        story="Each answer alone is private, but the mean of hundreds of independent answers is "
        "exact. The gate answers a question once: the same words, other words for the same "
        "question, and every later analyst get the same draw; a new draw has its price, and the "
        "budget ends.",
        measure="right guesses whether the target is on the list",
        raw=Trial("exact counts", setting.played(exact)),
        classic=Trial(f"new noise for each of {_ASKED} questions", setting.played(anew)),
        gate=setting.played(kept),
    )


def _mean_answer(people: int, setting: Setting) -> float:
    """The mean of all answers that one budget buys: many wordings, then new draws."""
    rows = pa.table({"place": range(people)})
    facts = {"place": {"type": "integer", "between": [0, _PEOPLE]}}
    gate = open_gate(rows, table="infected", epsilon=Fraction(setting.epsilon), columns=facts)
    half = Fraction(setting.epsilon) / 2
    answers = [gate.sql(sql, epsilon=half) for sql in _WORDS]
    answers.append(gate.sql(_WORDS[0], epsilon=half, fresh=True))
    try:
        answers.append(gate.sql(_WORDS[0], epsilon=half, fresh=True))
    except OverBudget:
        drawn = {answer.table.column(0)[0].as_py() for answer in answers}
        return float(fmean(drawn))
    raise AssertionError("The budget did not end.")


_INCOMES, _USUAL, _RICH, _BOUND = 400, 100, 1_000_000, 1_000


def width(setting: Setting) -> Outcome:
    """Is the millionaire in the table? Noise fitted to the rows leaks through its own width."""
    incomes = np.append(setting.coins.integers(1, _USUAL, _INCOMES - 1), _RICH)
    others = int(incomes[:-1].sum())
    rows = pa.table({"income": incomes})
    facts = {"income": {"type": "integer", "between": [0, _BOUND]}}
    gates = worlds("incomes", rows, _INCOMES - 1, facts)

    def fitted(held: int) -> bool:
        """Laplace noise of the largest value that there is: the local sensitivity of the sum."""
        table = incomes if held else incomes[:-1]
        scale = float(table.max()) / setting.epsilon
        return _far(float(table.sum() + setting.coins.laplace(0, scale)), others)

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
        raw=Trial("exact sums", setting.played(lambda held: _far(others + held * _RICH, others))),
        classic=Trial("noise for the largest income in the table", setting.played(fitted)),
        gate=setting.played(noisy),
    )


def _far(total: float, others: int) -> bool:
    """Farther from what the others have than the noise without the millionaire would reach."""
    return abs(total - others) > 50 * _USUAL


_FINE = 1 << 53  # how many values a random double in (0, 1] has
_NEAR = 3  # of the likeliest values that are tried


def floats(setting: Setting) -> Outcome:
    """Is there a person with the rare illness, or nobody? The last bits of the answer say so.

    Laplace noise in doubles has holes: some answers can come from one table alone [Mir12].
    """
    scale = 1 / setting.epsilon
    rows = pa.table({"ill": [1]})
    gates = worlds("rare", rows, 0, {"ill": {"type": "integer", "between": [0, 1]}})

    def textbook(held: int) -> bool:
        whole = int(setting.coins.integers(1, _FINE, endpoint=True))
        sign = 1 if setting.coins.integers(2) else -1
        return _near(float(held) + sign * _noise(whole, scale), scale)

    def noisy(held: int) -> bool:
        return _near(number(gates[held], "SELECT COUNT(*) AS n FROM rare", setting.epsilon), scale)

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


def _near(answer: float, scale: float) -> bool:
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
