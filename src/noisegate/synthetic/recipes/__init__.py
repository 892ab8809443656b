"""Synthesizers by name: which tables to measure for a workload, and the model that follows."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, final

from noisegate.errors import SpecError
from noisegate.frozen import dataclass, fields
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import Evidence, Model

SYNTHESIZERS: Final[Mapping[str, str]] = MappingProxyType({
    "aim": "aim:Aim",
    "auto": "auto:Auto",
    "chosen": "chosen:Chosen",
    "independent": "independent:Independent",
    "mst": "mst:Mst",
    "mwem-pgm": "mwem_pgm:MwemPgm",
})  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class TablesWorkload:
    """The tables that rows should be good for, as sets of columns.

    ``weights`` say how much the error of each counts; left out, all count the same.
    """

    sets: tuple[Axes, ...]
    weights: tuple[Fraction, ...] = ()

    def __iter__(self) -> Iterator[tuple[Axes, Fraction]]:
        weights = self.weights or (Fraction(1),) * len(self.sets)
        return iter(zip(self.sets, weights, strict=True))

    def weight(self, axes: Axes) -> Fraction:
        """Of any table: the largest of the sets that hold its columns; of none, the least."""
        if not self.weights:
            return Fraction(1)
        held = (weight for each, weight in self if set(axes) <= set(each))
        return max(held, default=min(self.weights))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A model, and all that was measured, as it was: error bars follow from it.

    Rows that are drawn are moved towards the ``targets``, if there are any: tables for which the
    model has no room. ``words`` say what was done.
    """

    model: Model
    evidence: tuple[Evidence, ...]
    words: tuple[str, ...] = ()
    targets: tuple[Evidence, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Planned:
    """What a kind of table will have of the price, from the ``least`` to the ``most``."""

    what: str
    least: Fraction
    most: Fraction


Known: TypeAlias = Sequence[Evidence]  # what is out already
Total: TypeAlias = float | None  # the number of rows, where it is public


class Synthesizer(Protocol):
    """A way to make rows. Its fields are its options."""

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:
        """Refuse what it cannot do, before anything is paid."""

    def planned(
        self, sizes: Sizes, workload: TablesWorkload, *, gaussian: bool
    ) -> tuple[Planned, ...]:
        """Shares that follow from the columns and the workload alone."""

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Ask, and fit a model. ``known`` is evidence that is out, ``total`` a public number."""


def synthesizer(name: str, **options: Any) -> Synthesizer:  # noqa: ANN401 - of the synthesizer
    """A synthesizer by its name."""
    if name not in SYNTHESIZERS:
        raise SpecError(
            f"There is no method {name!r}.", fix=f"Use {', '.join(SYNTHESIZERS)}.", about="method"
        )
    module, made = SYNTHESIZERS[name].split(":")
    kind = getattr(import_module(f"noisegate.synthetic.recipes.{module}"), made)
    try:
        found: Synthesizer = kind(**options)
    except TypeError:
        options_of = ", ".join(each.name for each in fields(kind)) or "none"
        raise SpecError(
            f"{name!r} has an unknown option.", fix=f"Its options: {options_of}.", about="option"
        ) from None
    return found
