"""Which groups a block has, declared, found or to be found; and how much of a unit counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.algebra.relation import Filter, Relation
from noisegate.algebra.tally import Keys
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Key
from noisegate.sql.drafts.grouping_sets import Columns
from noisegate.sql.question import Block, GroupKey
from noisegate.transforms.stability import stability_of

Found: TypeAlias = Sequence[Sequence[tuple[Key, ...]]]  # for each of `key_questions`
Shown: TypeAlias = tuple[Columns, frozenset[tuple[Key, ...]]]
LISTED_MAX: Final = 1_000_000  # groups of one answer


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How much of one unit counts: rows, groups (of people), distinct keys or values.

    With ``sums_per_unit`` direct sums are weighed apart from all else, by what a unit adds to them:
    so many times what a row adds at most, or such a part of it. ``divided``: an average is such a
    sum over a count, where its values lie far below their bounds. ``averages_per_unit``: the rows
    of a unit that count in averages and the like, where these are weighed for themselves.
    """

    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    keys_per_unit: int | None = None
    sums_per_unit: Fraction | None = None
    divided: bool = False
    averages_per_unit: int | None = None


def key_questions(block: Block, caps: Caps) -> tuple[Keys, ...]:
    """What to ask before the block itself: the groups of columns without declared keys.

    One question finds the combinations that exist, also with declared keys. With several grouping
    sets each column is looked for by itself, because only full combinations can add up to their
    parents.
    """
    hidden = [key for key in block.by if key.domain.keys is None]
    if not hidden:
        _require_few(block)
        return ()
    rows = stability_of(block.relation).rows
    cap = rows or caps.keys_per_unit or caps.groups_per_unit or caps.rows_per_unit
    if cap is None:
        raise no_cap("The groups of one unit have", "groups_per_unit")
    together = [list(block.by)] if is_single(block) else [[key] for key in hidden]
    return tuple(
        Keys(
            relation=block.relation,
            by=tuple((key.name, key.expression) for key in keys),
            keys_per_unit=cap,
        )
        for keys in together
    )


def groups_of(
    block: Block, asked: Sequence[Keys], found: Found | None
) -> tuple[tuple[tuple[Key, ...], ...], Shown | None]:
    """The keys of each column: declared, found, or unknown so far (the group of no value)."""
    known: dict[str, tuple[Key, ...]] = {}
    shown: Shown | None = None
    for tally, keys in zip(asked, found or (), strict=False):
        names = [name for name, _ in tally.by]
        for place, name in enumerate(names):
            known[name] = tuple(sorted({key[place] for key in keys}, key=_order))
        if len(names) > 1:
            columns = tuple(j for j, key in enumerate(block.by) if key.name in names)
            shown = columns, frozenset(keys)
    return tuple(_keys(key, known) for key in block.by), shown


def _keys(key: GroupKey, known: dict[str, tuple[Key, ...]]) -> tuple[Key, ...]:
    listed = key.domain.keys
    if listed is None:
        return known.get(key.name, (None,))
    return (*listed, None) if key.domain.nullable and None not in listed else listed


def _order(key: Key) -> tuple[bool, object]:
    return key is None, key


def _require_few(block: Block) -> None:
    """Refuse a list that would be noise: nearly all of so many groups are empty."""
    cells = prod(len(key.domain.keys or ()) + key.domain.nullable for key in block.by)
    if cells > LISTED_MAX:
        raise Unsupported(
            f"There would be {cells:,} groups, nearly all without a row, so the answer would be "
            "mostly noise.",
            fix="Group by fewer or coarser columns, or release only the large groups: "
            'gate.release("sparse", …).',
            about="groups",
        )


def closed(block: Block, groups: Sequence[tuple[Key, ...]]) -> Relation:
    """Only rows that are in a group of every grouping set, so that children add up to parents."""
    relation = block.relation
    for j, key in enumerate(block.by):
        if all(j in columns for columns in block.sets):
            continue
        listed = tuple(Literal(value) for value in groups[j] if value is not None)
        inside: Expression = Call("in", (key.expression, *listed))
        missing: Expression = Call("is_null", (key.expression,))
        if None in groups[j]:
            inside = Call("or", (missing, inside)) if listed else missing
        relation = Filter(relation, inside)
    return relation


def is_single(block: Block) -> bool:
    """Whether it has one grouping set."""
    return len(set(block.sets)) == 1


def no_cap(what: str, cap: str) -> Unsupported:
    """The refusal of what one unit could move without end."""
    return Unsupported(
        f"{what} no bound, so no amount of noise would hide one unit.",
        fix=f"Give {cap}=..., declare it in the policy, or have it estimated: by gate.caps "
        '(noisegate caps), or in SQL by epsilon and choose="caps"; beside an accuracy, epsilon is '
        "the most that it may cost.",
        about="cap",
    )
