"""The way in: SQL text to a question. Private parts become blocks, all above them stays SQL."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Expression
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import TableDomain, require_plain
from noisegate.sql.question import Block, Question
from noisegate.sql.reading.blocks import Given, block_of
from noisegate.sql.reading.clock import Clock, in_utc, settle
from noisegate.sql.reading.conditions.narrowing import Public
from noisegate.sql.reading.groups.grouping import groups_of
from noisegate.sql.reading.groups.largest import kept_by_having
from noisegate.sql.reading.groups.per_unit import per_unit
from noisegate.sql.reading.groups.rewriting import (
    counted,
    grouped,
    inlined,
    join_instead,
    shown_over,
)
from noisegate.sql.reading.rows.clauses import Env, refuse_inner_clauses, refuse_row_clauses
from noisegate.sql.reading.rows.relations import From, selected, union, within_units
from noisegate.sql.reading.rows.windows import windowed
from noisegate.sql.reading.sight import Rows, aggregates_in, item_of, rows_of_table, single_columns
from noisegate.sql.reading.statement import (
    free_sql,
    name_items,
    over_groups,
    picked_columns,
    renamed,
    shown_names,
    statement_of,
    take_hints,
    too_deep,
)
from noisegate.sql.reading.untyped import Kinds
from noisegate.sql.reading.words import (
    FORM,
    Node,
    at,
    fold,
    listed_values,
    mixed_tables,
    no_such,
    pointing,
    private_match,
    refusal,
    require_only,
)

_LENGTH_MAX: Final = 20_000
_TABLE_FUNCTIONS: Final = ("range", "generate_series", "unnest")
_SETS: Final = (exp.SubqueryPredicate, exp.In, exp.Array)  # what takes all rows of a sub-query


def read(
    sql: str,
    tables: Mapping[str, TableDomain],
    public: Public | None = None,
    *,
    lines: bool = False,
    first: Callable[[str], Expression] | None = None,
    clock: Clock | None = None,
) -> Question:
    """The question that the SQL asks about the tables, or a refusal.

    ``public`` gives the rows of a public table, which say what groups conditions on them leave.
    With ``lines``, sums that differ by constants are one sum and one count, and keys that do are
    one key, for the free SQL to tell apart; else each is asked for as it is written.
    ``first`` gives the numbers of sub-queries that rows are compared or computed with; without it
    they are refused. So are times that are said from today, without a ``clock``.
    """
    if not isinstance(sql, str) or len(sql) > _LENGTH_MAX:
        raise Unsupported("The SQL is not a string, or is too long.", fix=FORM, about="text")
    require_plain(sql)
    kinds, given = Kinds(), Given(public, lines, first, getattr(tables, "part", None), clock)
    try:
        return kinds.settled(lambda: _question(sql, tables, given, kinds))
    except Unsupported as error:
        refused = pointing(error, sql)
    raise refused


def _question(sql: str, tables: Mapping[str, TableDomain], given: Given, kinds: Kinds) -> Question:
    """The question, with columns without types read as far as ``kinds`` tells."""
    plain, terms, explain = take_hints(sql)
    statement = in_utc(statement_of(plain))
    times = () if given.clock is None else settle(statement, given.clock)
    ctes = [each.copy() for clause in statement.find_all(exp.With) for each in clause.expressions]
    reader = _Reader({}, single_columns(tables.values()), given, kinds, tuple(ctes))
    for table in tables.values():
        if fold(table.name) in reader.tables:
            raise Unsupported(f"Two tables are called {table.name!r}.", fix="Rename one.")
        reader.tables[fold(table.name)] = table
    inlined(statement)
    kept_by_having(statement)
    found = reader.whole(statement)
    name_items(found.node, found.columns)
    picked = picked_columns(found.node) if len(reader.blocks) == 1 else None
    return Question(
        blocks=tuple(reader.blocks),
        outer=free_sql(found.node, is_plain=picked is not None),
        columns=found.columns or (),
        picked=picked,
        terms=terms,
        explain=explain,
        caveats=(*times, *kinds.caveats(), *over_groups(found.node, reader.blocks)),
    )


def _rows_leave(rows: Rows) -> Unsupported:
    last = next((words for words in reversed(rows.path) if words.startswith("one row per ")), None)
    return Unsupported(
        f"The answer would show {last or 'rows of a private table'}, and rows stay private.",
        fix="Aggregate them, for example: SELECT region, COUNT(*) FROM visits GROUP BY region.",
        about="rows",
    )


@final
@dataclass(frozen=True, slots=True)
class Outer:
    """Free SQL. ``columns`` None: not known before it runs. ``public``: of public tables only."""

    node: Node
    columns: tuple[str, ...] | None
    public: bool
    env: Env = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class _Reader:
    """Walks the statement. ``force`` reads public tables as rows, to join with private ones."""

    tables: dict[str, TableDomain]
    singles: frozenset[tuple[str, str]] = frozenset()
    given: Given = field(default_factory=Given)
    kinds: Kinds = field(default_factory=Kinds)
    ctes: tuple[exp.CTE, ...] = ()  # as they are written
    blocks: list[Block] = field(default_factory=list)
    names: Iterator[str] = field(default_factory=lambda: map("noisegate_{}".format, count()))

    def whole(self, statement: Node) -> Outer:
        """The whole statement as free SQL over released tables."""
        try:
            found = self.query(statement, {})
        except RecursionError:
            found = None
        if found is None:
            raise too_deep()
        if isinstance(found, Rows):
            raise _rows_leave(found)
        return found

    def query(self, node: Node, env: Env, *, force: bool = False) -> Rows | Outer:
        """A SELECT, a union of them, or one in brackets."""
        if isinstance(node, exp.Subquery):
            return self._bracketed(node, env, force=force)
        if isinstance(node, exp.Select):
            return self._select(node, env, force=force)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, env, force=force)
        raise refusal(node)

    def rows(self, node: Node, env: Env) -> Rows:
        """A query that must give rows, private or public."""
        found = self.query(node, env)
        if isinstance(found, Outer) and found.public:
            found = self.query(node, env, force=True)
        return _require_rows(found)

    def source_rows(self, node: Node, env: Env) -> Rows:
        """The same for what stands in FROM."""
        found = self.source(node, env)
        if isinstance(found, Outer) and found.public:
            found = self.source(node, env, force=True)
        return _require_rows(found)

    def _bracketed(self, node: exp.Subquery, env: Env, *, force: bool) -> Rows | Outer:
        env = self._with(node, env)
        found = self.query(node.this, env, force=force)
        if isinstance(found, Rows):
            refuse_row_clauses(node)
            require_only(node, "this", "alias")
            return found
        self.nested_in(node, env, but=node.this)
        return Outer(node, found.columns, found.public, env)

    def source(self, node: Node, env: Env, *, force: bool = False) -> Rows | Outer:
        """One item of FROM, with its alias."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            found = self._bracketed(node, env, force=force)
            alias = node.args.get("alias")
            if isinstance(found, Rows):
                return found.called(alias)
            return Outer(node, renamed(found.columns, alias), found.public)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            with at(node):
                return self._table(node, env, force=force)
        inner = node.this
        if isinstance(node, exp.Subquery) and isinstance(inner, exp.Table):
            parts = [inner, *(join.this for join in inner.args.get("joins") or ())]
            found_all = [self.source(part, env) for part in parts]
            if not force and all(isinstance(one, Outer) for one in found_all):
                public = all(isinstance(one, Outer) and one.public for one in found_all)
                return Outer(node, None, public)
            raise Unsupported(
                "A join is in parentheses.", fix="Remove them, or use a sub-query.", about="join"
            )
        called = inner.name if isinstance(inner, exp.Anonymous) else None
        if called is None and isinstance(inner, exp.Func):
            called = inner.sql_name()
        if isinstance(node, exp.Table) and fold(called or "") not in _TABLE_FUNCTIONS:
            with at(inner):
                raise refusal(inner)
        if force:
            raise listed_values()
        return Outer(node, None, self.nested_in(node, env))

    def _table(self, node: exp.Table, env: Env, *, force: bool) -> Rows | Outer:
        if node.args.get("db") or node.args.get("catalog"):
            raise Unsupported(
                f"{node.sql(dialect='duckdb')} names a schema.",
                fix="Write the table's name alone.",
                about="schema",
            )
        key, alias = fold(node.name), node.args.get("alias")
        bound = env.get(key)
        if isinstance(bound, Outer):
            if force and bound.public:
                bound = _require_rows(self.query(bound.node, bound.env, force=True))
            else:
                return Outer(node, renamed(bound.columns, alias), bound.public)
        table = self.tables.get(key)
        if bound is None and table is None:
            raise no_such("table", node.name, [one.name for one in self.tables.values()])
        if bound is None and table is not None and table.is_public and not force:
            node.set("this", exp.to_identifier(table.name, quoted=True))
            shown = tuple(name.name for name in rows_of_table(table).names)
            return Outer(node, renamed(shown, alias), public=True)
        rows = bound if bound is not None else rows_of_table(table, self.singles, self.kinds)  # type: ignore[arg-type]
        if bound is None and (part := self.given.part) is not None and rows.unit is not None:
            rows = rows.made(part.of(table), "of one part")  # type: ignore[arg-type]
        if node.args.get("sample"):
            raise refusal("SAMPLE")
        if node.args.get("pivots"):
            raise refusal("PIVOT")
        require_only(node, "this", "alias", "joins")
        if bound is None and alias is not None and alias.args.get("columns"):
            raise Unsupported(
                f"The columns of {node.name!r} are renamed by position.",
                fix="Use SELECT x AS y.",
                about="renamed",
            )
        return rows.called(node.name).called(alias)

    def _with(self, node: Node, env: Env) -> Env:
        """Names of CTEs. Private ones are read here and go; the others stay in the SQL."""
        clause = node.args.get("with_")
        if clause is None:
            return env
        known, stay = dict(env), []
        seen: set[str] = set()
        for cte in clause.expressions:
            name = fold(cte.alias)
            if name in seen:
                raise Unsupported(
                    f"Two CTEs are called {cte.alias!r}.", fix="Rename one.", about="name"
                )
            seen.add(name)
            inner = dict(known)
            if clause.args.get("recursive"):
                inner[name] = Outer(cte.this, None, public=False)
            found = self.query(cte.this, inner)
            alias = exp.TableAlias(columns=cte.args["alias"].args.get("columns"))
            if isinstance(found, Rows):
                known[name] = found.called(alias)
                continue
            stay.append(cte)
            columns = renamed(found.columns, alias)
            public = found.public and not alias.args.get("columns")
            known[name] = Outer(found.node, columns, public, inner)
        clause.set("expressions", stay)
        if not stay:
            node.set("with_", None)
        return known

    def _set_operation(self, node: exp.SetOperation, env: Env, *, force: bool) -> Rows | Outer:
        env = self._with(node, env)
        before, sides = node.copy(), [node.this, node.expression]
        found = [self.query(side, env, force=force) for side in sides]
        outers = [one for one in found if isinstance(one, Outer)]
        if len(outers) == len(found):
            self.nested_in(node, env, but=node.this, also_but=node.expression)
            return Outer(node, outers[0].columns, all(one.public for one in outers), env)
        if any(not one.public for one in outers):
            raise mixed_tables()
        if outers and not isinstance(node, exp.Union):
            raise private_match()
        refuse_row_clauses(node)
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            left, right = (_require_rows(one) for one in found)
            made = within_units(before, left, right)
            node.replace(made)
            return self.query(made, env, force=force)
        require_only(node, "this", "expression", "with_")
        return union([self.rows(side, env) if isinstance(one, Outer) else one
                      for side, one in zip(sides, found, strict=True)])  # fmt: skip

    def _select(self, node: exp.Select, env: Env, *, force: bool) -> Rows | Outer:
        env = self._with(node, env)
        other, before = counted(node), len(self.blocks)
        start = node.args.get("from_")
        joins = node.args.get("joins") or []
        nodes = [start.this, *(join.this for join in joins)] if start is not None else []
        found = [self.source(one, env, force=force) for one in nodes]
        if other is not None and isinstance(found[0], Outer) and not found[0].public:
            del self.blocks[before:]
            node.replace(other)
            return self._select(other, env, force=force)
        if not any(isinstance(one, Rows) for one in found):
            return self._free(node, [one for one in found if isinstance(one, Outer)], env)
        if any(isinstance(one, Outer) and not one.public for one in found):
            raise mixed_tables()
        sources = [
            one if isinstance(one, Rows) else self.source_rows(part, env)
            for part, one in zip(nodes, found, strict=True)
        ]
        return self._aggregated(node, sources, env)

    def _free(self, node: exp.Select, found: list[Outer], env: Env) -> Outer:
        """A SELECT over released and public tables stays as it is."""
        public = all(one.public for one in found)
        shown = shown_names(node, [one.columns for one in found])
        name_items(node, shown)
        if not found and {name for name, arg in node.args.items() if arg} == {"expressions"}:
            beside: list[Node] = []
            for sub in [
                each for each in node.find_all(exp.Query) if each.find_ancestor(exp.Query) is node
            ]:
                public &= self._nested(sub, env)
                sub.replace(self._beside(sub, beside))
            if beside:
                node.set("from_", exp.From(this=beside[0]))
                node.set("joins", [exp.Join(this=one, kind="CROSS") for one in beside[1:]])
            return Outer(node, shown, public, env)
        children: list[Node] = [*node.iter_expressions()]
        for child in children:
            if isinstance(child, exp.From | exp.With):
                continue
            source = child.this if isinstance(child, exp.Join) else None
            public &= self._nested(child, env, but=source)
        return Outer(node, shown, public, env)

    def nested_in(
        self, node: Node, env: Env, *, but: Node | None = None, also_but: Node | None = None
    ) -> bool:
        """Make free SQL of all sub-queries in a node; whether they are of public tables only."""
        public = True
        for child in list(node.iter_expressions()):
            if child in (but, also_but) or isinstance(child, exp.With):
                continue
            public &= self._nested(child, env)
        return public

    def _nested(self, node: Node, env: Env, *, but: Node | None = None) -> bool:
        if not isinstance(node, exp.Query):
            return self.nested_in(node, env, but=but)
        partner = isinstance(node.parent, exp.Exists | exp.In) and self._reads_rows(node, env)
        try:
            found = self.query(node, env)
        except Unsupported:
            if partner:
                raise private_match() from None
            raise
        if isinstance(found, Rows):
            raise private_match() if partner else _rows_leave(found)
        return found.public

    def _reads_rows(self, node: Node, env: Env) -> bool:
        """Whether a private table, or rows of one, are named in it."""
        names = {fold(table.name) for table in node.find_all(exp.Table)}
        private = (name for name, table in self.tables.items() if not table.is_public)
        rows = (name for name, each in env.items() if isinstance(each, Rows))
        return bool(
            names & ({*private, *rows} - {*(n for n, e in env.items() if isinstance(e, Outer))})
        )

    def _aggregated(self, node: exp.Select, sources: list[Rows], env: Env) -> Rows | Outer:
        """A SELECT over private rows: rows again, one unit's aggregates, or a block."""
        join_instead(node, sources)
        sight = From(self.source_rows, self.rows, self._first).read(node, sources, env)
        clauses = [*node.expressions, *(node.args.get(part) for part in ("order", "qualify"))]
        distinct = node.args.get("distinct")
        if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
            raise refusal("DISTINCT ON")
        if node.args.get("sample"):
            raise refusal("SAMPLE")
        has_groups = node.args.get("group") or node.args.get("having")
        if not has_groups and not any(aggregates_in(one) for one in clauses if one is not None):
            if not distinct:
                sight = windowed(node, sight)
                refuse_inner_clauses(node, "qualify", "windows")
                return selected(node, sight)
            places = [exp.Literal.number(i + 1) for i in range(len(node.expressions))]
            node.set("group", exp.Group(expressions=places))
            node.set("distinct", None)
            distinct = None
        groups = groups_of(node, sight, lines=self.given.lines)
        if groups.by_owner:
            refuse_inner_clauses(node)
            if distinct:
                raise refusal("DISTINCT")
            return per_unit(node, sight, groups)
        if sight.rows.unit is None:
            raise Unsupported(
                "A public table is aggregated before it is joined with private rows.",
                fix="Ask the steward for the aggregated table, or use IN or EXISTS.",
                about="public-aggregate",
            )
        name = next(self.names)  # sub-queries inside take theirs before this block is done
        beside: list[Node] = []

        def nested(sub: Node) -> Node:
            self._nested(sub, env)
            return self._beside(sub, beside)

        block, shown = block_of(node, sight, groups, name, nested, self.given)
        self._read_from(node, block, beside)
        return Outer(node, shown, public=False, env=env)

    def _first(self, query: exp.Select, env: Env) -> Expression | None:
        """The number of a sub-query that is measured first, with the CTEs that it reads."""
        if self.given.first is None:
            return None
        names = [fold(each.alias) for each in self.ctes]
        needed, todo = set[int](), [query]
        while todo:
            read = {fold(table.name) for table in todo.pop().find_all(exp.Table)} & {*env}
            if any(names.count(name) != 1 for name in read):
                return None  # which one is meant is not told by the name
            more = {names.index(name) for name in read} - needed
            needed |= more
            todo += [self.ctes[place] for place in more]  # type: ignore[misc]
        alone = query.copy()
        if needed and alone.args.get("with_"):
            return None
        if needed:
            kept = [self.ctes[place].copy() for place in sorted(needed)]
            alone.set("with_", exp.With(expressions=kept))
        return self.given.first(alone.sql(dialect="duckdb"))

    def _read_from(self, node: exp.Select, block: Block, beside: list[Node]) -> None:
        """Let the free SQL read the block's table, and those of one row beside it.

        What was asked before is measured once, and read under both names.
        """
        block, over = grouped(block, self.given.public) if self.given.lines else (block, None)
        known = next((one for one in self.blocks if replace(one, name=block.name) == block), None)
        if known is None:
            self.blocks.append(block)
        table = exp.to_table(block.name if known is None else known.name)
        if known is not None:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(block.name)))
        node.set("from_", exp.From(this=table if over is None else shown_over(over, table, block)))
        node.set("joins", [exp.Join(this=one, kind="CROSS") for one in beside])

    def _beside(self, node: Node, beside: list[Node]) -> Node:
        """Read a number of a table of one row ``beside`` other rows, where a sub-query gives it."""
        if not isinstance(node, exp.Subquery) or isinstance(node.parent, _SETS):
            return node
        select = node.this
        said = {name for name, arg in select.args.items() if arg}
        if said - {"joins"} != {"expressions", "from_"} or len(select.expressions) != 1:
            return node
        table = select.args["from_"].this
        if table.name not in {one.name for one in self.blocks if not one.by}:
            return node
        beside += [table, *(join.this for join in select.args.get("joins") or ())]
        return exp.Paren(this=item_of(select.expressions[0]))


def _require_rows(found: Rows | Outer) -> Rows:
    if isinstance(found, Outer):
        if found.public and not found.node.find(exp.Table):
            raise listed_values()
        raise mixed_tables()
    return found
