"""A loss with everything it needs to be a promise: whose privacy, between which tables, over what.

>>> from noisegate.privacy.loss import ApproxDP
>>> person = PrivacyUnit(column="patient_id")
>>> print(Guarantee(loss=ApproxDP("0.1"), unit=person, scope="table 'visits'"))
ε = 0.1 for adding or removing one person (all rows with the same 'patient_id') in table 'visits'.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, final

from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.loss import ZCDP, ApproxDP
from noisegate.privacy.unit import Adjacency, PrivacyUnit, protected, spaces_of

ZERO_KNOWLEDGE: Final = (
    "It is zero-knowledge too: up to the same ε and δ, a secret sample of the others tells as much."
)
ESTIMATES: Final = ", including the estimates it rests on"
VIEW: Final = "a view, for which the steward vouches that a unit's rows depend on that unit alone"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What is promised; its text is a sentence one can put under a figure.

    ``also`` are further units: those of tables that name the same people by another column, and
    those of other id spaces. Each unit of each space is protected. Who has an id in two spaces is
    two units, and protected as a group of two.
    ``zero_knowledge``: it is so as well, about samples, with the same numbers (`of_samples`).
    ``added`` is the part that holds for those who have the estimates it rests on (`desk.based`).
    """

    loss: ApproxDP | ZCDP
    unit: PrivacyUnit
    scope: str
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    also: tuple[PrivacyUnit, ...] = ()
    zero_knowledge: bool = False
    added: ApproxDP | None = None

    def __post_init__(self) -> None:
        if not self.scope:
            raise SpecError(
                "The guarantee has no scope.", fix="Name the data it is about.", about="scope"
            )

    def __str__(self) -> str:
        verb = "adding or removing"
        if self.adjacency is Adjacency.CHANGE_ONE:
            verb = "changing"
        who, told = protected(self.units), f" {ZERO_KNOWLEDGE}" if self.zero_knowledge else ""
        with_, added = "", ""
        if self.added is not None:
            with_, added = ESTIMATES, f" Given those, it adds {self.added}."
        return f"{self.loss} for {verb} {who} in {self.scope}{with_}.{added}{self._of_both}{told}"

    @property
    def units(self) -> tuple[PrivacyUnit, ...]:
        """All units that are protected."""
        return (self.unit, *self.also)

    @property
    def _of_both(self) -> str:
        """What is promised to somebody with an id in each of several spaces.

        Claim: a person of k spaces is a group of k units. Adjacency: as stated. Why:
            `group_of_approx`, `group_of_zcdp`. Rounding: up.
        """
        size = len(spaces_of(self.units))
        if size == 1:
            return ""
        who = f"Somebody who is {size} such units at once"
        if isinstance(self.loss, ZCDP) and self.loss.delta:
            return f" {who} is protected as a group of {size}."
        return f" {who} has {self.group(size)}."

    def group(self, size: int) -> ApproxDP | ZCDP:
        """What is promised to so many units together, such as a household.

        Claim: (k ε, Σ e^(iε) δ), or k² ρ. Adjacency: as stated, k times. Why: `group_of_approx`,
            `group_of_zcdp`. Rounding: up.
        """
        from noisegate.privacy.conversion import group_of_approx, group_of_zcdp  # noqa: PLC0415

        if isinstance(self.loss, ApproxDP):
            return group_of_approx(self.loss, size=size)
        return group_of_zcdp(self.loss, size=size)

    def change_one(self) -> "Guarantee":
        """The corollary for changing one unit: removing it and adding another in its place.

        Claim: (2ε, (1 + e^ε) δ), or 4ρ for zCDP. Adjacency: from add/remove to change-one.
        Why: group privacy for two units [DR14, Sect. 2.3], [BS16, Prop. 1.9]. Rounding: up.
        """
        if self.adjacency is Adjacency.CHANGE_ONE:
            return self
        from noisegate.privacy.conversion import change_one, change_one_zcdp  # noqa: PLC0415

        loss = self.loss
        doubled = change_one(loss) if isinstance(loss, ApproxDP) else change_one_zcdp(loss)
        added = None if self.added is None else change_one(self.added)
        return replace(self, loss=doubled, added=added, adjacency=Adjacency.CHANGE_ONE)

    def to_dict(self) -> dict[str, Any]:
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
            "units": [
                {"column": unit.column, "noun": unit.noun, "ids": unit.ids} for unit in self.units
            ],
            "scope": self.scope,
            **({"zero_knowledge": True} if self.zero_knowledge else {}),
            **({} if self.added is None else {"added": _texts(self.added)}),
            "sentence": str(self),
        }


def _texts(loss: ApproxDP) -> dict[str, str]:
    return {"epsilon": str(loss.epsilon), "delta": str(loss.delta)}


def guarantee_of(
    loss: ApproxDP,
    tables: Sequence[TableDomain],
    what: str = "this release about",
    then: str = "",
) -> Guarantee:
    """A loss as a promise about the units of these tables."""
    unit, *others = units_of(tables)
    scope = f"{what} {names_of(tables)}{then}"
    return Guarantee(loss=loss, unit=unit, scope=scope, also=tuple(others))


def units_of(tables: Iterable[TableDomain]) -> list[PrivacyUnit]:
    """The units of these tables, each column of each id space once."""
    found = spaces_of(table.unit for table in tables if table.unit is not None)
    return [unit for space in found.values() for unit in space]


def names_of(tables: Iterable[TableDomain]) -> str:
    """The names of these tables, with what is only vouched for."""
    return ", ".join(dict.fromkeys(map(_name, tables)))


def doubt_of(table: TableDomain) -> str:
    """What to mind where nobody said whose the rows are, and a column's name does; else nothing."""
    if table.doubted is None:
        return ""
    return (
        f"every row counts as a different person, as no unit was named; if one {table.doubted!r} "
        "may have several rows, this guarantee does not hold for them: open it with "
        f"unit={table.doubted!r}"
    )


def _name(table: TableDomain) -> str:
    if doubt := doubt_of(table):
        return f"{table.name!r} ({doubt})"
    if not table.views:
        return repr(table.name)
    by = "".join(f"by {name!r}, " for name in table.views if name != table.name)
    return f"{table.name!r} ({by}{VIEW})"
