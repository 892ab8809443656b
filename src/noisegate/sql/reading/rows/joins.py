"""Joins: which pairs of rows belong together, and whose they are."""

from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Expression, Field, Literal, fields_of
from noisegate.algebra.relation import Filter, Join, JoinKind, Matching, Project
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import kind_of
from noisegate.sql.reading.sight import Name, Rows, SelectReader, conjuncts, field_of, find, unknown
from noisegate.sql.reading.values.operands import both
from noisegate.sql.reading.words import Node, attempt, fold, refusal, require_only
from noisegate.transforms.stability import require_one_space

_ALWAYS: Final = (Literal(1), Literal(1))  # besides the owner, if both sides have one


@final
@dataclass(frozen=True, slots=True)
class Equality:
    """One equality of a join: the values that must be equal; ``same``: so are the owners."""

    pair: tuple[Expression, Expression] | None
    same: bool = False


def same_owner(one: Name, other: Name) -> bool:
    """Whether rows that agree in these columns have one owner: by the unit, or a foreign key."""
    if (one.owner or one.partly) and (other.owner or other.partly):
        return True
    links = [link for link in (one.link, other.link) if link is not None]
    places = [place for place in (one.origin, other.origin) if place is not None]
    return any(link in places for link in links) or (len(links) == 2 and links[0] == links[1])


def equality(one: Name, other: Name) -> Equality:
    """The equality of two columns."""
    if one.owner and other.owner:
        return Equality(None, same=True)
    return Equality((field_of(one), field_of(other)), same=same_owner(one, other))


def joined(left: Rows, right: Rows, node: exp.Join, pool: list[Node]) -> Rows:
    """``left JOIN right``. A comma join takes its equalities out of ``pool``, parts of WHERE."""
    side, kind = _kind(node)
    right = apart(left, right)
    equalities, rest, names = _conditions(left, right, node, pool, from_right=side == "RIGHT")
    if kind in ("SEMI", "ANTI"):
        if rest:
            raise Unsupported(
                f"{kind} JOIN has a condition other than equality.", fix="Use EXISTS.", about="join"
            )
        return matching(left, right, equalities, negated=kind == "ANTI")
    kept, other = (right, left) if side == "RIGHT" else (left, right)
    flipped = kept is right
    if not side and left.unit is None and right.unit is not None:
        kept, other, flipped = right, left, True
    if flipped:
        equalities = [
            replace(one, pair=None if one.pair is None else one.pair[::-1]) for one in equalities
        ]
    equalities = alike(kept, other, equalities)
    if side:
        other, rest = _marked(_pushed(other, rest), kept), []
        names = tuple(_partly(name, other) for name in names)
    _require_joinable(kept, other, equalities, one_sided=bool(side))
    kind_of_join = JoinKind.LEFT if side else JoinKind.INNER
    made = Join(kept.relation, other.relation, _on(kept, equalities), kind_of_join)
    rows = Rows(
        relation=made,
        names=names,
        unit=kept.unit,
        path=(*kept.path, f"joined with {', '.join(other.path)}"),
        hidden=(*kept.hidden, *other.hidden),
    )
    rows.schema  # noqa: B018 - refuses here what does not fit
    return rows.filtered(both(*rest)) if rest else rows


def matching(rows: Rows, other: Rows, equalities: list[Equality], *, negated: bool) -> Rows:
    """The rows that have (or have not) a partner."""
    require_tied(rows, other, equalities)
    pairs = tuple(one.pair for one in alike(rows, other, equalities) if one.pair is not None)
    words = f"with {'no ' if negated else 'a '}partner in {', '.join(other.path)}"
    made = rows.made(Matching(rows.relation, other.relation, pairs, negated), words)
    made.schema  # noqa: B018 - refuses here what does not fit
    return made


def require_tied(
    rows: Rows, other: Rows, equalities: list[Equality], *, is_tied: bool = False
) -> None:
    """Refuse partners that are not tied to the rows, or may be those of another unit."""
    if other.unit is not None:
        _require_one_unit(rows, other, equalities)
    elif not equalities and not is_tied:
        raise Unsupported(
            "A sub-query is not correlated with the rows.",
            fix="Compare one of its columns with a column of the outer query.",
            about="uncorrelated",
        )


def _kind(node: exp.Join) -> tuple[str, str]:
    require_only(node, "this", "side", "kind", "on", "using", "method")
    side, kind, method = (node.text(part).upper() for part in ("side", "kind", "method"))
    if method or side == "FULL":
        raise refusal(f"{method or side} JOIN")
    if kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
        raise refusal(f"{kind} JOIN")
    return side, kind


def apart(left: Rows, right: Rows) -> Rows:
    """The right side with fields that the left does not have."""
    taken = {fold(name) for name in left.schema}
    fresh: dict[str, str] = {}
    for name in right.schema:
        new, count = name, 1
        while fold(new) in taken:
            count += 1
            new = f"{name}_{count}"
        taken.add(fold(new))
        fresh[name] = new
    if all(name == new for name, new in fresh.items()):
        return right
    names = [
        replace(name, field=name.field and fresh[name.field], mark=name.mark and fresh[name.mark])
        for name in right.names
    ]
    columns = tuple((new, Field(name)) for name, new in fresh.items())
    return replace(
        right,
        relation=Project(right.relation, columns),
        names=tuple(names),
        key=tuple(fresh[name] for name in right.key),
    )


def _conditions(
    left: Rows, right: Rows, node: exp.Join, pool: list[Node], *, from_right: bool
) -> tuple[list[Equality], list[Expression], tuple[Name, ...]]:
    """The equalities across, the other conditions, and the names in sight of the pairs."""
    names = (*left.names, *right.names)
    equalities: list[Equality] = []
    for column in node.args.get("using") or ():
        asked = exp.column(column.name)
        one, other = find(asked, left.names), find(asked, right.names)
        if one is None or other is None:
            raise unknown(asked, left if one is None else right)
        equalities.append(equality(one, other))
        hidden = one if from_right else other
        names = tuple(replace(name, merged=True) if name is hidden else name for name in names)
    sides = Sides(left, right, names)
    rest: list[Expression] = []
    if node.args.get("on") is None and not equalities:
        found = [(part, attempt(lambda part=part: sides.across(part))) for part in pool]  # type: ignore[misc]
        for part, one_found in found:
            if one_found is not None:
                equalities.append(one_found)
                pool.remove(part)
    for part in conjuncts(node.args.get("on")):
        across = sides.across(part)
        if across is not None:
            equalities.append(across)
        else:
            rest.append(sides.sight.reading.condition(part))
    return equalities, rest, names


@final
@dataclass(frozen=True, slots=True)
class Sides:
    """Two relations about to be joined, and the names of both."""

    left: Rows
    right: Rows
    names: tuple[Name, ...]

    @property
    def sight(self) -> SelectReader:
        """Reads expressions over the pairs of rows."""
        joint = Join(self.left.relation, self.right.relation, (_ALWAYS,))
        hidden = (*self.left.hidden, *self.right.hidden)
        return SelectReader(Rows(relation=joint, names=self.names, unit=None, hidden=hidden))

    def across(self, part: Node) -> Equality | None:
        """The equality that a condition is, if its two sides are the two sides of the join."""
        if not isinstance(part, exp.EQ):
            return None
        one, other = part.this.unnest(), part.expression.unnest()
        if isinstance(one, exp.Column) and isinstance(other, exp.Column):
            found = (find(one, self.names), find(other, self.names))
            if found[0] is not None and found[1] is not None:
                by_left = [name in self.left.names for name in (*found,)]
                if by_left[0] != by_left[1]:
                    pair = found if by_left[0] else found[::-1]
                    return equality(*pair)  # type: ignore[arg-type]
        reading = self.sight.reading
        values = reading.compared(one, other)
        left, right = self.left.schema, self.right.schema
        for first, second in (values, values[::-1]):
            here, there = set(fields_of(first)), set(fields_of(second))
            if here and there and here <= left.keys() and there <= right.keys():
                return Equality((first, second))
        return None


def _pushed(other: Rows, rest: list[Expression]) -> Rows:
    """Conditions of a one-sided join on the side that may lack a partner, asked before joining."""
    fields = other.schema.keys()
    if any(not set(fields_of(one)) <= fields for one in rest):
        raise Unsupported(
            "A LEFT JOIN has a condition on the left table that is not an equality.",
            fix="Move it to WHERE, or use JOIN.",
            about="join",
        )
    return replace(other, relation=Filter(other.relation, both(*rest))) if rest else other


def _marked(other: Rows, kept: Rows) -> Rows:
    """The side that may lack a partner, with a field that tells where an owner has none."""
    if all(name.field or not name.owner for name in other.names):
        return other
    mark = "partner"
    while fold(mark) in {fold(name) for rows in (other, kept) for name in rows.schema}:
        mark += "_"
    columns: list[tuple[str, Expression]] = [(name, Field(name)) for name in other.schema]
    columns.append((mark, Literal(True)))  # noqa: FBT003 - a value
    names = (
        name if name.field or not name.owner else replace(name, mark=mark) for name in other.names
    )
    return replace(other, relation=Project(other.relation, tuple(columns)), names=tuple(names))


def _partly(name: Name, other: Rows) -> Name:
    """After a one-sided join the other side's owner may be missing."""
    same = (
        one
        for one in other.names
        if name.field == one.field and (name.table, name.name) == (one.table, one.name)
    )
    if (mine := next(same, None)) is None:
        return name
    partly, lacking = name.owner or name.partly, name.single or name.lacking
    return replace(name, owner=False, partly=partly, single=False, lacking=lacking, mark=mine.mark)


def _require_joinable(
    kept: Rows, other: Rows, equalities: list[Equality], *, one_sided: bool
) -> None:
    if kept.unit is None and other.unit is not None and one_sided:
        raise Unsupported(
            "An outer join would keep rows of a public table, which belong to no unit.",
            fix="Put the private table on the side that is kept, or use JOIN.",
            about="outer-join",
        )
    if kept.unit is not None and other.unit is not None:
        _require_one_unit(kept, other, equalities)
    elif kept.is_row_level:
        equal = {one.pair[1] for one in equalities if one.pair is not None}
        if not other.key or not {Field(name) for name in other.key} <= equal:
            key = ", ".join(other.key)
            raise Unsupported(
                "A join may multiply rows, and here every row is one unit.",
                fix=f"Join on the whole key of the public table ({key})."
                if key
                else "Declare a key for the public table, and join on it.",
                about="key",
            )


def _require_one_unit(one: Rows, other: Rows, equalities: list[Equality]) -> None:
    if one.unit is None:
        raise Unsupported(
            "Public rows would be selected by private ones, which one person may decide.",
            fix="Start FROM the private table.",
            about="match",
        )
    if one.is_row_level or other.is_row_level:
        raise Unsupported(
            "Two private tables are joined, and in one of them every row is a unit of its own.",
            fix="Name the unit's column in the policy.",
            about="unit",
        )
    require_one_space(one.unit, other.unit)  # type: ignore[arg-type]
    if not any(equal.same for equal in equalities):
        raise Unsupported(
            "Two private tables are joined on something other than the unit.",
            fix=f"Join on {one.unit_name} as well.",
            about="unit",
        )


def _on(kept: Rows, equalities: list[Equality]) -> tuple[tuple[Expression, Expression], ...]:
    pairs = tuple(dict.fromkeys(one.pair for one in equalities if one.pair is not None))
    if not pairs and kept.unit is not None:
        return (_ALWAYS,)
    return pairs


def alike(left: Rows, right: Rows, equalities: list[Equality]) -> list[Equality]:
    """The equalities, in which a column without a type is read as its partner is."""
    found = []
    for one in equalities:
        if one.pair is not None:
            first, second = one.pair
            mine, theirs = kind_of(first, left.schema), kind_of(second, right.schema)
            if mine is not theirs:
                pair = (_as_partner(first, left, theirs), _as_partner(second, right, mine))
                one = replace(one, pair=pair)  # noqa: PLW2901 - the same, read otherwise
        found.append(one)
    return found


def _as_partner(value: Expression, rows: Rows, kind: Kind) -> Expression:
    untyped = SelectReader(rows).untyped.get(value.name) if type(value) is Field else None
    if untyped is None or kind is Kind.TEXT:
        return value
    untyped.take(kind)
    return untyped.read(value)
