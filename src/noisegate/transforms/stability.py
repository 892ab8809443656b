"""Whose rows a relation holds, and how many of one unit. Unknown means refused.

Claim: for every relation accepted here, the rows of a unit depend on that unit's own rows and on
    public rows alone; so when a unit comes or goes, exactly the rows of that unit come or go.
Adjacency: add/remove one unit, with all its rows in all tables. A row of a table with a path whose
    foreign key names several units belongs to each of them and leaves with the last.
Why: by induction over the tree. A filter and a projection look at one row. Two private relations
    are joined, or matched, within one owner only, since every writer adds that equality. Folding is
    within one owner. A window looks at the rows of one owner, in an order that these rows decide.
    A union keeps the parts' owners. A row without an owner is left out.
One id space: relations that meet have owners of one space (`PrivacyUnit.ids`), so equal owners are
    one unit. Were patient 5 and doctor 5 taken for one, the doctor's rows would count otherwise
    when the patient goes: caps, folds and matches are by owner.
"""

from collections.abc import Callable
from typing import Any, Final, final

from noisegate.algebra.expression import Call, Expression, Field, Literal
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import (
    Filter,
    Fold,
    Join,
    JoinKind,
    Matching,
    Partnered,
    PerUnit,
    Project,
    Relation,
    Sampled,
    Table,
    Union,
    Windowed,
)
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.unit import PrivacyUnit

GROWTH_MAX: Final = 3
TIMES_MAX: Final = 10**7  # public rows that one private row may meet: an engine does it in a second
_PLACE: Final = (Fold.COUNT, Literal(1), (), (None, 0))  # a row's number among its owner's


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Facts about the rows of one unit in a relation.

    ``rows`` is how many there can be at most, None if there is no bound. ``owned`` are columns that
    hold the same value in all rows of a unit. ``identity`` are columns that no two rows of a unit
    share all values of; None if there are none. ``unique`` is the same for all rows of a public
    relation. ``numbered`` are columns of whole numbers from 1 on, no two alike in a unit.
    ``size`` is how many rows a public relation has at most, if that is known; ``times`` how many
    public rows a private one may have met. ``growth`` counts joins that multiply rows. ``path``
    says in words how it came about.
    """

    is_private: bool
    is_row_level: bool = False
    rows: int | None = None
    owned: frozenset[str] = frozenset()
    identity: frozenset[str] | None = None
    unique: frozenset[str] | None = None
    numbered: frozenset[str] = frozenset()
    tables: tuple[TableDomain, ...] = ()
    size: int | None = None
    times: int = 1
    growth: int = 0
    path: tuple[str, ...] = field(default=(), compare=False)


@remembered
def stability_of(relation: Relation) -> Stability:
    """The facts, or a refusal."""
    rule = _RULES.get(type(relation))
    if rule is None:
        raise Unsupported(
            "This is not a relation.", fix="Use the relations of the algebra.", about="relation"
        )
    return rule(relation)


def _filter(relation: Filter) -> Stability:
    """Rows that a condition keeps; of numbered ones at most as many as it lets numbers through."""
    below = stability_of(relation.of)
    bounds = [below.rows, *(_first(part, below.numbered) for part in _parts(relation.condition))]
    rows = min((bound for bound in bounds if bound is not None), default=None)
    words = "filter: each row is kept or dropped by its own values"
    return _then(replace(below, rows=rows), words)


def _parts(condition: Expression) -> tuple[Expression, ...]:
    is_and = type(condition) is Call and condition.function == "and"
    return condition.args if is_and else (condition,)  # type: ignore[union-attr]


def _first(part: Expression, numbered: frozenset[str]) -> int | None:
    """How many numbers from 1 on a condition n = 3, n <= 3 or n < 4 is true of at most."""
    if type(part) is not Call or len(part.args) != 2 or not numbered:
        return None
    field, limit = part.args
    if type(field) is not Field or field.name not in numbered or type(limit) is not Literal:
        return None
    if type(limit.value) is not int or part.function not in ("eq", "le", "lt"):
        return None
    most = {"eq": 1, "le": limit.value, "lt": limit.value - 1}[part.function]
    return max(most, 1)


def _sampled(relation: Sampled) -> Stability:
    """An owner's rows are there together or not at all.

    Where every row is one owner, rows are sampled, so there must be one of each.
    """
    below = stability_of(relation.of)
    if not below.is_private or (below.is_row_level and below.rows != 1):
        raise Unsupported(
            "Only rows that belong to units can be sampled.",
            fix="Sample one private table, or name its units.",
        )
    return _then(below, f"a secret sample: each unit with probability {relation.probability}")


def _then(below: Stability, words: str) -> Stability:
    return replace(below, path=(*below.path, words))


def _table(relation: Table) -> Stability:
    table = relation.domain
    if table.unit is None:
        unique = frozenset(table.key) if table.key else None
        words = f"{table.name}: public"
        return Stability(
            is_private=False, unique=unique, tables=(table,), size=table.size, path=(words,)
        )
    if table.unit.column is None:
        words = f"{table.name}: every row is one {table.unit.noun}"
        return Stability(is_private=True, is_row_level=True, rows=1, tables=(table,), path=(words,))
    steps = [f"{step.column} → {step.table}.{step.key}" for step in table.path]
    way = ", ".join([*steps, table.unit.column])
    held = table.columns.get(table.unit.column)
    seen = held is not None and not held.hidden and not table.path
    owned = frozenset({table.unit.column}) if seen else frozenset()
    return Stability(
        is_private=True,
        owned=owned,
        tables=(table,),
        path=(f"{table.name}: rows belong to one {table.unit.noun} by {way}",),
    )


def _project(relation: Project) -> Stability:
    below = stability_of(relation.of)
    names = {expr.name: name for name, expr in relation.columns if type(expr) is Field}
    return replace(
        below,
        owned=frozenset(
            name for name, expr in relation.columns
            if type(expr) is Field and expr.name in below.owned
        ),
        identity=_renamed(below.identity, names),
        unique=_renamed(below.unique, names),
        numbered=frozenset(
            name for name, expr in relation.columns
            if type(expr) is Field and expr.name in below.numbered
        ),
    )  # fmt: skip


def _renamed(names: frozenset[str] | None, to: dict[str, str]) -> frozenset[str] | None:
    if names is None or not names <= to.keys():
        return None
    return frozenset(to[name] for name in names)


def _join(relation: Join) -> Stability:
    left, right = stability_of(relation.left), stability_of(relation.right)
    tables, growth = (*left.tables, *right.tables), _grown(relation, left, right)
    return replace(_joined(relation, left, right), tables=tables, growth=growth)


def _grown(relation: Join, left: Stability, right: Stability) -> int:
    """How many joins multiply rows. Few may: else a row could outgrow the engine, and show."""
    once = _is_once(relation, left, right)
    return _require_growth(left.growth + right.growth + (0 if once else 1))


def _is_once(relation: Join, left: Stability, right: Stability) -> bool:
    """Whether rows of one side have one partner at most."""
    return any(
        _equated(relation.on, side, facts.unique) for side, facts in enumerate((left, right))
    )


def _require_growth(growth: int) -> int:
    if growth > GROWTH_MAX:
        raise Unsupported(
            f"More than {GROWTH_MAX} joins multiply rows.",
            fix="Declare keys of public tables, or aggregate per unit first.",
            about="growth",
        )
    return growth


def _joined(relation: Join, left: Stability, right: Stability) -> Stability:
    path = (*left.path, *right.path)
    if not left.is_private and not right.is_private:
        size = None if left.size is None or right.size is None else left.size * right.size
        if size is not None and _is_once(relation, left, right):
            size = (left.size or 0) + (right.size or 0)
        return Stability(is_private=False, size=size, path=path)
    if left.is_private and right.is_private:
        _require_owners(left, right)
        times = _require_times(left.times * right.times)
        owned = left.owned | (frozenset() if relation.kind is JoinKind.LEFT else right.owned)
        words = "join within one unit: its rows pair up among themselves"
        return Stability(is_private=True, owned=owned, times=times, path=(*path, words))
    private, public = (left, right) if left.is_private else (right, left)
    if relation.kind is JoinKind.LEFT and not left.is_private:
        raise Unsupported(
            "An outer join would keep public rows, which have no owner.",
            fix="Put the private table on the left: FROM private LEFT JOIN public.",
            about="outer-join",
        )
    side = 1 if left.is_private else 0
    once = _equated(relation.on, side, public.unique)
    if private.is_row_level and not once:
        raise Unsupported(
            "This join could multiply a row, and every row is one person.",
            fix="Join on all columns of the public table's declared key.",
            about="multiplied",
        )
    words = "join with a public table" + (": at most one match" if once else "")
    return replace(
        private,
        rows=private.rows if once else None,
        identity=private.identity if once else None,
        numbered=private.numbered if once else frozenset(),
        times=private.times if once else _require_times(private.times * _size(public)),
        path=(*path, words),
    )


def _size(public: Stability) -> int:
    """How many rows there may be; where that is not known, joins are bounded by `GROWTH_MAX`."""
    return 1 if public.size is None else max(1, public.size)


def _require_times(times: int) -> int:
    """Refuse what would keep an engine busy for one row: by its time limit, it would show."""
    if times > TIMES_MAX:
        raise Unsupported(
            f"One private row would match more than {TIMES_MAX:,} rows of public tables.",
            fix="Join on all columns of the public table's declared key, or join fewer tables.",
            about="growth",
        )
    return times


def _equated(
    on: tuple[tuple[Expression, Expression], ...], side: int, unique: frozenset[str] | None
) -> bool:
    """Whether all columns of the unique key are equated with something of the other side."""
    named = (pair[side] for pair in on)
    return unique is not None and unique <= {e.name for e in named if type(e) is Field}


def _require_owners(one: Stability, other: Stability) -> None:
    if one.is_row_level or other.is_row_level:
        raise Unsupported(
            "Rows that are one person each cannot be matched with other private rows.",
            fix="Name the unit's column of both tables in the policy.",
            about="units",
        )
    require_one_space(*units_of((*one.tables, *other.tables)))


def require_one_space(*units: PrivacyUnit) -> None:
    """Refuse units of several id spaces: their equal ids may be different people's."""
    spaces = {(unit.ids, unit.noun): unit for unit in units}
    if len(spaces) > 1:
        first, second = list(spaces.values())[:2]
        raise Unsupported(
            f"The tables use different id spaces for their units, {first.ids!r} and "
            f"{second.ids!r}: equal ids may be different people.",
            fix="Ask about each in a separate question; or, if they are the same people, declare "
            f"it in the policy for both tables: unit = {{ column = {second.column!r}, ids = "
            f"{first.noun!r} }}.",
            about="id-space",
        )


def _matching(relation: Matching) -> Stability:
    of, other = _with_partners(relation)
    words = "kept where the unit itself has a match" if other.is_private else "public condition"
    return _then(of, words)


def _partnered(relation: Partnered) -> Stability:
    """Each row stays, with folds of its partners.

    Claim: a unit's rows depend on its own rows, and on public rows; there are as many as before.
    Adjacency: add/remove one unit. Why: every writer looks for partners among the same owner's rows
        where partners are private, and folds do not depend on the order of rows. The engine may
        pair up rows as a join does, though none stays.
    """
    of, other = _with_partners(relation)
    _require_growth(stability_of(relation.of).growth + other.growth + 1)
    whose = "the unit's own rows" if other.is_private else "public rows"
    return _then(of, f"each row with counts and sums over {whose}")


def _with_partners(relation: Matching | Partnered) -> tuple[Stability, Stability]:
    """Facts about both sides; where the other is private, so is the first, with its owners."""
    of, other = stability_of(relation.of), stability_of(relation.other)
    if other.is_private:
        if not of.is_private:
            raise Unsupported(
                "Which public rows have a private match is not public.",
                fix="Start from the private table, and use the public one in the condition.",
                about="match",
            )
        _require_owners(of, other)
    else:
        _require_times(of.times * _size(other))
    tables, growth = (*of.tables, *other.tables), max(of.growth, other.growth)
    return replace(of, tables=tables, growth=growth), other


def _windowed(relation: Windowed) -> Stability:
    """Each row stays, with what windows over its owner's rows say of it.

    Claim: a unit's rows, as a multiset, depend on its own rows alone; there are as many as before.
    Adjacency: add/remove one unit. Why: every writer partitions by the owner, whatever else, so a
        window sees one owner's rows. Ranks, and folds up to a row's equals, do not depend on how
        equals are ordered. Whatever counts rows orders them by all columns at last: rows that are
        still equal are equal in everything, so it does not show which of them comes first. Were
        ties the engine's choice, it could follow from where the rows of others lie. How many rows
        of the owner there are up to a row is a number that no other of them has.
    """
    below = stability_of(relation.of)
    if not below.is_private or below.is_row_level:
        raise Unsupported(
            "A window would mix the rows of several units.",
            fix="Name the unit's column in the policy, and PARTITION BY it.",
            about="window",
        )
    places = frozenset(
        each.name
        for each in relation.windows
        if (each.how, each.expression, each.keys, each.frame) == _PLACE
    )
    words = "windows within one unit's rows"
    return _then(replace(below, numbered=below.numbered | places), words)


def _per_unit(relation: PerUnit) -> Stability:
    below = stability_of(relation.of)
    if not below.is_private or below.is_row_level:
        raise Unsupported(
            "Grouping by unit needs rows that belong to units.",
            fix="Name the unit's column in the policy.",
            about="units",
        )
    plain = [(name, expr.name) for name, expr in relation.keys if type(expr) is Field]
    owned = {name for name, inside in plain if inside in below.owned}
    others = frozenset(name for name, _ in relation.keys) - owned
    per = f" and {', '.join(sorted(others))}" if others else ""
    return replace(
        below,
        rows=None if others else 1,
        owned=frozenset(owned),
        identity=others,
        numbered=frozenset(),
        path=(*below.path, f"one row for each unit{per}"),
    )


def _union(relation: Union) -> Stability:
    parts = [stability_of(part) for part in relation.parts]
    if len({(part.is_private, part.is_row_level) for part in parts}) > 1:
        raise Unsupported(
            "The parts of a union have different owners.",
            fix="Unite tables of one unit, or public ones.",
            about="owners",
        )
    first = parts[0]
    if first.is_private and not first.is_row_level:
        for part in parts[1:]:
            _require_owners(first, part)
    rows, sizes = [part.rows for part in parts], [part.size for part in parts]
    return Stability(
        is_private=first.is_private,
        is_row_level=first.is_row_level,
        rows=None if None in rows else sum(row for row in rows if row is not None),
        tables=tuple(table for part in parts for table in part.tables),
        size=None if None in sizes else sum(size for size in sizes if size is not None),
        times=max(part.times for part in parts),
        growth=max(part.growth for part in parts),
        path=(*(words for part in parts for words in part.path), "union: rows of all parts"),
    )


_RULES: Final[dict[type, Callable[[Any], Stability]]] = {
    Table: _table,
    Filter: _filter,
    Project: _project,
    Join: _join,
    Matching: _matching,
    Partnered: _partnered,
    PerUnit: _per_unit,
    Sampled: _sampled,
    Union: _union,
    Windowed: _windowed,
}
