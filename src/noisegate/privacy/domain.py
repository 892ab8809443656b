"""Public facts about tables: kinds, keys, bounds, owners. Declared, never read from rows."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.unit import PrivacyUnit

Key: TypeAlias = str | int | date | datetime | None  # None is the group of rows without a value
WHOLE_MAX: Final = (1 << 63) - 1  # whole numbers of rows are 64 bits wide; others have no value
NUMBER_MAX: Final = 1 << 1000  # doubles end at 2¹⁰²⁴
LISTED_MAX: Final = 10_000  # whole numbers within bounds that are listed as groups
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times in tables have no zone here
_MICROSECOND: Final = 10**6


class Kind(Enum):
    """What sort of value a column or an expression holds. The value is its name in a policy."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"

    @property
    def is_numeric(self) -> bool:
        """Whether values of this kind can be added."""
        return self in (Kind.INTEGER, Kind.NUMBER)

    @property
    def is_ordered(self) -> bool:
        """Whether bounds make sense: numbers, and dates by their `ordinal`."""
        return self.is_numeric or self in (Kind.DATE, Kind.TIMESTAMP)


def ordinal(value: Any) -> Fraction:  # noqa: ANN401 - a bound of any ordered kind
    """A bound as a number: dates in days, times in microseconds since 1970."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise SpecError("A bound has a time zone.", fix="Give times without one.")
        passed = value - EPOCH
        whole = (passed.days * 86_400 + passed.seconds) * _MICROSECOND + passed.microseconds
        return Fraction(whole)
    if isinstance(value, date):
        return Fraction((value - EPOCH.date()).days)
    return fraction(value, name="bound")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """What is public about a value: its kind, bounds that hold for certain, keys to group by.

    ``low`` and ``high`` hold for every value, because whoever makes the value clamps it. ``keys``
    are the groups that are shown; a value outside them is in no group. ``nullable`` says whether
    the value may be missing, which is a group then. ``unlisted``: rows may lack a value, or hold
    one that is not a key, and are in no group then. ``scale``: a number is a decimal of so many
    digits behind the point, or the double next to one, told from others of up to 15 digits.
    """

    kind: Kind
    low: Fraction | None = None
    high: Fraction | None = None
    keys: tuple[Key, ...] | None = None
    nullable: bool = True
    unlisted: bool = False
    scale: int | None = None

    @property
    def may_lack(self) -> bool:
        """Whether a row may have no value, as a group of its own or in none."""
        return self.nullable or self.unlisted

    @property
    def is_bounded(self) -> bool:
        """Whether both bounds are known."""
        return self.low is not None and self.high is not None

    @property
    def magnitude(self) -> Fraction | None:
        """The largest absolute value, if there is one."""
        if self.low is None or self.high is None:
            return None
        return max(abs(self.low), abs(self.high))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its kind, and a closed list of keys, or bounds, or neither.

    Values are clamped into ``between``. ``references`` names the public table and column that the
    keys were taken from. A ``hidden`` column cannot be asked about. ``scale``: it is stored as a
    decimal with so many digits behind the point. ``untyped``: it is text because its file has no
    types and nobody declared one, so a question may read it as another kind.
    """

    name: str
    kind: Kind = Kind.TEXT
    keys: tuple[Key, ...] | None = None
    between: tuple[Fraction, Fraction] | None = None
    nullable: bool = True
    hidden: bool = False
    references: tuple[str, str] | None = None
    scale: int | None = None
    untyped: bool = False

    def __post_init__(self) -> None:
        require_plain(self.name)
        if self.keys is not None:
            _require_keys(self.name, self.kind, self.keys)
        if self.between is not None and not self.kind.is_ordered:
            raise SpecError(
                f"Column {self.name!r} is {self.kind.value}, which has no bounds.",
                fix="Use 'in' for a list of keys, or another type.",
            )
        if (
            self.between is not None
            and self.kind is not Kind.NUMBER
            and not all(
                bound.denominator == 1 and abs(bound) <= WHOLE_MAX for bound in self.between
            )
        ):
            raise SpecError(
                f"The bounds of column {self.name!r} are not whole numbers of 64 bits.",
                fix="Use whole bounds, or declare the column as number.",
            )
        if self.between is not None and max(map(abs, self.between)) > NUMBER_MAX:
            raise SpecError(
                f"The bounds of column {self.name!r} exceed the safe range of doubles.",
                fix="Use bounds close to the values.",
                about="doubles",
            )
        if self.between is not None and self.between[0] >= self.between[1]:
            raise SpecError(
                f"The bounds of column {self.name!r} are not in order.",
                fix="Use between = [low, high] with low < high.",
            )

    @property
    def domain(self) -> Domain:
        """The facts about its values."""
        low, high = self.between or (None, None)
        keys = self.keys
        if keys is None and self.kind is Kind.INTEGER and low is not None and high is not None:
            few = high - low < LISTED_MAX
            keys = tuple(range(int(low), int(high) + 1)) if few else None
        return Domain(
            kind=self.kind, low=low, high=high, keys=keys, nullable=self.nullable, scale=self.scale,
            unlisted=self.keys is not None and not self.nullable,
        )  # fmt: skip

    @classmethod
    def from_terms(
        cls, name: str, terms: Mapping[str, Any], *, stored: Kind | None = None
    ) -> "Column":
        """A column from terms such as ``{"in": [...]}`` or ``{"between": [low, high]}``.

        The kind is the declared ``type``, else that of the ``stored`` column unless this is text,
        else what the keys or bounds are.
        """
        if unknown := set(terms) - {"type", "in", "between", "nullable", "hidden"}:
            raise SpecError(
                f"Column {name!r} has unknown terms {sorted(unknown)}.",
                fix="Use type, in (a list of keys), between (two bounds), nullable, hidden.",
            )
        keys, between = terms.get("in"), terms.get("between")
        if between is not None and (
            not isinstance(between, Sequence) or isinstance(between, str) or len(between) != 2
        ):
            raise SpecError(
                f"The bounds of column {name!r} are not a pair.", fix="Use between = [low, high]."
            )
        if keys is not None and (not isinstance(keys, Sequence) or isinstance(keys, str)):
            raise SpecError(f"The keys of {name!r} are not a list.", fix="Use in = ['a', 'b'].")
        kind = _kind_of(name, terms.get("type"), stored, tuple(keys or ()), tuple(between or ()))
        return cls(
            name=name,
            kind=kind,
            keys=None if keys is None else tuple(keys),
            between=None
            if between is None
            else (_bound(between[0], kind), _bound(between[1], kind)),
            nullable=bool(terms.get("nullable", keys is None)),
            hidden=bool(terms.get("hidden", False)),
        )


def _bound(value: Any, kind: Kind) -> Fraction:  # noqa: ANN401 - as declared
    """A bound in the kind's own ordinals; a day bounds times by its first moment.

    Days and times may be written as ISO 8601 has them.
    """
    if isinstance(value, str) and kind in (Kind.DATE, Kind.TIMESTAMP):
        try:
            value = (date if kind is Kind.DATE else datetime).fromisoformat(value)
        except ValueError:
            raise SpecError(
                f"The bound {value!r} is not a {kind.value}.", fix="Write it as 2026-01-31."
            ) from None
    if kind is Kind.TIMESTAMP and isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - no zone, as in tables
    return ordinal(value)


def _kind_of(
    name: str,
    declared: str | None,
    stored: Kind | None,
    keys: tuple[Any, ...],
    between: tuple[Any, ...],
) -> Kind:
    if declared is not None:
        try:
            return Kind(declared)
        except ValueError:
            raise SpecError(
                f"Column {name!r} has the unknown type {declared!r}.",
                fix=f"Use one of {', '.join(kind.value for kind in Kind)}.",
            ) from None
    if stored is not None and stored is not Kind.TEXT:
        return stored
    if between:
        if isinstance(between[0], datetime):
            return Kind.TIMESTAMP
        return Kind.DATE if isinstance(between[0], date) else Kind.NUMBER
    if keys:
        return _kind_of_key(keys[0])
    return stored or Kind.TEXT


def _kind_of_key(key: Any) -> Kind:  # noqa: ANN401 - whatever was listed
    for python, kind in (
        (bool, Kind.BOOLEAN), (int, Kind.INTEGER), (datetime, Kind.TIMESTAMP), (date, Kind.DATE),
    ):  # fmt: skip
        if isinstance(key, python):
            return kind
    return Kind.TEXT


KEY_TYPES: Final = {
    Kind.BOOLEAN: bool,
    Kind.INTEGER: int,
    Kind.TEXT: str,
    Kind.DATE: date,
    Kind.TIMESTAMP: datetime,
}


def _require_keys(name: str, kind: Kind, keys: tuple[Key, ...]) -> None:
    for key in keys:
        require_key(key)
    if kind not in KEY_TYPES:
        raise SpecError(
            f"Column {name!r} is {kind.value}, which has no list of keys.",
            fix="Declare it as integer or text, or group by bins, for example FLOOR(x / 10).",
            about="keys",
        )
    if not keys or not all(type(key) is KEY_TYPES[kind] for key in keys):
        raise SpecError(
            f"The keys of column {name!r} are not all {kind.value}.",
            fix="List at least one key, all of the column's type, such as in = ['north', 'south'].",
        )
    if len(set(keys)) < len(keys):
        raise SpecError(
            f"Column {name!r} lists a key twice.", fix="List each key once.", about="duplicate"
        )


def require_key(key: object) -> None:
    """Refuse a key that an engine cannot hold as it is."""
    require_plain(key)
    if isinstance(key, int) and abs(key) > WHOLE_MAX:
        raise SpecError("A key exceeds 64 bits.", fix="Declare it as text.")
    if isinstance(key, datetime) and key.tzinfo is not None:
        raise SpecError("A key has a time zone.", fix="Give times without one.")


def require_keys(keys: Sequence[object]) -> None:
    """Refuse keys that an engine cannot hold; long lists of one type are looked at as a whole."""
    held = [key for key in keys if key is not None]
    types = set(map(type, held))
    if types == {int}:
        require_key(max(held, key=abs))  # type: ignore[arg-type]
    elif types == {str}:
        require_key("".join(held))  # type: ignore[arg-type]
    else:
        for key in held:
            require_key(key)


def require_plain(text: object) -> None:
    """Refuse text that an engine cannot take: lone surrogates and NUL."""
    try:
        if not isinstance(text, str) or (text.encode() is not None and "\x00" not in text):
            return
    except UnicodeEncodeError:
        pass
    raise SpecError("A name or key is not plain text.", fix="Use text without NUL characters.")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One hop towards the unit: this table's ``column`` holds a ``key`` of another ``table``."""

    column: str
    table: str
    key: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableDomain:
    """A table of a data set: whose rows they are, how much of one unit counts, its columns.

    ``unit`` None is a public table: exact and free. Otherwise ``unit.column`` names the owner, in
    this table or, along the ``path`` of foreign keys, in the last table of the path. ``unit.ids``
    names the id space; where it is left open, it is the ids of that one column and of no other.
    ``rows_per_unit_max`` and ``groups_per_unit_max`` are the caps that questions use unless they
    say otherwise; if ``rows_per_unit_holds``, the steward vouches that no unit has more rows, which
    words depend on and no claim. ``key`` are columns of a public table whose values do not repeat,
    and ``size`` is how many rows it has, if that is known.

    ``origin`` says where the rows are and ``snapshot`` names their state. A question is answered
    once for each of them; when rows were added, the steward declares a new snapshot, and questions
    are drawn and paid for anew. ``views`` are the tables, this one or those on its path, whose
    rows are a view's: the steward vouches that a unit's rows there depend on that unit alone.
    ``doubted`` is a column that by its name says whose the rows are, where nobody said of what
    unit they are and every row was taken for one.
    """

    dataset: str
    name: str
    unit: PrivacyUnit | None
    columns: Mapping[str, Column] = field(default_factory=lambda: MappingProxyType({}))
    path: tuple[Step, ...] = ()
    key: tuple[str, ...] = ()
    size: int | None = None
    rows_per_unit_max: int | None = None
    rows_per_unit_holds: bool = False
    groups_per_unit_max: int | None = None
    origin: str = ""
    snapshot: str = "1"
    views: tuple[str, ...] = ()
    doubted: str | None = None

    def __post_init__(self) -> None:
        if self.unit is not None and type(self.unit) is not PrivacyUnit:
            raise SpecError("The unit of a table is not a PrivacyUnit.", fix="Use a PrivacyUnit.")
        column = None if self.unit is None else self.unit.column
        ids = None if self.unit is None else self.unit.ids
        for text in (self.dataset, self.name, column, ids, self.origin, self.snapshot):
            require_plain(text)
        if (
            not 1 <= len(self.dataset) <= 80
            or ":" in self.dataset
            or not self.dataset.isprintable()
        ):
            raise SpecError(
                "The name of the data set is empty or too long.", fix="Use 1 to 80 letters."
            )
        self._require_caps()
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        if any(name != column.name for name, column in self.columns.items()):
            raise SpecError("A column is listed under another name.", fix="Use its own.")
        if column is None and self.path:
            raise SpecError("A path does not lead to a unit.", fix="Name the unit's column.")
        if self.key and (self.unit is not None or not set(self.key) <= set(self.columns)):
            raise SpecError("Only a public table can have a key.", fix="Leave out key.")
        if self.size is not None and (self.unit is not None or type(self.size) is not int):
            raise SpecError("Only a public table can have a size.", fix="Leave out size.")
        if self.unit is not None and ids is None:
            end = self.path[-1].table if self.path else self.name
            ids = f"rows of {end}" if column is None else f"{end}.{column}"
            object.__setattr__(self, "unit", replace(self.unit, ids=ids))

    def _require_caps(self) -> None:
        for cap in (self.rows_per_unit_max, self.groups_per_unit_max):
            if cap is not None and (type(cap) is not int or not 1 <= cap <= 1 << 20):
                raise SpecError(
                    "A contribution bound per unit is out of range.",
                    fix="Use a whole number from 1 to 2**20.",
                )
            if cap is not None and (self.unit is None or self.unit.column is None):
                raise SpecError(
                    "A contribution bound needs a unit.",
                    fix="Name the unit's column, or leave out the bound.",
                )

    @property
    def is_public(self) -> bool:
        """Whether the rows are public: exact and free."""
        return self.unit is None

    @property
    def is_row_level(self) -> bool:
        """Whether every row is one unit by declaration."""
        return self.unit is not None and self.unit.column is None
