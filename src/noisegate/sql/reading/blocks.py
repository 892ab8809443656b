"""A SELECT that aggregates private rows: what is measured, and the free SQL over its release."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, final

import sqlglot
from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of, fields_of
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Key, Kind
from noisegate.sql.question import Aggregate, Block, Function, GroupKey
from noisegate.sql.reading.clock import Clock
from noisegate.sql.reading.conditions.facts import Facts, spanned
from noisegate.sql.reading.conditions.narrowing import Public, facts_of
from noisegate.sql.reading.groups.aggregates import (
    AskedAggregate,
    Core,
    asked,
    in_terms,
    made_of,
    on_line,
    shared_cores,
    without_names,
    written,
)
from noisegate.sql.reading.groups.grouping import Groups
from noisegate.sql.reading.groups.keys import core_of_key, line_of_key, written_key
from noisegate.sql.reading.literals import is_whole_arithmetic
from noisegate.sql.reading.sight import Name, SelectReader, is_aggregate, item_of, plain_name
from noisegate.sql.reading.untyped import Untyped
from noisegate.sql.reading.words import Node, at, attempt, fold, refusal, require_only

if TYPE_CHECKING:
    from noisegate.curator.partition import Part

_FINDABLE: Final = (Kind.TEXT, Kind.INTEGER, Kind.DATE)
_PAIRS_MAX: Final = 300  # keys of one public table that are told by its rows
_TYPES: Final = {
    Kind.BOOLEAN: "BOOLEAN", Kind.INTEGER: "BIGINT", Kind.NUMBER: "DOUBLE", Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}  # fmt: skip
_KEPT: Final = (
    "with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "order",
    "limit", "offset", "qualify", "windows",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Given:
    """What a question is read with besides the tables.

    ``public`` gives the rows of a public table, which say what groups conditions on them leave.
    With ``lines``, sums that differ by constants are one sum and one count, keys one key.
    ``first`` gives the number of a sub-query, as SQL, that is measured before the question.
    ``part`` is the part of the units that all private rows begin with. The ``clock`` says what time
    it is.
    """

    public: Public | None = None
    lines: bool = False
    first: Callable[[str], Expression] | None = None
    part: "Part | None" = None
    clock: Clock | None = None


def block_of(
    select: exp.Select,
    sight: SelectReader,
    groups: Groups,
    name: str,
    nested: Callable[[Node], Node],
    given: Given,
) -> tuple[Block, tuple[str, ...]]:
    """The block that the SELECT asks for; the SELECT becomes free SQL over columns of its table.

    ``nested`` makes free SQL of a sub-query. Also returns the names that the SELECT shows. What the
    SELECT then reads FROM is the caller's to say.
    """
    require_only(select, *_KEPT)
    facts = facts_of(sight.rows.relation, given.public) if groups.targets else Facts({})
    shared = _shared(select, sight) if given.lines else frozenset[Core]()
    making = _Making(sight, groups, name, nested, facts, shared)
    with at(select.args.get("group")):
        keys = tuple(making.key(index, target) for index, target in enumerate(groups.targets))
    shown = _names(select.expressions)
    items = []
    for item, alias in zip(select.expressions, shown, strict=True):
        items.append(exp.alias_(making.rewritten(item_of(item)), alias, quoted=True))
    having = select.args.get("having")
    conditions = [] if having is None else [making.rewritten(having.this)]
    conditions += making.existing(keys) if given.public is not None else []
    where = exp.Where(this=exp.and_(*conditions)) if conditions else None
    for part in ("qualify", "limit", "offset", "order"):
        if clause := select.args.get(part):
            select.set(part, making.below(clause))
    select.set("windows", [making.below(one) for one in select.args.get("windows") or ()])
    select.set("expressions", items)
    for part in ("joins", "group", "having"):
        select.set(part, None)
    select.set("where", where)
    if not making.aggregates and all(type(each) is Literal for each in groups.targets):
        raise Unsupported(
            "The query selects only constants, so the answer would show whether any row exists.",
            fix="Count the rows: COUNT(*).",
            about="constants",
        )
    relation, meant = without_names(sight.rows.relation)
    block = Block(
        name=name,
        relation=relation,
        by=tuple(replace(key, expression=in_terms(key.expression, meant)) for key in keys),
        sets=tuple(groups.sets),
        aggregates=tuple(
            replace(
                each,
                args=tuple(in_terms(arg, meant) for arg in each.args),
                where=None if each.where is None else in_terms(each.where, meant),
            )
            for each in making.aggregates
        ),
        path=sight.rows.path,
    )
    return block, shown


def _shared(select: exp.Select, sight: SelectReader) -> frozenset[Core]:
    """What several sums of the SELECT have in common."""
    clauses = [*select.expressions, *(select.args.get(one) for one in ("having", "order"))]
    calls = (
        each
        for clause in clauses
        if clause is not None
        for each in clause.find_all(exp.Sum, exp.Avg, exp.Filter)
        if not isinstance(each.parent, exp.Filter | exp.Window)
    )
    found = (attempt(lambda each=each: asked(each, sight)) for each in calls)  # type: ignore[misc]
    return shared_cores(each for each in found if each is not None)


def _same_row(columns: Sequence[Node], row: Sequence[Key]) -> Node:
    pairs = zip(columns, row, strict=True)
    return exp.and_(
        *(
            exp.Is(this=column.copy(), expression=exp.null())
            if value is None
            else exp.EQ(this=column.copy(), expression=exp.convert(value))
            for column, value in pairs
        )
    )


def _names(items: list[Node]) -> tuple[str, ...]:
    """Names as DuckDB gives them, COUNT(*) as "count", none of them twice."""
    given = [fold(item.alias) for item in items if isinstance(item, exp.Alias)]
    for name in given:
        if given.count(name) > 1:
            raise Unsupported(
                f"Two columns are called {name!r}.", fix="Name one of them with AS.", about="name"
            )
    shown: list[str] = []
    for item in items:
        if isinstance(item, exp.Alias):
            shown.append(item.alias)
            continue
        name, count = plain_name(item), 0
        taken = {*given, *map(fold, shown)}
        while fold(name) in taken:
            count += 1
            name = f"{plain_name(item)}_{count}"
        shown.append(name)
    return tuple(shown)


@final
@dataclass(frozen=True, slots=True)
class _Making:
    """Collects aggregates while clauses are rewritten over the released table."""

    sight: SelectReader
    groups: Groups
    name: str
    nested: Callable[[Node], Node]
    facts: Facts
    shared: frozenset[Core] = frozenset()
    aggregates: list[Aggregate] = field(default_factory=list)

    def key(self, index: int, target: Name | Expression) -> GroupKey:
        """A group key, whose groups are known, or can be found privately."""
        if isinstance(target, Name):
            raise refusal("GROUP BY the unit")
        domain = domain_of(target, self.sight.reading.schema)
        if (untyped := self._untyped(target)) is not None:
            untyped.mark(grouped=True)
        left = spanned(self.facts, target)
        if left.domain.keys is None and domain.kind not in _FINDABLE:
            self._take_whole(target)
            bins = (
                "DATE_TRUNC('day', x)"
                if domain.kind is Kind.TIMESTAMP
                else "bins, such as FLOOR(x / 10) * 10 with declared bounds"
            )
            schema = self.sight.reading.schema
            loose = [name for name in fields_of(target) if not schema[name].is_bounded]
            if loose and isinstance(target, Call):
                other = f"BIN(LEAST(GREATEST({loose[0]}, 0), 99), 10) with bounds of your own"
                if domain.kind is Kind.TIMESTAMP:
                    other = f"DATE_TRUNC('day', {loose[0]}): days are found by partition selection"
                raise Unsupported(
                    f"The bins of {loose[0]!r} are unbounded: its bounds are not declared.",
                    fix=f"Declare between = [low, high] for {loose[0]!r}, or group by {other}.",
                    about="bounds",
                )
            raise Unsupported(
                f"A column of type {domain.kind.value} has no list of groups.",
                fix=f"Group by {bins}.",
                about="groups",
            )
        if left.domain.keys is None:
            found = replace(domain, nullable=left.domain.nullable)
            return GroupKey(name=f"k{index}", expression=target, domain=found)
        keys, nullable = left.domain.keys, left.domain.nullable
        if domain.keys not in (None, keys) and not left.closed:  # a partner's are not declared here
            declared = set(domain.keys or ())
            keys = tuple(key for key in keys if key in declared)
        if self.facts.none:
            keys, nullable = (), False
        shown = replace(domain, keys=keys, nullable=nullable)
        return GroupKey(name=f"k{index}", expression=target, domain=shown, closed=left.closed)

    def _take_whole(self, target: Name | Expression) -> None:
        """Read columns without types as whole numbers, where a key of such is one: ip - 1."""
        if is_whole_arithmetic(target):
            for name in fields_of(target):  # type: ignore[arg-type]
                if (untyped := self.sight.untyped.get(name)) is not None:
                    untyped.take(Kind.INTEGER)

    def existing(self, keys: Sequence[GroupKey]) -> list[Node]:
        """Conditions that keys of one public table are those of one of its rows."""
        found: list[Node] = []
        if len(self.groups.sets) > 1:
            return found
        for places, rows in self.facts.together(self.groups.targets):  # type: ignore[arg-type]
            given = [keys[at].domain for at in places]
            cells = prod(len(each.keys or ()) + each.nullable for each in given)
            if len(rows) < cells and len(rows) <= _PAIRS_MAX:
                named = [self.column(keys[at].name) for at in places]
                found.append(exp.or_(*(_same_row(named, row) for row in sorted(rows, key=repr))))
        return found

    def column(self, name: str) -> Node:
        """A column of the released table."""
        return exp.column(name, table=self.name, quoted=True)

    def below(self, node: Node) -> Node:
        """The node with its children rewritten. ORDER BY may say the name of an item."""
        for child in list(node.iter_expressions()):
            if isinstance(child, exp.Ordered) and self._is_item(child.this):
                continue
            if isinstance(child, exp.Ordered | exp.Order | exp.WindowSpec):
                self.below(child)
            elif isinstance(child, exp.Identifier | exp.Var):
                continue
            else:
                fresh = self._typed(self.rewritten(child))
                if fresh is not child:
                    child.replace(fresh)
        return node

    def _untyped(self, target: Name | Expression) -> Untyped | None:
        return self.sight.untyped.get(target.name) if type(target) is Field else None

    def _typed(self, node: Node) -> Node:
        """A released column of texts, read as the question takes its values for."""
        of = isinstance(node, exp.Column) and node.table == self.name and node.name[:1] == "k"
        untyped = self._untyped(self.groups.targets[int(node.name[1:])]) if of else None
        if untyped is None or untyped.kind in (None, Kind.TEXT):
            return node
        return exp.TryCast(this=node.copy(), to=exp.DataType.build(_TYPES[untyped.kind]))

    def _is_item(self, node: Node) -> bool:
        if not isinstance(node, exp.Column) or node.table or node.find_ancestor(exp.Window):
            return False
        return fold(node.name) in (*self.sight.aliases, "all")

    def rewritten(self, node: Node) -> Node:
        """The node over the released table: keys and aggregates become its columns."""
        with at(node):
            return self._rewritten(node)

    def _rewritten(self, node: Node) -> Node:
        if is_aggregate(node):
            other = made_of(node)
            return self._aggregate(node) if other is None else self.below(other)
        if isinstance(node, exp.Query) and node not in self.sight.known:
            return self.nested(node)
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self._grouping(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        if isinstance(node, exp.Star):
            raise Unsupported(
                "SELECT * would show rows, and rows stay private.",
                fix="Name columns, and aggregate them.",
                about="rows",
            )
        if (key := self._key(attempt(lambda: self.sight.target(node)))) is not None:
            return key
        return self._alias(node) if isinstance(node, exp.Column) else self.below(node)

    def _key(self, found: Name | Expression | None) -> Node | None:
        """The column of a key, or of one that it differs from by constants."""
        if found in self.groups.targets:
            return self.column(f"k{self.groups.targets.index(found)}")
        if found is None or isinstance(found, Name):
            return None
        line = line_of_key(found, self.sight.rows.relation)
        if line[0] not in self.groups.targets:
            return None
        return written_key(self.column(f"k{self.groups.targets.index(line[0])}"), line)

    def _window(self, node: exp.Window) -> Node:
        """The head of a window runs over released rows, so it is not an aggregate of the block."""
        head = node.this
        while isinstance(head, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            for child in list(head.iter_expressions()):
                if isinstance(child, exp.Where):
                    self.below(child)
            head = head.this
        self.below(head)
        for child in list(node.iter_expressions()):
            if child is node.this or isinstance(child, exp.Identifier | exp.Var):
                continue
            is_clause = isinstance(child, exp.Order | exp.Ordered | exp.WindowSpec)
            fresh = self.below(child) if is_clause else self.rewritten(child)
            if fresh is not child:
                child.replace(fresh)
        return node

    def _alias(self, column: exp.Column) -> Node:
        """An item that SELECT names; any other column is a row's."""
        alias = None if column.table else self.sight.aliases.get(fold(column.name))
        if alias is None:
            self.sight.name(column)
            raise Unsupported(
                f"Column {column.name!r} is neither grouped by nor aggregated, and rows do not "
                "leave the gate.",
                fix="Add it to GROUP BY, or aggregate it.",
                about="rows",
            )
        if attempt(lambda: SelectReader(self.sight.rows).name(column)) is not None:
            raise Unsupported(
                f"{column.name!r} is both a column and an alias in SELECT.",
                fix="Choose another alias.",
                about="name",
            )
        inner = replace(self, sight=self.sight.without(fold(column.name)))
        return exp.Paren(this=inner.rewritten(alias.copy()))

    def _aggregate(self, node: Node) -> Node:
        ask = asked(node, self.sight)
        parts = on_line(ask, self.shared, self.sight.reading.schema)
        if parts is None:
            return self._measured(ask)
        of, count, line = parts
        counted = ask.function is Function.SUM and line[2]
        return written(self._measured(of), line, self._measured(count) if counted else None)

    def _measured(self, ask: AskedAggregate) -> Node:
        """The column that an aggregate is released as; equal ones share it."""
        found: list[Node] = []
        for level in ask.levels or (None,):
            wanted = Aggregate(
                name="", function=ask.function, args=ask.args, level=level, where=ask.where
            )
            known = next((one for one in self.aggregates if replace(one, name="") == wanted), None)
            if known is None:
                known = replace(wanted, name=f"a{len(self.aggregates)}")
                self.aggregates.append(known)
            found.append(self.column(known.name))
        return exp.Array(expressions=found) if ask.listed else found[0]

    def _grouping(self, node: Node) -> Node:
        """GROUPING(a, b) from the released bits of all keys."""
        count = len(self.groups.targets)
        args = node.expressions
        total: Node = exp.Literal.number(0)
        for place, arg in enumerate(args):
            target = self.sight.target(arg)
            if not isinstance(target, Name) and target not in self.groups.targets:
                target = core_of_key(target, self.sight.rows.relation)
            if target not in self.groups.targets:
                raise Unsupported(
                    "GROUPING names a column that is not in GROUP BY.", fix="Name one that is."
                )
            if len(self.groups.sets) == 1:
                continue
            shift = count - 1 - self.groups.targets.index(target)
            bits = self.column("grouping_id").sql(dialect="duckdb")
            bit = f"(({bits} >> {shift}) & 1) * {1 << (len(args) - 1 - place)}"
            total = exp.Add(this=total, expression=sqlglot.parse_one(bit, dialect="duckdb"))
        return exp.Paren(this=total)
