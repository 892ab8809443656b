"""Groups that are among the largest, as charts of several series ask for them.

``FROM t JOIN (SELECT x AS y, COUNT(*) AS n FROM t GROUP BY x ORDER BY n DESC LIMIT 5) AS s ON x = y
... GROUP BY day, x`` keeps whole groups: all rows of a group have one x, and each y is there once.
So it is the question without the join, of whose groups HAVING keeps those.
"""

from collections.abc import Iterator

from sqlglot import exp

from noisegate.sql.reading.sight import item_of
from noisegate.sql.reading.words import Node, fold


def kept_by_having(statement: Node) -> None:
    """Write each such join as the condition on groups that it is."""
    for select in list(statement.find_all(exp.Select)):
        joins = list(select.args.get("joins") or ())
        for place, join in enumerate(joins):
            if any(later.side in ("RIGHT", "FULL") for later in joins[place + 1 :]):
                continue  # which keeps rows of its own, in whatever group
            condition = _condition(select, join)
            if condition is not None:
                join.pop()
                select.having(condition, copy=False)


def _condition(  # noqa: PLR0911 - one case after the other
    select: exp.Select, join: exp.Join
) -> Node | None:
    """What the join says of a group; None of another join."""
    source, on = join.this, join.args.get("on")
    inner = source.this if isinstance(source, exp.Subquery) else None
    said = {name for name, arg in join.args.items() if arg} - {"this", "on"}
    if not isinstance(inner, exp.Select) or on is None or said - {"kind"}:
        return None
    if join.kind not in ("", "INNER") or not inner.args.get("limit"):
        return None
    outer, keys = _groups(select), _groups(inner)
    names = {fold(each.alias_or_name): item_of(each) for each in inner.expressions}
    if outer is None or keys is None or _reads(select, join, source.alias, names):
        return None
    pairs = [_pair(each, source.alias, names) for each in _parts(on)]
    known = [each for each in pairs if each is not None]
    matched = [names[name] for name, _, _ in known]
    every = len(known) == len(pairs) and all(_is_one(key, matched) for key in keys)
    if not every or not all(_is_one(own, outer) for _, own, _ in known):
        return None
    rows = exp.select(*(exp.column(name, quoted=True) for name, *_ in known)).from_(source.copy())
    own = [each.copy() for _, each, _ in known]
    kept = exp.In(
        this=own[0] if len(own) == 1 else exp.Tuple(expressions=own), query=rows.subquery()
    )
    if not any(isinstance(equal, exp.NullSafeEQ) for *_, equal in known):
        return kept
    if len(own) > 1:
        return None
    nothing = exp.Is(this=exp.column(known[0][0], quoted=True), expression=exp.null())
    there = exp.Exists(this=rows.where(nothing))
    return exp.or_(kept, exp.and_(exp.Is(this=own[0].copy(), expression=exp.null()), there))


def _parts(on: Node) -> Iterator[Node]:
    inner = on.unnest()
    if isinstance(inner, exp.And):
        for each in inner.flatten():
            yield from _parts(each)
    else:
        yield inner


def _groups(select: exp.Select) -> list[Node] | None:
    """What a SELECT groups by, where this is a plain list."""
    group = select.args.get("group")
    if group is None or {name for name, arg in group.args.items() if arg} != {"expressions"}:
        return None
    items, found = select.expressions, []
    aliases = {fold(each.alias): each.this for each in items if isinstance(each, exp.Alias)}
    for each in group.expressions:
        key = each.unnest()
        if isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal():
            key = item_of(items[int(key.name) - 1]) if 1 <= int(key.name) <= len(items) else key
        elif isinstance(key, exp.Column) and not key.table:
            key = aliases.get(fold(key.name), key)
        found.append(key.unnest())
    return found


def _pair(equal: Node, alias: str, names: dict[str, Node]) -> tuple[str, Node, Node] | None:
    """A column of the joined table by its name, and what it is equal to."""
    if not isinstance(equal, exp.EQ | exp.NullSafeEQ):
        return None
    sides = [equal.this.unnest(), equal.expression.unnest()]
    theirs = [_is_of(side, alias, names) for side in sides]
    if sum(theirs) != 1:
        return None
    column, own = sides if theirs[0] else sides[::-1]
    return fold(column.name), own, equal


def _is_of(node: Node, alias: str, names: dict[str, Node]) -> bool:
    """Whether it is a column of the joined table."""
    if not isinstance(node, exp.Column) or fold(node.name) not in names:
        return False
    return not node.table or fold(node.table) == fold(alias)


def _reads(select: exp.Select, join: exp.Join, alias: str, names: dict[str, Node]) -> bool:
    """Whether anything but the join itself may read the joined table."""
    inside = {id(each) for each in join.walk()}
    others = (each for each in select.find_all(exp.Column) if id(each) not in inside)
    stars = (item.is_star for item in select.expressions)
    return any(stars) or any(_is_of(each, alias, names) for each in others)


def _is_one(node: Node, others: list[Node]) -> bool:
    """Whether it is one of them, whatever tables are named."""
    return any(_plain(node) == _plain(each) for each in others)


def _plain(node: Node) -> Node:
    """The node without the names of tables, and with all names folded."""

    def plain(each: Node) -> Node:
        return exp.column(fold(each.name)) if isinstance(each, exp.Column) else each

    return node.copy().transform(plain)
