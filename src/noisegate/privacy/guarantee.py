"""A loss with everything it needs to be a promise: whose privacy, between which tables, over what.

>>> from noisegate.privacy.loss import ApproxDP
>>> person = PrivacyUnit(column="patient_id")
>>> print(Guarantee(loss=ApproxDP("0.1"), unit=person, scope="table 'visits'"))
ε = 0.1 for adding or removing one person (all rows with the same 'patient_id') in table 'visits'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from noisegate.errors import SpecError
from noisegate.privacy.conversion import change_one, change_one_zcdp
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.loss import ZCDP, ApproxDP
from noisegate.privacy.unit import Adjacency, PrivacyUnit


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What is promised; its text is a sentence one can put under a figure."""

    loss: ApproxDP | ZCDP
    unit: PrivacyUnit
    scope: str
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        if not self.scope:
            raise SpecError("The guarantee has no scope.", fix="Name the data it speaks about.")

    def __str__(self) -> str:
        verb = "adding or removing"
        if self.adjacency is Adjacency.CHANGE_ONE:
            verb = "changing"
        return f"{self.loss} for {verb} {self.unit} in {self.scope}."

    def change_one(self) -> "Guarantee":
        """The corollary for changing one unit: removing it and adding another in its place.

        Claim: (2ε, (1 + e^ε) δ), or 4ρ for zCDP. Adjacency: from add/remove to change-one.
        Why: group privacy for two units [DR14, Sect. 2.3], [BS16, Prop. 1.9]. Rounding: up.
        """
        if self.adjacency is Adjacency.CHANGE_ONE:
            return self
        loss = self.loss
        doubled = change_one(loss) if isinstance(loss, ApproxDP) else change_one_zcdp(loss)
        return Guarantee(
            loss=doubled, unit=self.unit, scope=self.scope, adjacency=Adjacency.CHANGE_ONE
        )

    def to_dict(self) -> dict[str, str | None]:
        """Plain JSON values; numbers are exact text."""
        loss = self.loss
        kind, amount = ("zcdp", loss.rho) if isinstance(loss, ZCDP) else ("approx", loss.epsilon)
        return {
            "kind": kind,
            "rho" if kind == "zcdp" else "epsilon": str(amount),
            "delta": str(loss.delta),
            "adjacency": self.adjacency.name.lower(),
            "unit_column": self.unit.column,
            "unit_noun": self.unit.noun,
            "scope": self.scope,
            "sentence": str(self),
        }


def guarantee_of(
    loss: ApproxDP, tables: Sequence[TableDomain], what: str = "this release about"
) -> Guarantee:
    """A loss as a promise about the unit of these tables."""
    unit = next(table.unit for table in tables if table.unit is not None)
    names = ", ".join(dict.fromkeys(repr(table.name) for table in tables))
    return Guarantee(loss=loss, unit=unit, scope=f"{what} {names}")
