"""What any tally may hold: known types, keys, axes, and terms within limits."""

from datetime import date, datetime
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from noisegate.algebra.expression import Call, Field, Literal, Schema, domain_of
from noisegate.algebra.relation import (
    Among,
    Filter,
    Fold,
    Folded,
    Join,
    JoinKind,
    Matching,
    Ordering,
    Partnered,
    PerUnit,
    Project,
    Sampled,
    Table,
    Union,
    Window,
    Windowed,
)
from noisegate.algebra.tally import (
    Axis,
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Rows,
    Sums,
    Term,
    Values,
)
from noisegate.errors import Unsupported
from noisegate.frozen import fields
from noisegate.privacy.domain import (
    KEY_TYPES,
    WHOLE_MAX,
    Column,
    Kind,
    Step,
    TableDomain,
    require_keys,
)
from noisegate.privacy.unit import PrivacyUnit
from noisegate.transforms.stability import Stability

if TYPE_CHECKING:
    from collections.abc import Sequence

CELLS_MAX: Final = 1 << 24
NUMBERED_MAX: Final = 1 << 64  # cells that are numbered, never listed
REACH_MAX: Final = 1 << 40  # of one row, on its grid
MOVED_MAX: Final = 1 << 60  # of one unit, so that weights multiply within 128 bits
ROOT_MAX: Final = 1 << 48  # of one unit in L2, so that squares add up within 128 bits
CAP_MAX: Final = 1 << 20
GRAIN_MAX: Final = Fraction(2) ** 500  # doubles hold it and its inverse


TALLIES: Final = frozenset({Sums, Marginals, Values, Keys, Distinct, Cells, Rows})
_NODES: Final = {node: tuple(each.name for each in fields(node)) for node in (
    *TALLIES, Axis, Grouping, Term, Table, Filter, Project, Join, Matching, PerUnit, Folded, Union,
    Sampled, Window, Ordering, Windowed, Partnered, Literal, Field, Call, TableDomain, Column,
    PrivacyUnit, Step,
)}  # fmt: skip
_ATOMS: Final = frozenset({
    str, int, bool, Fraction, date, datetime, type(None), Kind, JoinKind, Fold, Among,
})  # fmt: skip


def require_exact(node: object) -> None:
    """Refuse a tree with anything but the algebra's own types, which have one meaning each.

    A subclass of one could tell the rules here and the writer of the engine different things.
    """
    children: Sequence[object] = ()
    if type(node) is tuple:
        children = node
    elif type(node) is MappingProxyType:
        children = (*node.keys(), *node.values())
    elif type(node) in _NODES:
        children = [getattr(node, name) for name in _NODES[type(node)]]
    elif type(node) not in _ATOMS:
        raise Unsupported(
            "The question contains a value of an unknown type.",
            fix="Use the algebra's types.",
            about="unknown",
        )
    if not _ATOMS.issuperset(map(type, children)):
        for child in children:
            require_exact(child)


def require_groupings(by: tuple[Grouping, ...], schema: Schema, cells: int) -> None:
    """Lists of distinct keys, each of its column's type, and not too many cells."""
    if not 1 <= cells <= CELLS_MAX:
        raise Unsupported(
            f"There would be {cells:,} groups.", fix="Group by fewer columns.", about="groups"
        )
    for grouping in by:
        kind = domain_of(grouping.expression, schema).kind
        shape = type(grouping), type(grouping.keys), type(grouping.rest)
        if shape != (Grouping, tuple, bool) or kind not in KEY_TYPES:
            raise Unsupported(
                f"A {kind.value} cannot be grouped by.", fix="Use bins, FLOOR(x / 0.5), or CAST."
            )
        require_keys(grouping.keys)
        wrong = set(map(type, grouping.keys)) - {KEY_TYPES[kind], type(None)}
        if wrong or not 0 < len(grouping.keys) == len(set(grouping.keys)):
            raise Unsupported(
                "The groups are not distinct keys of the column's type.",
                fix="List each key once.",
                about="keys",
            )


def require_sets(tally: Marginals) -> None:
    """Sets of rising places of groupings, each once, and no more cells than one table may have."""
    places = range(len(tally.by)) if type(tally.by) is tuple else range(0)
    if type(tally.sets) is not tuple or any(type(each) is not tuple for each in tally.sets):
        raise Unsupported("The sets are not tuples.", fix="Give a tuple of places for each table.")
    if not tally.sets or len(set(tally.sets)) < len(tally.sets):
        raise Unsupported("There is no set, or one is listed twice.", fix="List each set once.")
    for each in tally.sets:
        known = all(type(place) is int and place in places for place in each)
        if not known or list(each) != sorted(set(each)):
            raise Unsupported(
                "A set does not name groupings.", fix="Give their positions, in ascending order."
            )


def require_axes(tally: Cells, schema: Schema) -> None:
    """Axes of whole numbers or listed keys, and no more cells than can be numbered."""
    if type(tally.by) is not tuple or not tally.by:
        raise Unsupported("There is no axis.", fix="Group by at least one column.")
    if {type(axis) for axis in tally.by} - {Axis, Grouping}:
        raise Unsupported("An axis is of an unknown type.", fix="Use Axis or Grouping.")
    listed = tuple(axis for axis in tally.by if type(axis) is not Axis)
    require_groupings(listed, schema, prod(grouping.size for grouping in listed))
    if any(grouping.rest for grouping in listed):
        raise Unsupported("Only sums have a cell for the rest.", fix="Leave out rest.")
    for axis in tally.by:
        if type(axis) is not Axis:
            continue
        kind = domain_of(axis.expression, schema).kind
        if type(axis.low) is not int or type(axis.size) is not int or kind is not Kind.INTEGER:
            raise Unsupported(
                f"A column of type {kind.value} cannot be an axis.", fix="Use whole numbers."
            )
        if axis.size < 1 or axis.low < -WHOLE_MAX or axis.low + axis.size - 1 > WHOLE_MAX:
            raise Unsupported("An axis is empty or exceeds 64 bits.", fix="Use narrower bounds.")
    if tally.cells > NUMBERED_MAX:
        raise Unsupported(
            "There would be more than 2**64 cells.", fix="Use fewer axes, or wider bins."
        )


def require_found(tally: Keys, schema: Schema, facts: Stability) -> None:
    """Keys to be found: of a kind that makes keys, and at most one of each in a row."""
    if facts.is_row_level and facts.rows != 1:
        raise Unsupported(
            "One row could hold a key twice.", fix="Find the keys of one table at a time."
        )
    for _, expression in tally.by:
        kind = domain_of(expression, schema).kind
        if kind not in KEY_TYPES:
            raise Unsupported(
                f"A column of type {kind.value} cannot be a key.", fix="Use bins or a cast."
            )
    if not tally.by:
        raise Unsupported("No key is asked for.", fix="Group by at least one column.")


def require_terms(terms: tuple[Term, ...], schema: Schema, cap: int) -> None:
    """Numbers in whole grains, within limits that engines can add up."""
    if type(terms) is not tuple or not terms:
        raise Unsupported("Nothing is added up.", fix="Ask for at least one number.")
    for term in terms:
        _require_term(term, schema, cap)


def _require_term(term: Term, schema: Schema, cap: int) -> None:
    kind = domain_of(term.expression, schema).kind
    if type(term) is not Term or not kind.is_numeric:
        raise Unsupported(
            f"{kind.value} values cannot be added.", fix="Cast to a number.", about="type"
        )
    whole = type(term.low) is int and type(term.high) is int and type(term.grain) is Fraction
    if not whole or term.low > term.high:
        raise Unsupported(
            "The bounds of a term are not whole numbers in order.",
            fix="Use low ≤ high.",
            about="bounds",
        )
    if not 1 / GRAIN_MAX <= term.grain <= GRAIN_MAX:
        raise Unsupported(
            "The bounds are too far apart, or too close together, to add values exactly.",
            fix="Declare bounds close to the values, or rescale: x / 1e6.",
            about="bounds",
        )
    if not 1 <= term.reach <= REACH_MAX or term.reach * cap > MOVED_MAX:
        raise Unsupported(
            "The bounds of a term are too wide.",
            fix="Use a larger quantisation step.",
            about="bounds",
        )
