"""An audit: a claim, two neighbours and a way to run on each; and what it found.

`audits` are those of all mechanisms: worst-case neighbours, claim, draws, a broken copy, by name.
``noisegate audit --all`` and the tests run the same list. Mechanisms are audited at an ε where few
runs say most: about 2 or 3. A broken copy has a fifth too little noise, or as much less as is said;
its audit against the honest claim must end in a violation, which is the proof of power.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.audit.bounds import Bound, bound
from noisegate.audit.confidence import split_alpha
from noisegate.audit.distinguisher import Score
from noisegate.audit.runs import Draw, Extent, Progress, State, collect
from noisegate.errors import SpecError
from noisegate.frozen import dataclass, field, replace

VIOLATION: Final = "violation"
NO_VIOLATION: Final = "no violation"
WEAK: Final = "too few trials to tell"
FALSE_ALARMS: Final = 1e-6
_OF: Final = ("of_single", "of_structures", "of_recipes", "of_programs")
_WEAK_BELOW: Final = 0.5  # of the claim: a ceiling below it says little
_READING: Final = "No private row was read and nothing was charged: all rows are made up."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is audited, and how. `run` is the whole of it.

    Attributes:
        name: What it is called in tables.
        claims: The claimed ε at each δ: ``{0: 1}``, or several points of a curve.
        draws: For each neighbour, a function from a count to as many independent runs, a run a row
            of numbers (integers, floats; whatever has no number is encoded by the caller).
        neighbours: The two neighbours, in words.
        trials: Runs on each neighbour unless said otherwise.
        broken: The same for a copy with too little noise, to show that the audit would see it.
        broken_words: What is wrong with the copy.
        reachable: The share of the claim that the two neighbours reach with infinitely many runs.
        why: Where that is below 1: the reason, in one line.
        boosted: Also train boosted trees; see `bound`.
        scores: Further scores to choose from, such as an exact log-likelihood ratio.
        event: Or an event that was fixed beforehand, so that all runs count; see `bound`.
        about: The mechanism that it is about, as ledgers tell it from others: see `dp.audit_of`.
    """

    name: str
    claims: Mapping[float, float]
    draws: tuple[Draw, Draw]
    neighbours: str
    trials: int = 100_000
    broken: tuple[Draw, Draw] | None = None
    broken_words: str = ""
    reachable: float = 1.0
    why: str = ""
    boosted: bool = False
    scores: tuple[Score, ...] = ()
    event: Score | None = None
    about: Mapping[str, Any] | None = None

    def run(
        self,
        extent: Extent | None = None,
        *,
        alpha: float = FALSE_ALARMS,
        broken: bool = False,
        progress: Progress | None = None,
    ) -> "Result":
        """Draw, learn, count. ``broken`` audits the broken copy against the honest claim.

        Args:
            extent: How many runs, for how long, over how many processes, resumed from where.
            alpha: How likely an honest mechanism may be called a violation by this run. An audit
                that is resumed looks again: each look takes half of what is left of alpha.
            broken: Whether to audit the broken copy.
            progress: Called now and then with a fraction from 0 to 1 and a text.
        """
        extent = extent or Extent(trials=self.trials)
        begun = time.monotonic()
        draws = self.broken if broken and self.broken is not None else self.draws
        whose = "" if self.about is None else f" {json.dumps(self.about, sort_keys=True)}"
        name = f"{self.name}{whose}{' (broken)' * broken}: {self.neighbours}"
        state = State(extent.resume, name)
        ones, others = collect(draws, extent, state, progress)
        if extent.resume is not None:
            state.looks += 1
            alpha *= 0.5**state.looks
            state.save()
        found = bound(
            ones, others, claims=self.claims, alpha=alpha, boosted=self.boosted,
            scores=self.scores, event=self.event,
        )  # fmt: skip
        return Result(
            name=self.name, bounds=tuple(found), neighbours=self.neighbours, alpha=alpha,
            trials=len(ones), seconds=time.monotonic() - begun,
            reachable=self.reachable, why=self.why, about=None if broken else self.about,
        )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an audit found: at each δ the claimed ε and the bound from below.

    ``about`` is the mechanism that it vouches for, and no other; None: it vouches for none.
    """

    name: str
    bounds: tuple[Bound, ...]
    neighbours: str
    alpha: float
    trials: int
    seconds: float
    reachable: float = 1.0
    why: str = ""
    notes: tuple[str, ...] = field(default=(_READING,))
    about: Mapping[str, Any] | None = None

    @property
    def best(self) -> Bound:
        """The bound that comes nearest to its claim, or exceeds it most."""
        return max(self.bounds, key=lambda each: each.share)

    @property
    def claim(self) -> float:
        """The claimed ε, at the δ of the best bound."""
        return self.best.claim

    @property
    def lower_bound(self) -> float:
        """ε is at least this, but for a share ``alpha`` of all experiments. Never below 0."""
        return max(self.best.epsilon, 0.0)

    @property
    def power(self) -> float:
        """The bound as a share of the claim: 1 is all of it, above 1 is a violation."""
        return self.best.share

    @property
    def is_violation(self) -> bool:
        """Whether any claim is refuted."""
        return any(each.is_violation for each in self.bounds)

    @property
    def verdict(self) -> str:
        """In three words at most five."""
        if self.is_violation:
            return VIOLATION
        return WEAK if self.best.ceiling < _WEAK_BELOW * self.best.claim else NO_VIOLATION

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        best = self.best
        return {
            "name": self.name, "verdict": self.verdict, "claim": best.claim, "delta": best.delta,
            "lower_bound": self.lower_bound, "ceiling": best.ceiling, "power": self.power,
            "false_alarm_rate": self.alpha, "trials": self.trials, "seconds": self.seconds,
            "neighbours": self.neighbours, "reachable": self.reachable, "why": self.why,
            "bounds": [each.to_dict() for each in self.bounds], "notes": list(self.notes),
            **({} if self.about is None else {"about": dict(self.about)}),
        }  # fmt: skip

    def __str__(self) -> str:
        """A few lines for people."""
        best = self.best
        at = f" at δ = {best.delta:.3g}" if best.delta else ""
        lines = [
            f"{self.name}: {self.verdict}",
            f"  claimed      ε ≤ {best.claim:.4g}{at}",
            f"  measured     ε ≥ {self.lower_bound:.4g}{at} ({self.power:.0%} of the claim)",
            f"  could reach  ε ≥ {best.ceiling:.4g} with these trials, by a perfect test",
            f"  neighbours   {self.neighbours}",
            f"  trials       {self.trials:,} on each neighbour, {self.seconds:.1f} s",
            f"  false alarm  {self.alpha:.2g} for all bounds of this audit together",
        ]
        if self.why:
            lines.append(f"  reachable    {self.reachable:.0%} of the claim: {self.why}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


NAMES: Final = (
    "audit", "claimed ε", "δ", "measured ε ≥", "of the claim", "could reach", "tight",
    "broken copy", "caught", "runs", "s",
)  # fmt: skip
SHORT: Final = ("audit", "claimed ε", "measured ε ≥", "could reach", "broken copy caught")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What was found of one mechanism, and whether its broken copy was seen."""

    audit: Audit
    result: Result
    broken: Result | None

    @property
    def is_caught(self) -> bool | None:
        """Whether the broken copy is a violation of the honest claim; None without one."""
        return None if self.broken is None else self.broken.is_violation

    def cells(self) -> tuple[str, ...]:
        """As text, one for each of `NAMES`."""
        best, seconds = self.result.best, self.result.seconds
        seconds += 0 if self.broken is None else self.broken.seconds
        caught = {None: "-", True: "yes", False: "no"}[self.is_caught]
        if self.broken is not None:
            caught += f", ε ≥ {self.broken.lower_bound:.2f}"
        return (
            self.audit.name, f"{best.claim:.3g}", f"{best.delta:.2g}" if best.delta else "0",
            f"{self.result.lower_bound:.3f}", f"{self.result.power:.0%}", f"{best.ceiling:.2f}",
            f"{self.audit.reachable:.0%}", self.audit.broken_words, caught,
            f"{self.result.trials:,}", f"{seconds:.0f}",
        )  # fmt: skip

    def short(self) -> tuple[str, ...]:
        """The same for a terminal, one for each of `SHORT`."""
        name, claim, delta, bound, share, reach, _, _, caught, *_ = self.cells()
        at = claim if delta == "0" else f"{claim} (δ {delta})"
        return name, at, f"{bound} ({share})", reach, caught

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        broken = None if self.broken is None else self.broken.to_dict()
        return self.result.to_dict() | {
            "broken_copy": self.audit.broken_words, "broken_caught": self.is_caught,
            "broken": broken,
        }  # fmt: skip


def lines(
    audits: Iterable[Callable[[], Audit]],
    extent: Extent,
    *,
    alpha: float = FALSE_ALARMS,
    progress: Progress | None = None,
) -> Iterator[Line]:
    """Run audits and their broken copies, one after the other; alpha is for all of them."""
    made = list(audits)
    share = split_alpha(alpha, max(len(made), 1))
    for place, make in enumerate(made):
        audit = make()
        own = replace(extent, trials=extent.trials or audit.trials)
        if progress is not None:
            progress(place / len(made), audit.name)
        honest = audit.run(own, alpha=share)
        broken = None if audit.broken is None else audit.run(own, alpha=share, broken=True)
        yield Line(audit=audit, result=honest, broken=broken)


def markdown(found: Iterable[Line]) -> str:
    """The table as Markdown, and why some claims cannot be reached."""
    kept = list(found)
    rows = [NAMES, ("---",) * len(NAMES), *(line.cells() for line in kept)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    reasons = [f"- {line.audit.name}: {line.audit.why}." for line in kept if line.audit.why]
    pairs = [f"- {line.audit.name}: {line.audit.neighbours}." for line in kept]
    parts = [
        table,
        "Where less than all of the claim can be reached:",
        "\n".join(reasons),
        "Neighbours:",
        "\n".join(pairs),
    ]
    return "\n\n".join(parts) + "\n"


def audits() -> Mapping[str, Callable[[], Audit]]:
    """How to make each audit, by name, in the order of the tables."""
    found: dict[str, Callable[[], Audit]] = {}
    for each in _OF:
        found |= import_module(f"noisegate.audit.{each}").AUDITS
    return MappingProxyType(found)


def audit_named(name: str) -> Audit:
    """One audit of the list."""
    known = audits()
    if name not in known:
        raise SpecError(
            f"There is no audit {name!r}.", fix="See the names with: noisegate audit --list."
        )
    return known[name]()
