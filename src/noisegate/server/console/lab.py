"""Lab: a gallery of attacks that succeed on raw answers and fail at a gate."""

from typing import Final

from starlette.responses import Response

from noisegate.errors import SpecError
from noisegate.server.console.attacks import EPSILONS, TIMES
from noisegate.server.console.visits import Visit

_AGAIN: Final = 3  # seconds until the page looks again


def lab_page(visit: Visit) -> Response:
    """The gallery of one ε, or the way to it."""
    lab, chosen = visit.console.lab, _chosen(visit)
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


def lab(visit: Visit) -> Response:
    """Try the attacks."""
    chosen = _chosen(visit)
    visit.console.lab.start(chosen)
    visit.log("lab", epsilon=chosen)
    return visit.to("lab", epsilon=chosen)


def _chosen(visit: Visit) -> str:
    chosen = visit.said("epsilon", "1")
    if chosen not in EPSILONS:
        raise SpecError("This ε is not offered.", fix=f"Use {', '.join(EPSILONS)}.", about="range")
    return chosen
