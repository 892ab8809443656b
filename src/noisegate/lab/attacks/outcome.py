"""How an attack went: its three trials, and a picture of them."""

from typing import Any, Final, final

from noisegate.frozen import dataclass
from noisegate.inert import html

RAW, CLASSIC, GATE = "raw", "classic", "gate"
_COLOURS: Final = {RAW: "#b2497a", CLASSIC: "#e08214", GATE: "#2a9d6f"}
_LEFT, _WIDE, _BAR, _STEP, _LABEL = 300, 340, 22, 34, 40


@final
@dataclass(frozen=True, slots=True)
class Trial:
    """One attack on one kind of answers: how often the attacker was right."""

    against: str
    success: float


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcome:
    """An attack and its three trials.

    ``chance`` is what guessing gives, ``bound`` the most that the gate's ε allows any attacker.
    """

    name: str
    title: str
    story: str
    measure: str
    epsilon: float
    chance: float
    bound: float
    raw: Trial
    classic: Trial
    gate: Trial

    @property
    def trials(self) -> dict[str, Trial]:
        """The three trials by kind."""
        return {RAW: self.raw, CLASSIC: self.classic, GATE: self.gate}

    @property
    def shares(self) -> tuple[float, ...]:
        """Success of the three trials, chance, and the most that ε allows."""
        return (*(trial.success for trial in self.trials.values()), self.chance, self.bound)

    def __str__(self) -> str:
        tried = "; ".join(f"{each.against} {each.success:.0%}" for each in self.trials.values())
        return f"{self.title}: {tried}; ε allows at most {self.bound:.0%}"

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return picture(self)

    def to_record(self) -> dict[str, Any]:
        """Everything as JSON."""
        trials = {
            kind: {"against": trial.against, "success": trial.success}
            for kind, trial in self.trials.items()
        }
        return {
            "attack": self.name, "title": self.title, "story": self.story,
            "measure": self.measure, "epsilon": self.epsilon, "chance": self.chance,
            "bound": self.bound, "trials": trials,
        }  # fmt: skip


def picture(found: Outcome, *, standalone: bool = True) -> str:
    """An SVG: three bars, a dashed line at chance, a solid one at what ε allows the gate."""
    rows = []
    for place, (kind, trial) in enumerate(found.trials.items()):
        top = 10 + place * _STEP
        wide = round(trial.success * _WIDE, 1)
        end, line = _LEFT + wide, _LEFT + found.bound * _WIDE
        label = line if kind == GATE and end <= line < end + _LABEL else end  # not below the line
        rows.append(
            f'<text x="{_LEFT - 8}" y="{top + 16}" text-anchor="end">{html(trial.against)}</text>'
            f'<rect x="{_LEFT}" y="{top}" width="{wide}" height="{_BAR}" fill="{_COLOURS[kind]}"/>'
            f'<text x="{label + 6:.1f}" y="{top + 16}">{trial.success:.0%}</text>'
        )
    bottom = 10 + 3 * _STEP
    chance, bound = (round(_LEFT + share * _WIDE, 1) for share in (found.chance, found.bound))
    lines = (
        f'<path d="M{chance} 4V{bottom}" stroke="currentColor" stroke-dasharray="4 3"/>'
        f'<path d="M{bound} {bottom - _STEP - 4}V{bottom}" stroke="currentColor"/>'
        f'<text x="{chance}" y="{bottom + 14}" text-anchor="middle">'
        f"chance {found.chance:.0%}</text>"
        f'<text x="{bound}" y="{bottom + 30}" text-anchor="middle">'
        f"at most {found.bound:.0%} for ε = {found.epsilon:g}</text>"
    )
    said = "; ".join(f"{trial.against}: {trial.success:.0%}" for trial in found.trials.values())
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    ink = ' style="background:#fff;color:#1a1a1a"' if standalone else ""
    return (
        f'<svg{space}{ink} viewBox="0 0 {_LEFT + _WIDE + 60} {bottom + 38}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="currentColor" '
        f'aria-label="{html(f"{found.measure}: {said}")}">{"".join(rows)}{lines}</svg>'
    )
