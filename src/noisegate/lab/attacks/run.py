"""The classic attacks: what one is, how well it went, what ε allows it; and all of them by name.

Every attack is played on made-up people. Where it guesses one secret bit, the bit is fair: half of
the trials are played in a world with the target's row and half in the world without it. Then

Claim: no attack on ε-private answers is right with probability above e^ε / (1 + e^ε).
Adjacency: add/remove one unit: the two worlds are neighbours.
Why: the guess is post-processing, so P(guess in | in) ≤ e^ε P(guess in | out) and
    P(guess out | out) ≤ e^ε P(guess out | in). With a = P(guess in | in) and b = P(guess out | out)
    that is a ≤ e^ε (1 - b) and b ≤ e^ε (1 - a); adding both, (a + b) / 2 ≤ e^ε / (1 + e^ε)
    [KOV15, Thm 2.1].
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from math import exp
from typing import Any, Final, Self, TypeAlias, final

import pyarrow as pa

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.gate import Gate
from noisegate.lab.attacks.outcome import Outcome, Trial
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.root import open as open_gate

Facts: TypeAlias = dict[str, dict[str, Any]]
ROOM: Final = 1_000_000  # a budget that no experiment exhausts: every trial pays its own ε


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How an attack is tried: the gate's ε in each trial, how many trials, whose coins."""

    name: str
    epsilon: float
    times: int
    coins: Coins

    @classmethod
    def of(cls, name: str, *, epsilon: float, times: int) -> Self:
        """Made-up people follow from the attack's name; noise is always real."""
        coins = public_coins(f"attack: {name}")
        return cls(name=name, epsilon=epsilon, times=times, coins=coins)

    @property
    def gate_name(self) -> str:
        """What the third trial attacks."""
        return f"noisegate, ε = {self.epsilon:g}"

    def played(self, play: Callable[[int], bool], *, often: int = 1, less: int = 1) -> float:
        """How often a guess of a fair bit was right: 0 without the target's row, 1 with it.

        Quick games are played more often, slow ones less.
        """
        times = max(self.times * often // less, 2)
        return sum(play(n % 2) == n % 2 for n in range(times)) / times

    def within(self, factor: float = 1, others: int = 1) -> float:
        """The most that ε allows a guess: one truth and so many others, all as likely before."""
        odds = exp(min(factor * self.epsilon, 700.0))
        return odds / (odds + others)

    def of_a_bit(  # noqa: PLR0913 - what an outcome says
        self,
        title: str,
        story: str,
        measure: str,
        *,
        raw: Trial,
        classic: Trial,
        gate: float,
        factor: float = 1,
        behind: str = "",
    ) -> Outcome:
        """The outcome where one fair bit was guessed; ``gate`` is how often behind one."""
        return Outcome(
            name=self.name, title=title, story=story, measure=measure, epsilon=self.epsilon,
            chance=0.5, bound=self.within(factor), raw=raw, classic=classic,
            gate=Trial(f"{self.gate_name}{behind}", gate),
        )  # fmt: skip


def worlds(name: str, rows: pa.Table, target: int, columns: Facts) -> tuple[Gate, Gate]:
    """Gates in front of two neighbouring tables: without the row at this place, and with it."""
    without = pa.concat_tables([rows.slice(0, target), rows.slice(target + 1)])
    first, second = (
        open_gate(table, table=name, epsilon=ROOM, columns=columns) for table in (without, rows)
    )
    return first, second


def listed(people: int, target: int) -> tuple[Gate, Gate]:
    """Worlds of a list of the infected, by their numbers: without the target, and with it."""
    facts = {"place": {"type": "integer", "between": [0, people - 1]}}
    return worlds("infected", pa.table({"place": range(people)}), target, facts)


def number(gate: Gate, sql: str, epsilon: float) -> float:
    """A new draw of an answer that is one number."""
    return float(gate.sql(sql, epsilon=epsilon, fresh=True).table.column(0)[0].as_py())


TIMES: Final = 100
_EPSILON_MAX: Final = 20
_ATTACKS: Final = {  # the module and its function, loaded when tried
    "differencing": "counts.differencing",
    "averaging": "counts.averaging",
    "reconstruction": "reconstruction.least_squares",
    "reconstruction-lp": "reconstruction.linear_program",
    "linkage": "linkage.one_table",
    "two-hospitals": "linkage.two_hospitals",
    "ratings": "linkage.ratings",
    "tracing": "reconstruction.tracing",
    "model": "models.model",
    "green-hair": "models.green_hair",
    "synthetic": "models.synthetic",
    "floats": "counts.floats",
    "width": "counts.width",
    "budget": "channels.budget",
    "timing": "channels.timing",
}
NAMES: Final = tuple(_ATTACKS)


def tried(
    names: Sequence[str] = NAMES,
    *,
    epsilon: Number = 1,
    times: int = TIMES,
    progress: Callable[[float, str], None] | None = None,
) -> list[Outcome]:
    """Try attacks, by default all, on raw answers, on a classic defence and on a real gate.

    Args:
        names: Which attacks, of `NAMES`.
        epsilon: What the gate may spend in each trial.
        times: How many trials; a success rate errs by about half of its root.
        progress: Called with the share that is done and what comes next.

    >>> (found,) = tried(["differencing"], epsilon=1, times=10)
    >>> found.raw.success, found.classic.success, round(found.bound, 3)
    (1.0, 1.0, 0.731)
    """
    for name in names:
        if name not in _ATTACKS:
            raise SpecError(f"There is no attack named {name!r}.", fix=f"Use {', '.join(NAMES)}.")
    if times < 2:
        raise SpecError("Too few trials.", fix="Use at least 2 trials.", about="times")
    price = float(positive(epsilon, name="epsilon"))
    if price > _EPSILON_MAX:
        raise SpecError("ε is too large for an experiment.", fix=f"Use at most {_EPSILON_MAX}.")
    found = []
    for place, name in enumerate(names):
        if progress:
            progress(place / len(names), name)
        module, function = _ATTACKS[name].split(".")
        attack = getattr(import_module(f"noisegate.lab.attacks.{module}"), function)
        found.append(attack(Setting.of(name, epsilon=price, times=times)))
    if progress:
        progress(1, "done")
    return found
