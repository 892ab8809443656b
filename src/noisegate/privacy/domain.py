"""Public facts about a table: columns, keys, bounds. Declared, never read from rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.privacy.unit import PrivacyUnit

Key: TypeAlias = str | int
KEY_MAX: Final = 1 << 127  # whole numbers are compared in 128 bits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What is public about a column: a closed list of keys, or bounds, or only its name."""

    name: str
    keys: tuple[Key, ...] | None = None
    between: tuple[Fraction, Fraction] | None = None

    def __post_init__(self) -> None:
        _require_plain(self.name)
        if self.keys is not None:
            for key in self.keys:
                _require_plain(key)
            if not self.keys or not all(type(key) in (str, int) for key in self.keys):
                raise SpecError(
                    f"The keys of column {self.name!r} are not texts or whole numbers.",
                    fix="List at least one key, such as in = ['north', 'south'].",
                )
            if any(isinstance(key, int) and not -KEY_MAX <= key < KEY_MAX for key in self.keys):
                raise SpecError(
                    f"A key of column {self.name!r} is beyond ±2**127.", fix="Declare it as text."
                )
            if len({type(key) for key in self.keys}) > 1 or len(set(self.keys)) < len(self.keys):
                raise SpecError(
                    f"The keys of column {self.name!r} repeat or mix types.",
                    fix="List each key once, all of one type.",
                )
        if self.between is not None and self.between[0] >= self.between[1]:
            raise SpecError(
                f"The bounds of column {self.name!r} are not in order.",
                fix="Use between = [low, high] with low < high.",
            )

    @classmethod
    def from_terms(cls, name: str, terms: Mapping[str, Any]) -> "Column":
        """A column from ``{"in": [...]}`` or ``{"between": [low, high]}``."""
        if unknown := set(terms) - {"in", "between"}:
            raise SpecError(
                f"Column {name!r} has unknown terms {sorted(unknown)}.",
                fix="Use 'in' (a list of keys) or 'between' (two bounds).",
            )
        keys, between = terms.get("in"), terms.get("between")
        if between is not None:
            if not isinstance(between, Sequence) or isinstance(between, str) or len(between) != 2:
                raise SpecError(
                    f"The bounds of column {name!r} are not a pair.",
                    fix="Use between = [low, high].",
                )
            between = fraction(between[0], name="low"), fraction(between[1], name="high")
        return cls(name=name, keys=None if keys is None else tuple(keys), between=between)


def _require_plain(text: object) -> None:
    """Refuse text that an engine cannot take: lone surrogates and NUL."""
    try:
        if not isinstance(text, str) or (text.encode() is not None and "\x00" not in text):
            return
    except UnicodeEncodeError:
        pass
    raise SpecError("A name or key is not plain text.", fix="Use text without NUL characters.")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableDomain:
    """A private table of a data set: its unit, how many rows one unit may have, its columns.

    ``origin`` says where the rows are and ``snapshot`` names their state. A question is answered
    once for each of them; when rows were added, the steward declares a new snapshot, and questions
    are drawn and paid for anew.
    """

    dataset: str
    name: str
    unit: PrivacyUnit
    columns: Mapping[str, Column] = field(default_factory=lambda: MappingProxyType({}))
    rows_per_unit_max: int | None = None
    origin: str = ""
    snapshot: str = "1"

    def __post_init__(self) -> None:
        for text in (self.dataset, self.name, self.unit.column, self.origin, self.snapshot):
            _require_plain(text)
        if (
            not 1 <= len(self.dataset) <= 80
            or ":" in self.dataset
            or not self.dataset.isprintable()
        ):
            raise SpecError("The name of the data set is no name.", fix="Use 1 to 80 letters.")
        cap = self.rows_per_unit_max
        if cap is not None and (type(cap) is not int or not 1 <= cap <= 1 << 31):
            raise SpecError("rows_per_unit_max is not usable.", fix="Use a whole number from 1.")
        if self.unit.column is None and cap is not None:
            raise SpecError(
                "A cap on rows per unit needs a unit.",
                fix="Name the unit's column, or drop the cap.",
            )
