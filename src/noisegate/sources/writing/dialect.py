"""What an engine says in its own words: everything about a statement that is not the same in all.

Statements are written once, as trees of sqlglot, in the words of `words.py`: BIGINT, DOUBLE,
HUGEINT for sums, CAST only where it cannot fail. A dialect writes the few steps that engines say
otherwise, and turns the tree into text. Each of its steps on rows is total, and means the same as
DuckDB's: the integers of all engines are equal (tests/engines). What it cannot say so it
refuses by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias, final

from sqlglot import exp

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Column, Domain, Kind


@final
@dataclass(frozen=True, slots=True)
class Written:
    """An expression as the engine reads it, and what is known of it.

    ``spoilt``: it may be NaN or infinite where it ought to be NULL.
    """

    sql: exp.Expr
    domain: Domain
    literal: Any = ...
    spoilt: bool = False


TEXT_MAX: Final = 1 << 16  # bytes: a longer text has no value, so that no step on texts can fail
Args: TypeAlias = Sequence[Written]
Writer: TypeAlias = Callable[[Args, Domain], exp.Expr]


def unsaid(what: str, engine: str) -> Unsupported:
    """What is said of something that an engine cannot do with the same meaning."""
    fix = "Ask without it, or let the steward add a column that holds its result."
    return Unsupported(f"{what} is not supported on {engine}.", fix=fix, about="engine")


class Dialect(ABC):
    """The words of one engine. Values are NULL or of their kind's type; `finite` is for doubles."""

    name: ClassVar[str]
    keeps_spoilt: ClassVar[Mapping[str, int]] = {}  # leading arguments that may be NaN or infinite
    spoils: ClassVar[frozenset[str]] = frozenset()  # functions whose results may be so
    verbatim: ClassVar[bool] = False  # its statements may hold pieces of text
    correlates: ClassVar[bool] = True  # it folds other rows for each row
    octets: ClassVar[str] = "OCTET_LENGTH"  # of a text
    sends_values: ClassVar[bool] = False  # of many rows, sooner than it groups them
    places_rows: ClassVar[bool] = False  # by calculated keys before they are added up, once
    compares_raised: ClassVar[bool] = False  # a sum of doubles may overflow; NaN is not told else

    @property
    @abstractmethod
    def functions(self) -> Mapping[str, Writer]:
        """How it says each function of the closed list that it has."""

    def function(self, name: str) -> Writer:
        """How it says a function, or a refusal: it is never computed otherwise."""
        found = self.functions.get(name)
        if found is None:
            raise self.refusal(name.upper())
        return found

    def refusal(self, what: str) -> Unsupported:
        """What is said of something that this engine cannot do."""
        return unsaid(what, self.name)

    @abstractmethod
    def text(self, query: exp.Expr) -> str:
        """The statement as text. The tree is used up."""

    @abstractmethod
    def read_as(self, column: Column, stored: str, value: exp.Expr) -> exp.Expr:
        """A stored value as its column's kind, not clamped yet; NULL where it cannot be read so."""

    @abstractmethod
    def is_narrow(self, column: Column, stored: str) -> bool:
        """Whether keys of this column may stay as they are stored."""

    @abstractmethod
    def owner(self, value: exp.Expr, types: set[str]) -> exp.Expr:
        """An id as it is compared, where ids are of these stored types. Never parsed or rounded."""

    @abstractmethod
    def finite(self, value: exp.Expr) -> exp.Expr:
        """Whether a double is neither NaN nor infinite; NULL or false of NULL."""

    @abstractmethod
    def can_be_key(self, value: exp.Expr, kind: Kind) -> exp.Expr:
        """Whether a value can be told as a key. A missing one is a key like any other."""

    @abstractmethod
    def times(self, value: exp.Expr, factor: exp.Expr) -> exp.Expr:
        """A double times a constant above 0, which cannot overflow."""

    @abstractmethod
    def rounded(self, value: exp.Expr) -> exp.Expr:
        """The nearest whole double, halves away from zero."""

    @abstractmethod
    def on_grid(self, value: exp.Expr) -> exp.Expr:
        """A whole double of at most 2**53 as BIGINT."""

    @abstractmethod
    def wide(self, value: exp.Expr) -> exp.Expr:
        """A whole double from 0 on as HUGEINT; where it has no room there, any smaller number."""

    @abstractmethod
    def narrowed(self, total: exp.Expr) -> exp.Expr:
        """A sum of whole numbers as BIGINT; NULL where it has no room there."""

    def added(self, value: exp.Expr) -> exp.Expr:
        """The sum of doubles on a grid, which is exact in any order: see `folds.fold`."""
        return exp.Sum(this=value)

    @abstractmethod
    def extreme(self, value: exp.Expr, kind: Kind, *, least: bool) -> exp.Expr:
        """MIN or MAX."""

    @abstractmethod
    def distinct(self, value: exp.Expr, *, window: bool) -> exp.Expr:
        """COUNT(DISTINCT …), or what becomes a window of it."""

    @abstractmethod
    def sha256(self, text: exp.Expr) -> exp.Expr:
        """The hash of a text's UTF-8 bytes, as 64 lower-case digits."""

    @abstractmethod
    def choice(self, values: Sequence[exp.Expr], owner: exp.Expr) -> exp.Expr:
        """A hash that orders an owner's values: it is of nothing but them and the owner."""

    @abstractmethod
    def with_heads(self, query: exp.Select, heads: Callable[[exp.Expr], exp.Expr]) -> exp.Select:
        """The rows whose number, given by this reading, has heads."""
