"""Columns of files without types: the question says what they are read as, never the rows.

A column of a CSV file is text unless somebody declares its kind. Where a question compares it or
computes with it, it is read as that takes it for, NULL where a value is no such thing, as in every
cast. One question reads a column in one way; the answer says which. A question is read until no
column changes any more, so it does not matter where the kind is told first.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar, final

from noisegate.algebra.expression import Call, Expression, Literal, Schema
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import CAST_TO, kind_of

Made = TypeVar("Made")
WORDS: Final = {
    Kind.BOOLEAN: "true or false",
    Kind.INTEGER: "a whole number",
    Kind.NUMBER: "a number",
    Kind.TEXT: "text",
    Kind.DATE: "a date",
    Kind.TIMESTAMP: "a date or time",
}
_NARROWER: Final = {
    frozenset((Kind.INTEGER, Kind.NUMBER)): Kind.INTEGER,
    frozenset((Kind.DATE, Kind.TIMESTAMP)): Kind.DATE,
}
_ROUNDS_MAX: Final = 50
_EXACT: Final = 1 << 53  # beyond, doubles do not tell whole numbers apart


@final
@dataclass(slots=True, eq=False)
class Untyped:
    """A column without a type, and the ``kind`` that the question has taken it for so far.

    ``of`` are the columns that it is one below the other, in a union. ``compared``: its order
    matters; ``grouped``: its texts are groups.
    """

    column: str
    kind: Kind | None = None
    of: tuple["Untyped", ...] = ()
    compared: bool = False
    grouped: bool = False

    def take(self, kind: Kind) -> None:
        """Take it for a kind, or refuse: it was taken for another one already."""
        known = self.kind or kind
        both = known if known is kind else _NARROWER.get(frozenset((known, kind)))
        if both is None:
            raise Unsupported(
                f"Column {self.column!r} is used as {WORDS[known]} and as {WORDS[kind]}, and its "
                "file declares no type.",
                fix=f"Cast it in each place, for example CAST({self.column} AS DOUBLE), or "
                "declare its type.",
                about="types",
            )
        for each in self.of:
            each.take(kind)
        self.kind = both

    def read(self, field: Expression) -> Expression:
        """The column as what it was taken for; NULL where a value is no such thing."""
        if self.kind in (None, Kind.TEXT):
            return field
        made = Call(CAST_TO[self.kind], (field,))
        wider = {Kind.INTEGER: "to_number", Kind.DATE: "to_timestamp"}.get(self.kind)
        if wider is None:
            return made
        whole = Call("eq", (Call(wider, (made,)), Call(wider, (field,))))  # 1.5 is none, nor noon
        return Call("case", (whole, made))

    def mark(self, *, compared: bool = False, grouped: bool = False) -> None:
        """Say how its texts are used."""
        for each in (self, *self.of):
            each.compared, each.grouped = each.compared or compared, each.grouped or grouped

    def caveats(self) -> Iterator[str]:
        """What the answer says about how the column was read."""
        name = repr(self.column)
        if self.kind is None or self.kind is Kind.TEXT:
            if self.compared:
                yield f"{name} is compared as text, letter by letter: its file declares no types."
            return
        yield (
            f"{name} is read as {WORDS[self.kind]}, because its file declares no types; other "
            "values count as NULL."
        )
        if self.grouped:
            yield f"Groups and distinct values of {name} are its texts as they are in the file."


def together(column: str, parts: Iterable[Untyped | None]) -> Untyped | None:
    """One column of a union, whose parts are read alike; None where a part has a type."""
    listed = tuple(parts)
    known = tuple(each for each in listed if each is not None)
    if len(known) < len(listed):
        return None
    found = Untyped(column, of=known)
    for kind in dict.fromkeys(each.kind for each in known if each.kind is not None):
        found.take(kind)
    return found


def taken_for(values: Iterable[tuple[Expression, Untyped | None]], schema: Schema) -> Kind | None:
    """What columns without types are taken for beside the others; None where nothing tells."""
    kinds: set[Kind] = set()
    for value, untyped in values:
        if untyped is not None and untyped.kind in (None, Kind.TEXT):
            continue
        kind = kind_of(value, schema)
        if type(value) is Literal and (value.value is None or kind is Kind.TEXT):
            continue
        large = type(value) is Literal and type(value.value) is int and abs(value.value) > _EXACT
        kinds.add(Kind.NUMBER if kind is Kind.INTEGER and not large else kind)
    if {Kind.DATE, Kind.TIMESTAMP} & kinds:
        return Kind.TIMESTAMP
    return min(kinds, key=list(Kind).index, default=None)


@final
@dataclass(frozen=True, slots=True)
class Kinds:
    """The columns without types that a question has met, by table and name."""

    met: dict[tuple[str, str], Untyped] = field(default_factory=dict)

    def of(self, table: str, column: str) -> Untyped:
        """The column, as far as the question has told."""
        return self.met.setdefault((table, column), Untyped(column))

    def settled(self, read: Callable[[], Made]) -> Made:
        """What ``read`` finds once every column is read in one way throughout."""
        for _ in range(_ROUNDS_MAX):
            before = self._told()
            try:
                found = read()
            except Unsupported:
                if self._told() == before:
                    raise
                continue
            if self._told() == before:
                return found
        raise Unsupported("Too many columns have no type.", fix="Declare their types.")

    def caveats(self) -> tuple[str, ...]:
        """What the answer says about them."""
        return tuple(words for each in self.met.values() for words in each.caveats())

    def _told(self) -> dict[tuple[str, str], Kind]:
        """What was told so far: a column that was met with nothing told of it is read as before."""
        return {name: each.kind for name, each in self.met.items() if each.kind is not None}
