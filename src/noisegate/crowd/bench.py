"""Where releases of crowds are planned and made, by name."""

from collections.abc import Callable
from typing import ClassVar, final

from noisegate.crowd.histogram import (
    CrowdOrder,
    CrowdPlan,
    CrowdRelease,
    plan_crowd,
    release_crowd,
)
from noisegate.crowd.points import CrowdPoints, points_of
from noisegate.curator.curator import Curator
from noisegate.desk.rules import Rules
from noisegate.errors import SpecError
from noisegate.releases.order import Order, own


@final
class CrowdBench:
    """Plans and releases a crowd through a curator, by the rules of a policy."""

    names: ClassVar[tuple[str, ...]] = ("crowd-histogram", "crowd-points")

    def __init__(self, curator: Curator, rules: Rules, order: Order) -> None:
        self._curator, self._rules, self._name = curator, rules, order.name
        if order.name not in self.names:
            raise SpecError(
                f"There is no release {order.name!r}.", fix=f"Use {' or '.join(self.names)}."
            )
        if order.rows_per_unit is not None:
            raise SpecError("A crowd is of people with one row.", fix="Leave out rows_per_unit.")
        self._order = own(CrowdOrder, order)

    def plan(self, *, fresh: bool = False) -> CrowdPlan:
        """Price and what would be hidden: free, reads no row."""
        return plan_crowd(self._curator, self._rules, self._order, fresh=fresh)

    def release(
        self,
        progress: Callable[[float, str], None] | None = None,  # noqa: ARG002 - it is one step
        *,
        fresh: bool = False,
    ) -> CrowdRelease | CrowdPoints:
        """The histogram, or its points: from the ledger if there, else for their price."""
        made = release_crowd(self._curator, self._rules, self._order, fresh=fresh)
        return points_of(made) if self._name == "crowd-points" else made

    @property
    def endings(self) -> tuple[str, ...]:
        """The forms of file that it can be saved in: known before it is paid for."""
        return CrowdPoints.endings if self._name == "crowd-points" else CrowdRelease.endings
