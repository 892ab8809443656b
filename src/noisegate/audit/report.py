"""All audits in one table: for terminals, for JSON, and for the page that documents them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, final

from noisegate.audit.audit import FALSE_ALARMS, Audit, Result
from noisegate.audit.confidence import split_alpha
from noisegate.audit.runs import Extent, Progress

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
