"""What was left of the budget: a price that depends on rows is an answer that nobody paid for."""

from fractions import Fraction

from noisegate.errors import NoisegateError
from noisegate.gate import Gate
from noisegate.lab.attacks.base import Outcome, Setting, Trial, listed

_PEOPLE, _TARGET = 60, 17
_SQL = "SELECT COUNT(*) AS n FROM infected WHERE place = 17"


def run(setting: Setting) -> Outcome:
    """Is person 17 on the list? Look at the balance, not at the answer."""
    gates = listed(_PEOPLE, _TARGET)

    def exact(held: int) -> bool:
        return held == 1

    def by_rows(held: int) -> bool:
        """Noisy answers, charged only where a row was read: nothing was learnt, nothing is paid."""
        charged = setting.epsilon if held else 0.0
        return charged > 0

    def charged(held: int) -> bool:
        return _guess(gates[held], setting.epsilon)

    return setting.of_a_bit(
        title="The balance tells",
        story="A gate that charges for an empty group nothing, or fails where a row cannot be "
        "read, gives the secret away by its balance or its error, whatever noise the answer "
        "has. Here prices, refusals and notes follow from the question and the policy alone, "
        "and the charge is on the ledger before a row is read.",
        measure="right guesses whether the target is on the list",
        raw=Trial("exact counts", setting.played(exact)),
        classic=Trial("noise, charged where a row was read", setting.played(by_rows)),
        gate=setting.played(charged),
    )


def _guess(gate: Gate, epsilon: float) -> bool:
    """From price, balance and words of an answer, and of a question about a broken value."""
    before = gate.spent.epsilon
    answer = gate.sql(_SQL, epsilon=epsilon, fresh=True)
    try:
        gate.plan("SELECT SUM(1 / (place - 17)) AS s FROM infected", epsilon=epsilon)
        failed = False
    except NoisegateError:
        failed = True
    price = gate.spent.epsilon - before
    return price != Fraction(epsilon) or answer.cost.epsilon != price or not failed
