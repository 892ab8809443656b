"""One question asked again and again: independent noise averages out."""

from fractions import Fraction
from statistics import fmean

import pyarrow as pa

from noisegate.errors import OverBudget
from noisegate.lab.attacks.base import Outcome, Setting, Trial
from noisegate.root import open as open_gate

_PEOPLE, _TARGET = 400, 17
_ASKED = 600
_WORDS = (
    "SELECT COUNT(*) AS n FROM infected",
    "select count( * ) as n from INFECTED",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM infected)",
    "SELECT COUNT(*) AS m FROM infected ORDER BY m LIMIT 1",
)


def run(setting: Setting) -> Outcome:
    """Is the count 400 or 399? Ask until the noise is gone."""

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
