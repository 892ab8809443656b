"""GROUP BY: the expressions, and the sets of them that are grouped by."""

from itertools import combinations, product
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Expression, Field, Literal
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field
from noisegate.sql.reading.groups.keys import core_of_key
from noisegate.sql.reading.literals import whole
from noisegate.sql.reading.sight import Name, SelectReader, aggregates_in, item_of
from noisegate.sql.reading.words import Node, require_only

_SETS_MAX: Final = 64


@final
@dataclass(frozen=True, slots=True)
class Groups:
    """What is grouped by, each once, and the grouping sets as indexes into it.

    ``singles`` are columns whose groups hold rows of one owner each.
    """

    singles: frozenset[Expression] = frozenset()
    targets: list[Name | Expression] = field(default_factory=list)
    sets: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def by_owner(self) -> bool:
        """Whether each group holds one owner's rows: by the unit, or by a key of its rows."""
        return any(isinstance(one, Name) or one in self.singles for one in self.targets)


def groups_of(select: exp.Select, sight: SelectReader, *, lines: bool = False) -> Groups:
    """What a SELECT groups by; no GROUP BY is the one group of all rows.

    With ``lines``, a constant is not a key, and a key moved by a whole number is the plain one.
    Numbers are counted in steps where keys are shown, and not where each group is of one unit.
    """
    found = _groups_of(select, sight, lines=lines, steps=lines)
    return _groups_of(select, sight, lines=lines, steps=False) if found.by_owner else found


def _groups_of(select: exp.Select, sight: SelectReader, *, lines: bool, steps: bool) -> Groups:
    names = sight.rows.names if sight.rows.unit is not None else ()
    found = Groups(frozenset(Field(one.field) for one in names if one.single and one.field))
    lacking = {Field(one.field): one.name for one in names if one.lacking and one.field}
    group = select.args.get("group")
    if group is None:
        found.sets.append(())
        return found
    require_only(group, "expressions", "all")
    nodes = group.expressions
    if group.args.get("all"):
        nodes = [item_of(one) for one in select.expressions if not aggregates_in(one)]
        nodes = [one for one in nodes if not isinstance(one, exp.Query) or one in sight.known]
    reader = _Sets(select, sight, found, lines, steps)
    for parts in product(*(reader.sets(node) for node in nodes)):
        merged = tuple(dict.fromkeys(index for part in parts for index in part))
        found.sets.append(merged)
        if len(found.sets) > _SETS_MAX:
            raise Unsupported("There are too many grouping sets.", fix="Use fewer columns.")
    if len({frozenset(one) for one in found.sets}) < len(found.sets):
        raise Unsupported(
            "A grouping set is listed twice.", fix="List each once.", about="grouping-set"
        )
    found.sets[:] = [tuple(sorted(one)) for one in found.sets]
    loose = (
        [] if found.by_owner else [name for one, name in lacking.items() if one in found.targets]
    )
    if loose:
        raise Unsupported(
            f"The groups of {loose[0]!r} hold rows of one unit each, so partition "
            "selection would find none, and rows without a match have no group.",
            fix="Use JOIN instead of LEFT JOIN, or group by the column of the kept side.",
            about="unmatched",
        )
    if found.by_owner and len(found.sets) > 1:
        raise Unsupported(
            "Grouping sets contain the unit's column, or a key of its rows.",
            fix="Use a plain GROUP BY in a sub-query.",
            about="grouping-set",
        )
    return found


@final
@dataclass(frozen=True, slots=True)
class _Sets:
    select: exp.Select
    sight: SelectReader
    found: Groups
    lines: bool
    steps: bool

    def sets(self, node: Node) -> list[tuple[int, ...]]:
        """The grouping sets that one element of GROUP BY stands for."""
        if isinstance(node, exp.GroupingSets):  # where a constant is not in the set, it is NULL
            nested = (exp.GroupingSets, exp.Rollup, exp.Cube)
            return [
                one
                for part in node.expressions
                for one in (self.sets(part) if isinstance(part, nested) else [self.indexes(part)])
            ]
        if isinstance(node, exp.Rollup):
            parts = [self.indexes(part) for part in node.expressions]
            return [_flat(parts[:count]) for count in range(len(parts), -1, -1)]
        if isinstance(node, exp.Cube):
            parts = [self.indexes(part) for part in node.expressions]
            if len(parts) > 6:
                raise Unsupported("CUBE has more than 6 columns.", fix="Use GROUPING SETS.")
            return [
                _flat(list(chosen))
                for count in range(len(parts), -1, -1)
                for chosen in combinations(parts, count)
            ]
        plain = self.lines and not isinstance(node, exp.Tuple)
        if plain and type(self.sight.target(self._item(node))) is Literal:
            return [()]  # it cannot differ from row to row
        return [self.indexes(node)]

    def indexes(self, node: Node) -> tuple[int, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(self.index(part) for part in node.expressions)
        return (self.index(node),)

    def _item(self, node: Node) -> Node:
        """What is grouped by; a number is the place of an item."""
        node = node if node in self.sight.known else node.unnest()
        if isinstance(node, exp.Literal) and not node.is_string:
            place = whole(node, "A position in GROUP BY")
            if not 1 <= place <= len(self.select.expressions):
                raise Unsupported(
                    f"GROUP BY {place} is not a position in SELECT.",
                    fix="Name the column.",
                    about="position",
                )
            node = item_of(self.select.expressions[place - 1])
        return node

    def index(self, node: Node) -> int:
        target = self.sight.target(self._item(node))
        if self.lines and not isinstance(target, Name):
            target = core_of_key(target, self.sight.rows.relation, steps=self.steps)
        if target not in self.found.targets:
            self.found.targets.append(target)
        return self.found.targets.index(target)


def _flat(parts: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(index for part in parts for index in part)
