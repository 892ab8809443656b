"""The free SQL with hidden columns: how the ends of what it shows follow from released numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.query.intervals import KEEPING, TWO_SIDED, Array, Ends, rule_of

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.optimizer.scope import Scope

Leaves: TypeAlias = Callable[[str], Array]
_FROM_ZERO: Final = (
    exp.Add, exp.Mul, exp.Div, exp.Greatest, exp.Least, exp.Paren, exp.Nullif, exp.Coalesce,
    exp.Cast, exp.Round, exp.Floor, exp.Ceil,
)  # of numbers from 0 on, they make such numbers  # fmt: skip
_ONE_OF: Final = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)  # the number of another row
_ALL_OF: Final = (exp.Sum, exp.Avg, exp.Min, exp.Max)  # no less where no number is less
_NUMBERS_MAX: Final = 10_000  # that one sum is made of; the bars of more say nothing
_MANY_ROWS: Final = (exp.Window, exp.AggFunc, exp.Query, exp.Subquery, exp.Star)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedBlock:
    """A released table, and the half-widths of its noisy columns at a confidence.

    ``table`` has the block's key columns and aggregates by their names. ``noisy`` are the
    aggregates; ``half_widths(name, confidence)`` gives one for each row, or None for a column
    that has none: in its own unit, of dates in days, of times in hours. ``unsigned`` are aggregates
    that cannot be negative before noise; ``amounts`` are those of them that count or add up, so
    that 0 means that nothing is there; ``lower`` are those of which a cap cuts off nobody knows
    how much.
    """

    table: "pa.Table"
    noisy: tuple[str, ...]
    half_widths: Callable[[str, Fraction], Sequence[float | int | None] | NDArray[Any] | None]
    unsigned: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    lower: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class Item:
    """An item of a SELECT: how its ends follow from hidden columns of the same row.

    ``parts`` are the released numbers in it; without any it is exact. ``leaves`` are the hidden
    columns that it needs, as SQL by name. ``own`` is the half-width's column of an item that is a
    released number itself. ``unsigned``: it cannot be negative before noise. ``amount``: nor is it
    an average or a ratio, so that 0 means that nothing is there.
    """

    parts: frozenset[str]
    leaves: Mapping[str, str]
    ends: Callable[[Leaves], Ends]
    own: str | None = None
    unsigned: bool = False
    amount: bool = False


def width_of(name: str) -> str:
    """The hidden column of half-widths beside a released one."""
    return f"± {name}"


def qualified(sql: str, tables: Mapping[str, "pa.Table"]) -> exp.Expr:
    """The statement with every star expanded and every column under its table's name."""
    schema: dict[str, object] = {
        name: dict.fromkeys(table.column_names, "TEXT") for name, table in tables.items()
    }
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    if _is_plain(tree):
        return tree
    from sqlglot.optimizer.qualify import qualify  # noqa: PLC0415 - slow to load

    return qualify(tree, dialect="duckdb", schema=schema, validate_qualify_columns=False)


def _is_plain(tree: exp.Expr) -> bool:
    """One SELECT from one table, whose columns all stand under its name, as most are."""
    if not isinstance(tree, exp.Select) or not isinstance(_from(tree), exp.Table):
        return False
    nested = (exp.Query, exp.Join, exp.Star, exp.With, exp.Lateral, exp.Pivot)
    inside = (node for node in tree.walk() if node is not tree)
    return not any(
        isinstance(node, nested) or (isinstance(node, exp.Column) and not node.table)
        for node in inside
    )


def _from(select: exp.Select) -> exp.Expr | None:
    clause = select.args.get("from_")
    return clause.this if isinstance(clause, exp.From) else None


def _scopes(tree: exp.Expr) -> "list[Scope | _Whole]":
    from sqlglot.optimizer.scope import traverse_scope  # noqa: PLC0415 - slow to load

    return list(traverse_scope(tree))


@final
class _Whole:
    """The scope of a plain statement: all of it."""

    is_cte = is_derived_table = False

    def __init__(self, tree: exp.Expr) -> None:
        table = tree.args["from_"].this
        self.expression, self.sources = tree, {table.alias_or_name: table}


@final
class Follower:
    """Walks a statement from the inside out and adds the hidden columns as it goes."""

    def __init__(self, released: Mapping[str, ReleasedBlock]) -> None:
        self._released = released
        self._given: dict[int, dict[str, Item]] = {}  # the followed items of each inner SELECT
        self._gathers = False  # whether the SELECT at hand makes one row of several
        self.items: list[Item | None] = []
        self.chosen = False

    def follow(self, tree: exp.Expr) -> str:
        """The statement with hidden columns; ``items`` are those of what it shows."""
        scopes = [_Whole(tree)] if _is_plain(tree) else _scopes(tree)
        for scope in scopes:
            select, is_top = scope.expression, scope is scopes[-1]
            if not isinstance(select, exp.Select):
                continue
            single = is_top or scope.is_cte or scope.is_derived_table
            self._gathers = not _is_row_by_row(select)
            if self._gathers:
                single &= self._is_gathered(select, scope)
            shown = select.expressions
            items = [self._item(each.unalias(), scope) if single else None for each in shown]
            pairs = zip((each.alias_or_name for each in shown), items, strict=True)
            given = {name: item for name, item in pairs if item is not None}
            self._look_for_choice(select, scope, given)
            self._given[id(scope)] = given
            self.items = items if is_top else []
            _append(select, items)
        return tree.sql(dialect="duckdb")

    def _look_for_choice(
        self, select: exp.Select, scope: "Scope | _Whole", given: Mapping[str, Item]
    ) -> None:
        """Notice where noisy numbers decide which rows are shown."""
        deciding = [select.args.get(name) for name in ("where", "having", "qualify")]
        if select.args.get("limit") is not None:
            deciding.append(select.args.get("order"))
        for clause in filter(None, deciding):
            for column in clause.find_all(exp.Column):
                if column.table in scope.sources or not column.table:
                    item = self._column(column, scope) if column.table else given.get(column.name)
                    self.chosen |= item is None or bool(item.parts)

    def _item(self, node: exp.Expr, scope: "Scope | _Whole") -> Item | None:
        """How the ends of an expression follow; None if they do not."""
        if isinstance(node, exp.Column):
            found = self._column(node, scope)
            return None if found is None or (found.parts and self._gathers) else found
        if isinstance(node, exp.Window | exp.AggFunc):
            return self._gathered(node, scope)
        inner = [self._item(each, scope) for each in _operands(node)]
        known = [each for each in inner if each is not None]
        if len(known) < len(inner) or isinstance(node, _MANY_ROWS):
            return None
        if not any(each.parts for each in known):
            return _exact(node)
        rule = rule_of(node)
        if rule is None or (not isinstance(node, TWO_SIDED) and any(e.parts for e in known[1:])):
            return None
        return Item(
            frozenset[str]().union(*(each.parts for each in known)),
            {name: sql for each in known for name, sql in each.leaves.items()},
            lambda leaves: rule(*(each.ends(leaves) for each in known)),
            known[0].own if isinstance(node, KEEPING) else None,
            isinstance(node, exp.Abs)
            or (isinstance(node, _FROM_ZERO) and all(each.unsigned for each in known)),
            isinstance(node, _FROM_ZERO)
            and all(each.amount for each in known)
            and not (isinstance(node, exp.Div) and known[1].parts),
        )

    def _is_gathered(self, select: exp.Select, scope: "Scope | _Whole") -> bool:
        """Whether rows are put together by keys alone."""
        if any(select.args.get(name) for name in ("distinct", "pivots")):
            return False
        group = select.args.get("group")
        plain = group is None or {name for name, arg in group.args.items() if arg} <= {
            "expressions", "all",
        }  # fmt: skip
        return plain and self._by_keys([] if group is None else group.expressions, scope)

    def _by_keys(self, clauses: Iterable[exp.Expr], scope: "Scope | _Whole") -> bool:
        """Whether no noisy number stands in the clauses."""
        columns = [each for clause in clauses for each in clause.find_all(exp.Column)]
        found = [self._column(each, scope) for each in columns]
        return all(each is not None and not each.parts for each in found)

    def _gathered(self, node: exp.Expr, scope: "Scope | _Whole") -> Item | None:
        """A sum, or a number of another row, of a released column: its ends are those of ends."""
        head = node.this if isinstance(node, exp.Window) else node
        clauses = [] if head is node else [each for each in _operands(node) if each is not head]
        if not isinstance(head, (exp.Sum, exp.Max) if head is node else (*_ONE_OF, *_ALL_OF)):
            return None  # groups without rows would be in other numbers that no row shows
        more = [each for each in _operands(head) if each is not head.this]
        if not self._by_keys((*clauses, *more), scope):
            return None
        outside, self._gathers = self._gathers, False
        inner = self._item(head.this, scope)
        self._gathers = outside
        most = max((len(block.table) for block in self._released.values()), default=1)
        if inner is None or inner.own is None or most > _NUMBERS_MAX:
            return None
        value, width = head.this.sql(dialect="duckdb"), inner.leaves[inner.own]
        ends = [_end(node, f"TRY_CAST({value} AS DOUBLE) {sign} ({width})") for sign in "-+"]
        count = 1 if isinstance(head, _ONE_OF) else most
        name = node.sql(dialect="duckdb")
        return Item(
            frozenset(f"{name} {place}" for place in range(max(count, 1))),
            {each: each for each in ends},
            lambda leaves: (leaves(ends[0]), leaves(ends[1])),
            None,
            inner.unsigned,
            inner.amount and not isinstance(head, exp.Avg),
        )

    def _column(self, column: exp.Column, scope: "Scope | _Whole") -> Item | None:
        source, name, alias = scope.sources.get(column.table), column.name, column.table
        if not isinstance(source, exp.Table):  # an inner SELECT, if it is known
            given = self._given.get(id(source), {}).get(name)
            return None if given is None else _through(given, column)
        block = self._released.get(source.name)
        if block is None or name not in block.noisy:
            return _exact(column)
        value, width = f"{alias}.{name}", f"{alias}.{width_of(name)}"
        return Item(
            frozenset({value}),
            {value: _sql(alias, name), width: _sql(alias, width_of(name))},
            lambda leaves: (leaves(value) - leaves(width), leaves(value) + leaves(width)),
            width,
            name in block.unsigned,
            name in block.amounts,
        )


def _end(node: exp.Expr, of: str) -> str:
    """The sum or window of one end of each number; NULL where a number has none."""

    def over(kind: type[exp.Expr] | None, inside: exp.Expr) -> exp.Expr:
        made = node.copy()
        head = made.this if isinstance(made, exp.Window) else made
        if kind is None:
            head.set("this", inside)
            return made
        if head is made:
            return kind(this=inside)
        head.replace(kind(this=inside))
        return made

    head = node.this if isinstance(node, exp.Window) else node
    end = sqlglot.parse_one(of, dialect="duckdb")
    gathered = over(None, end)
    if isinstance(head, _ONE_OF):
        return gathered.sql(dialect="duckdb")
    known = exp.EQ(this=over(exp.Count, head.this.copy()), expression=over(exp.Count, end.copy()))
    return exp.Case(ifs=[exp.If(this=known, true=gathered)]).sql(dialect="duckdb")


def _exact(node: exp.Expr) -> Item:
    """A value without noise: both ends are itself."""
    sql = node.sql(dialect="duckdb")
    leaf = f"TRY_CAST({sql} AS DOUBLE)"
    ends: Callable[[Leaves], Ends] = lambda leaves: (leaves(leaf), leaves(leaf))  # noqa: E731
    number = isinstance(node, exp.Literal) and not node.is_string
    return Item(frozenset(), {leaf: leaf}, ends, unsigned=number, amount=number)


def _through(given: Item, column: exp.Column) -> Item:
    """An item of an inner SELECT, seen through the alias that the SELECT has outside."""
    if not given.parts:
        return _exact(column)
    alias = column.table
    return Item(
        frozenset(f"{alias}.{part}" for part in given.parts),
        {f"{alias}.{leaf}": _sql(alias, leaf) for leaf in given.leaves},
        lambda leaves: given.ends(lambda leaf: leaves(f"{alias}.{leaf}")),
        given.own and f"{alias}.{given.own}",
        given.unsigned,
        given.amount,
    )


def _sql(table: str, name: str) -> str:
    return exp.column(name, table=table, quoted=True).sql(dialect="duckdb")


def _append(select: exp.Select, items: Iterable[Item | None]) -> None:
    """Add the hidden columns that the items need."""
    noisy = [item for item in items if item is not None and item.parts]
    for name, sql in {leaf: sql for item in noisy for leaf, sql in item.leaves.items()}.items():
        leaf = sqlglot.parse_one(sql, dialect="duckdb")
        select.append("expressions", exp.alias_(leaf, name, quoted=True))


def _is_row_by_row(select: exp.Select) -> bool:
    """Whether every row of the SELECT comes from one row of its FROM."""
    if any(select.args.get(name) for name in ("group", "distinct", "having", "pivots")):
        return False
    sums = (each for item in select.expressions for each in item.find_all(exp.AggFunc))
    return all(each.find_ancestor(exp.Window, exp.Select) is not select for each in sums)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The parts of an expression that have values."""
    return [
        each for each in node.iter_expressions() if not isinstance(each, exp.DataType | exp.Var)
    ]
