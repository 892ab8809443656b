"""Which released numbers each item of the free SQL is made of, and how its ends follow from theirs.

The statement is walked from the inside out. Hidden columns are added to every SELECT: the released
numbers of an item, their half-widths and the rows they stand in. Followed are

- plain arithmetic over one row (`items.rule_of`), and CASE whose conditions are exact;
- LAG, LEAD, FIRST_VALUE and LAST_VALUE, which show a released number of another row;
- SUM and AVG of a released number over rows, with GROUP BY or as a window: the hidden column lists
  the rows, and noise that is independent from row to row adds up in squares;
- lists of released numbers, whose ± is the largest of theirs;
- the number of a sub-query over released tables, which is the same for all rows;
- UNION ALL, where every branch has items of its own.

Rows must not be picked, ordered or grouped by noisy numbers where they are added up.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

import numpy as np
import sqlglot
from sqlglot import exp

from noisegate.frozen import replace
from noisegate.sql.outer.forms import Form, Leaves, form_of
from noisegate.sql.outer.items import (
    KEEPING,
    TWO_SIDED,
    Ends,
    Item,
    ReleasedBlock,
    by_rule,
    either,
    exact,
    joined,
    made_of,
    noisy,
    rule_of,
)

if TYPE_CHECKING:
    from sqlglot.optimizer.scope import Scope

_FROM_ZERO: Final = (
    exp.Add, exp.Mul, exp.Div, exp.Greatest, exp.Least, exp.Paren, exp.Nullif, exp.Coalesce,
    exp.Cast, exp.Round, exp.Floor, exp.Ceil, exp.Trunc, exp.Sqrt, exp.Cbrt,
)  # of numbers from 0 on, they make such numbers  # fmt: skip
_MANY_ROWS: Final = (exp.Window, exp.AggFunc, exp.Query, exp.Subquery, exp.Star)
_OTHER_ROW: Final = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)


def is_plain(tree: exp.Expr) -> bool:
    """One SELECT from one table, whose columns all stand under its name, as most are."""
    start = tree.args.get("from_")
    if not isinstance(tree, exp.Select) or start is None or not isinstance(start.this, exp.Table):
        return False
    nested = (exp.Query, exp.Join, exp.Star, exp.With, exp.Lateral, exp.Pivot)
    inside = (node for node in tree.walk() if node is not tree)
    return not any(
        isinstance(node, nested) or (isinstance(node, exp.Column) and not node.table)
        for node in inside
    )


@final
class Follower:
    """Walks a statement from the inside out and adds the hidden columns as it goes."""

    def __init__(self, released: Mapping[str, ReleasedBlock]) -> None:
        self._released = released
        self._given: dict[int, dict[str, Item]] = {}  # the followed items of each inner SELECT
        self._items: dict[int, list[Item | None]] = {}  # by expression
        self.items: list[Item | None] = []
        self.chosen = False

    def follow(self, tree: exp.Expr) -> str:
        """The statement with hidden columns; ``items`` are those of what it shows."""
        scopes = [_Whole(tree)] if is_plain(tree) else _scopes(tree)
        for scope in scopes:
            shown = scope.expression
            if isinstance(shown, exp.Union):
                self._unite(shown, scope)
            elif isinstance(shown, exp.Select):
                self._select(shown, scope, seen=scope is scopes[-1] or _is_seen(scope))
            self.items = self._items.get(id(shown), [])
        return tree.sql(dialect="duckdb")

    def _select(self, select: exp.Select, scope: "Scope | _Whole", *, seen: bool) -> None:
        shown = select.expressions
        items: list[Item | None] = [None] * len(shown)
        self._look_for_choice(select.args.get("where"), scope, {})
        known = seen or _is_number(scope)
        if known and not select.args.get("distinct") and not select.args.get("pivots"):
            folded = _is_folded(select)
            items = [self._item(each.unalias(), scope, folded=folded) for each in shown]
        given = _named(shown, items)
        for name in ("having", "qualify"):
            self._look_for_choice(select.args.get(name), scope, given)
        if select.args.get("limit") is not None:
            self._look_for_choice(select.args.get("order"), scope, given)
        self._given[id(scope)], self._items[id(select)] = given, items
        if not seen:
            self._items[id(select)] = [None] * len(items) if self.chosen else items
            return
        noisy = [item for item in items if item is not None and item.parts]
        _append(select, {leaf: sql for item in noisy for leaf, sql in item.leaves.items()})

    def _unite(self, union: exp.Union, scope: "Scope | _Whole") -> None:
        """Items of UNION ALL. A hidden column tells the branch; leaves of the other are NULL."""
        left, right = (each.unnest() for each in (union.this, union.expression))
        pairs = list(
            zip(self._items.get(id(left), []), self._items.get(id(right), []), strict=False)
        )
        if not pairs or union.args.get("distinct") or union.args.get("by_name"):
            return
        for item, other in pairs:  # where one branch is exact and the other noisy, both are needed
            for side, one, two in ((left, item, other), (right, other, item)):
                if one is not None and two is not None and two.parts and not one.parts:
                    _append(side, one.leaves)
        branch = f"# branch {len(self._items)}"
        hidden = [
            [each.alias_or_name for each in side.selects[len(pairs) :]] for side in (left, right)
        ]
        _insert(
            left, len(left.selects), {f"1.{name}": "NULL" for name in hidden[1]} | {branch: "0"}
        )
        _insert(right, len(pairs), {f"0.{name}": "NULL" for name in hidden[0]})
        _insert(right, len(right.selects), {branch: "1"})
        items = [either(branch, item, other) for item, other in pairs]
        self._items[id(union)] = items
        self._given[id(scope)] = _named(union.selects[: len(pairs)], items)

    def _look_for_choice(
        self, clause: exp.Expr | None, scope: "Scope | _Whole", given: Mapping[str, Item]
    ) -> None:
        """Notice where noisy numbers decide which rows are shown."""
        for column in () if clause is None else clause.find_all(exp.Column):
            if column.table in scope.sources or not column.table:
                item = self._column(column, scope) if column.table else given.get(column.name)
                self.chosen |= item is None or bool(item.parts)

    def _item(  # noqa: PLR0911 - one a form
        self, node: exp.Expr, scope: "Scope | _Whole", *, folded: bool = False
    ) -> Item | None:
        """How the ends of an expression follow; None if they do not. ``folded``: with GROUP BY."""
        if isinstance(node, exp.Column):
            item = self._column(node, scope)
            return None if folded and item is not None and item.parts else item
        if isinstance(node, exp.Case | exp.If):
            return self._case(node, scope, folded=folded)
        if isinstance(node, exp.Array):
            return self._list(node, scope, folded=folded)
        if (element := _element(node)) is not None:
            return self._item(element, scope, folded=folded)
        if isinstance(node, exp.Subquery) and id(node.this) in self._items:
            return self._number(node)
        if isinstance(node, (exp.Filter, *_MANY_ROWS)):
            return self._over_rows(node, scope, folded=folded)
        inner = [self._item(each, scope, folded=folded) for each in _operands(node)]
        known = [each for each in inner if each is not None]
        if len(known) < len(inner):
            return None
        if not any(each.parts for each in known):
            return exact(node)
        rule = rule_of(node)
        if rule is None or (not isinstance(node, TWO_SIDED) and any(e.parts for e in known[1:])):
            return None
        first = known[0]
        item = by_rule(node, rule, known)
        kept = isinstance(node, KEEPING)
        form = form_of(node, [each.form for each in known])
        signed = known[:1] if isinstance(node, exp.Round) else known
        amount = (
            isinstance(node, _FROM_ZERO)
            and all(each.amount for each in signed)
            and not (isinstance(node, exp.Div) and known[1].parts)
        )
        return replace(
            item,
            form=form,
            joint=joined(node, known, form),
            own=first.own if kept else None,
            row=first.row if kept else None,
            of=first.of if kept else None,
            unsigned=isinstance(node, exp.Abs)
            or (isinstance(node, _FROM_ZERO) and all(each.unsigned for each in signed)),
            amount=amount,
            # of what no cap reduces, a lower bound makes a lower bound again, also per unit
            lower=isinstance(node, _FROM_ZERO)
            and all(each.amount or each.lower for each in signed)
            and not (isinstance(node, exp.Div) and known[1].lower)
            and any(each.lower for each in known),
        )

    def _number(self, node: exp.Subquery) -> Item | None:
        """The one number of a sub-query; each of its hidden columns is a sub-query like it."""
        items = self._items[id(node.this)]
        if len(items) != 1 or items[0] is None:
            return None
        if not items[0].parts:
            return exact(node)

        def alike(sql: str) -> str:
            other = node.copy()
            other.this.set("expressions", [sqlglot.parse_one(sql, dialect="duckdb")])
            return other.sql(dialect="duckdb")

        return items[0].under(node.sql(dialect="duckdb"), alike)

    def _column(self, column: exp.Column, scope: "Scope | _Whole") -> Item | None:
        source, name, alias = scope.sources.get(column.table), column.name, column.table
        if not isinstance(source, exp.Table):  # an inner SELECT, if it is known
            given = self._given.get(id(source), {}).get(name)
            if given is None:
                return None
            return given.under(alias) if given.parts else exact(column)
        block = self._released.get(source.name)
        if block is None or name not in block.noisy:
            return exact(column)
        return noisy(block, name, alias, source.name)

    def _is_exact(self, node: exp.Expr | None, scope: "Scope | _Whole") -> bool:
        """Whether no noisy number is in it, nor decides which rows it is about."""
        if node is None:
            return True
        if self.chosen or node.find(exp.Query):
            return False
        items = [self._column(each, scope) for each in node.find_all(exp.Column)]
        return all(item is not None and not item.parts for item in items)

    def _case(
        self, node: exp.Case | exp.If, scope: "Scope | _Whole", *, folded: bool
    ) -> Item | None:
        """One of several values, by conditions that are exact."""
        branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
        conditions = [node.args.get("this"), *(each.this for each in branches)]
        last = node.args.get("false" if isinstance(node, exp.If) else "default") or exp.Null()
        values = [*(each.args["true"] for each in branches), last]
        items = [self._item(each, scope, folded=folded) for each in values]
        known = [each for each in items if each is not None]
        if len(known) < len(items) or not all(self._is_exact(each, scope) for each in conditions):
            return None
        if not any(each.parts for each in known):
            return exact(node)
        which = node.copy()
        for place, each in enumerate([which] if isinstance(which, exp.If) else which.args["ifs"]):
            each.set("true", exp.Literal.number(place))
        name = "false" if isinstance(which, exp.If) else "default"
        which.set(name, exp.Literal.number(len(branches)))
        leaf = f"which of {node.sql(dialect='duckdb')}"

        def ends(leaves: Leaves) -> Ends:
            taken, found = leaves(leaf), [each.ends(leaves) for each in known]
            low, high = (
                np.select([taken == i for i in range(len(found))], [each[side] for each in found])
                for side in (0, 1)
            )
            return low, high

        made = made_of(known, ends)
        return replace(
            made,
            parts=max((each.parts for each in known), key=len),  # a row has one of them
            leaves={**made.leaves, leaf: which.sql(dialect="duckdb")},
            unsigned=all(each.unsigned for each in known),
            amount=all(each.amount for each in known),
            lower=any(each.lower for each in known),
        )

    def _list(self, node: exp.Array, scope: "Scope | _Whole", *, folded: bool) -> Item | None:
        """Several released numbers, such as levels of a quantile: one ± that holds for them all."""
        inner = [self._item(each, scope, folded=folded) for each in node.expressions]
        owned = [each for each in inner if each is not None and each.own is not None]
        if not owned or len(owned) < len(inner):
            return None
        widths = [each.leaves[each.own] for each in owned if each.own is not None]
        leaf, listed = f"± of {node.sql(dialect='duckdb')}", ", ".join(widths)
        sql = f"CASE WHEN {' + '.join(widths)} IS NOT NULL THEN GREATEST({listed}) END"
        parts = frozenset[str]().union(*(each.parts for each in owned))
        return Item(parts, {leaf: sql}, lambda leaves: (leaves(leaf), leaves(leaf)), own=leaf)

    def _over_rows(self, node: exp.Expr, scope: "Scope | _Whole", *, folded: bool) -> Item | None:
        """An aggregate or a window over released rows."""
        window = isinstance(node, exp.Window)
        if isinstance(node, exp.Query | exp.Subquery | exp.Star) or not (folded or window):
            return None
        if self._is_exact(node, scope):
            return exact(node)
        inner = node.this if window else node
        around = [each for each in node.iter_expressions() if window and each is not inner]
        if isinstance(inner, exp.Filter):
            around, inner = [*around, inner.expression], inner.this
        if (folded and window) or not all(self._is_exact(each, scope) for each in around):
            return None
        if window and isinstance(inner, _OTHER_ROW):
            return self._elsewhere(node, inner, scope)
        return self._added(node, inner, scope) if isinstance(inner, exp.Sum | exp.Avg) else None

    def _elsewhere(self, node: exp.Expr, inner: exp.Expr, scope: "Scope | _Whole") -> Item | None:
        """A released number of another row, with the half-width of that row."""
        item = self._item(inner.this, scope)
        if item is None or item.own is None:
            return None
        other = node.copy()
        other.this.set("this", sqlglot.parse_one(item.leaves[item.own], dialect="duckdb"))
        other.this.set("default", None)
        place = other.copy()
        if item.row is not None:
            place.this.set("this", sqlglot.parse_one(item.leaves[item.row], dialect="duckdb"))
        text = node.sql(dialect="duckdb")
        value, width, row = f"value of {text}", f"± of {text}", f"row of {text}"
        form = None if item.of is None or item.form is None else Form.of(
            item.of, value, row, item.form.sign
        )  # fmt: skip
        return Item(
            frozenset({value}),
            {value: text, width: other.sql(dialect="duckdb"), row: place.sql(dialect="duckdb")},
            lambda leaves: (leaves(value) - leaves(width), leaves(value) + leaves(width)),
            own=width,
            form=form,
            unsigned=item.unsigned,
            amount=item.amount,
            lower=item.lower,
        )

    def _added(self, node: exp.Expr, inner: exp.Expr, scope: "Scope | _Whole") -> Item | None:
        """A sum or an average of a released number over rows, which a hidden column lists."""
        found = self._cells(inner.this, scope)
        if found is None or self.chosen:
            return None
        item, rows = found
        text, argument = node.sql(dialect="duckdb"), inner.this.sql(dialect="duckdb")
        value, listed, count = f"value of {text}", f"rows of {text}", f"number of {text}"

        def instead(sql: str) -> str:
            holder = exp.Paren(this=node.copy())
            next(each for each in holder.find_all(type(inner)) if each == inner).replace(
                sqlglot.parse_one(sql, dialect="duckdb")
            )
            return str(holder.this.sql(dialect="duckdb"))

        def ends(leaves: Leaves) -> Ends:
            at, wide = leaves(value), leaves(listed)
            if isinstance(inner, exp.Avg):
                wide = wide / leaves(count)
            return at - wide, at + wide

        assert item.of is not None  # noqa: S101 - so it is found
        return Item(
            frozenset({listed}),
            {
                value: f"TRY_CAST({text} AS DOUBLE)",
                listed: instead(f"STRING_AGG(CAST({rows} AS TEXT), ',')"),
                count: instead(f"COUNT({argument})"),
            },
            ends,
            sums={listed: item.of},
            form=item.form
            and Form.of(
                item.of,
                value,
                listed,
                item.form.sign,
                count if isinstance(inner, exp.Avg) else None,
            ),
            unsigned=item.unsigned,
            amount=item.amount and isinstance(inner, exp.Sum),
            lower=item.lower,
        )

    def _cells(self, node: exp.Expr, scope: "Scope | _Whole") -> tuple[Item, str] | None:
        """The released number that is added up, and the row of it as SQL; NULL where there is none.

        CASE may pick rows: where it gives a constant, there is no noise.
        """
        if isinstance(node, exp.Case) and node.args.get("this") is None:
            branches = [(each.this, each.args["true"]) for each in node.args["ifs"]]
            if not all(self._is_exact(condition, scope) for condition, _ in branches):
                return None
            values = [*(value for _, value in branches), node.args.get("default") or exp.Null()]
            cells = [None if _is_constant(each) else self._cells(each, scope) for each in values]
            held = [each for each in cells if each is not None]
            if len(held) != sum(not _is_constant(each) for each in values):
                return None
            if not held or any(item.of != held[0][0].of for item, _ in held):
                return None
            signs = {item.form and item.form.sign for item, _ in held}
            first = held[0][0] if len(signs) == 1 else replace(held[0][0], form=None)
            which = node.copy()
            rows = [exp.Null() if each is None else sqlglot.parse_one(each[1], dialect="duckdb")
                    for each in cells]  # fmt: skip
            for each, row in zip(which.args["ifs"], rows, strict=False):
                each.set("true", row)
            which.set("default", rows[-1])
            return first, which.sql(dialect="duckdb")
        item = self._item(node, scope)
        if item is None or item.of is None or item.row is None:
            return None
        argument = node.sql(dialect="duckdb")
        return item, f"CASE WHEN {argument} IS NOT NULL THEN {item.leaves[item.row]} END"


def _named(shown: Iterable[exp.Expr], items: Iterable[Item | None]) -> dict[str, Item]:
    pairs = zip((each.alias_or_name for each in shown), items, strict=True)
    return {name: item for name, item in pairs if item is not None}


def _append(query: exp.Query, columns: Mapping[str, str]) -> None:
    """Add hidden columns, unless they are there."""
    held = {each.alias_or_name for each in query.selects}
    new = {name: sql for name, sql in columns.items() if name not in held}
    _insert(query, len(query.selects), new)


def _insert(query: exp.Expr, place: int, columns: Mapping[str, str]) -> None:
    """Add columns to a SELECT, or to all branches of a union."""
    if isinstance(query, exp.Union):
        for side in (query.this, query.expression):
            _insert(side.unnest(), place, columns)
        return
    new = [
        exp.alias_(sqlglot.parse_one(sql, dialect="duckdb"), name, quoted=True)
        for name, sql in columns.items()
    ]
    query.set("expressions", [*query.expressions[:place], *new, *query.expressions[place:]])


def _is_folded(select: exp.Select) -> bool:
    """Whether rows are grouped, or all made one."""
    if select.args.get("group") or select.args.get("having"):
        return True
    sums = (each for item in select.expressions for each in item.find_all(exp.AggFunc))
    return any(each.find_ancestor(exp.Window, exp.Select) is select for each in sums)


def _is_seen(scope: "Scope | _Whole") -> bool:
    """Whether columns can be added to what it gives: no list for IN, nor a number."""
    if isinstance(scope, _Whole) or scope.is_cte or scope.is_derived_table or scope.is_root:
        return True
    return bool(scope.is_set_operation and scope.parent and _is_seen(scope.parent))


def _is_number(scope: "Scope | _Whole") -> bool:
    """Whether it is a sub-query that is the same for all rows around it."""
    return not isinstance(scope, _Whole) and scope.is_subquery and not scope.is_correlated_subquery


def _element(node: exp.Expr) -> exp.Expr | None:
    """The member of a written list that array_extract(list, 2) gives."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "array_extract":
        return None
    listed, place = node.expressions[0], node.expressions[-1]
    if not isinstance(listed, exp.Array) or not isinstance(place, exp.Literal):
        return None
    at = int(place.name)
    return listed.expressions[at - 1] if 1 <= at <= len(listed.expressions) else None


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal | exp.Null)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The parts of an expression that have values."""
    return [
        each for each in node.iter_expressions() if not isinstance(each, exp.DataType | exp.Var)
    ]


def _scopes(tree: exp.Expr) -> "list[Scope | _Whole]":
    from sqlglot.optimizer.scope import traverse_scope  # noqa: PLC0415 - slow to load

    return list(traverse_scope(tree))


@final
class _Whole:
    """The scope of a plain statement: all of it."""

    def __init__(self, tree: exp.Expr) -> None:
        table = tree.args["from_"].this
        self.expression, self.sources = tree, {table.alias_or_name: table}
