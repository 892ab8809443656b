"""Lab: a gallery of attacks that succeed on raw answers and fail at a gate.

The attacks are classic ones on made-up people. They run in a child process that knows nothing of
the service, once for each ε that is offered, and one at a time: whoever asks next sees what was
found.
"""

import json
from threading import Lock, Thread
from typing import Any, Final, final

from starlette.responses import Response

from noisegate.errors import NoisegateError, SpecError
from noisegate.frozen import dataclass, field
from noisegate.server.console.visits import Visit
from noisegate.server.pictures import child

EPSILONS: Final = ("0.1", "1", "5")
TIMES: Final = 40  # trials of each attack
_SECONDS: Final = 900
_KINDS: Final = (("raw", "Raw answers"), ("classic", "A classic defence"), ("gate", "The gate"))


@final
@dataclass(eq=False, kw_only=True)
class Lab:
    """What was tried, by ε; what is being tried; what went wrong; ``names``: these alone."""

    names: tuple[str, ...] = ()
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    trying: str | None = None
    failed: bool = False
    _lock: Lock = field(default_factory=Lock)

    def start(self, epsilon: str) -> None:
        """Try all attacks in the background, unless that was done or something is being tried."""
        with self._lock:
            if epsilon in self.found or self.trying is not None:
                return
            self.trying, self.failed = epsilon, False
        Thread(target=self._try, args=(epsilon,), daemon=True).start()

    def _try(self, epsilon: str) -> None:
        terms = ["--epsilon", epsilon, "--times", str(TIMES), "--json"]
        said = ["-m", "noisegate", "lab", "attacks", *self.names, *terms]
        try:
            records = json.loads(child(said, seconds=_SECONDS))
            self.found[epsilon] = [_shown(each) for each in records["attacks"]]
        except (NoisegateError, ValueError, KeyError, TypeError):
            self.failed = True
        finally:
            self.trying = None


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    """One attack as the template draws it: shares in percent."""
    bars = [
        {"kind": words, "against": str(trial["against"]), "share": _percent(trial["success"])}
        for kind, words in _KINDS
        if (trial := record["trials"].get(kind))
    ]
    return {
        "title": str(record["title"]), "story": str(record["story"]),
        "measure": str(record["measure"]), "bars": bars,
        "chance": _percent(record["chance"]), "bound": _percent(record["bound"]),
    }  # fmt: skip


def _percent(share: float) -> float:
    return round(100 * min(max(float(share), 0.0), 1.0), 1)


_AGAIN: Final = 3  # seconds until the page looks again


def lab_page(lab: Lab, visit: Visit) -> Response:
    """The gallery of one ε, or the way to it."""
    chosen = _chosen(visit)
    return visit.page(
        "lab.html",
        title="Lab",
        epsilons=EPSILONS,
        chosen=chosen,
        found=lab.found.get(chosen),
        trying=lab.trying,
        failed=lab.failed,
        times=TIMES,
        off=round(98 / TIMES**0.5),  # 1.96 standard errors of a fair coin, in percent
        refresh=_AGAIN if lab.trying is not None else None,
    )


def lab(lab: Lab, visit: Visit) -> Response:
    """Try the attacks."""
    chosen = _chosen(visit)
    lab.start(chosen)
    visit.log("lab", epsilon=chosen)
    return visit.to("lab", epsilon=chosen)


def _chosen(visit: Visit) -> str:
    chosen = visit.said("epsilon", "1")
    if chosen not in EPSILONS:
        raise SpecError("This ε is not offered.", fix=f"Use {', '.join(EPSILONS)}.", about="range")
    return chosen
