"""What a clause can see: rows, the names of their columns, and the names that SELECT gives."""

from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field
from noisegate.algebra.relation import Filter, Project, Relation, Table, all_of
from noisegate.algebra.schema import schema_of
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Domain, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sql.reading.untyped import Kinds, Untyped
from noisegate.sql.reading.values.decimals import exact
from noisegate.sql.reading.values.expressions import ExpressionReader
from noisegate.sql.reading.words import Node, fold, listed, no_such, refusal, sub_query_refusal

_PATH_MAX: Final = 4_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A column in sight: ``table.name``, held by ``field`` of the relation.

    ``owner``: it holds the row's owner; ``partly``: the owner or NULL. An owner may have no field:
    then it can be joined, grouped and counted, but not computed with. ``origin`` is the base table
    and column it was copied from, ``link`` the base column that its foreign key refers to.
    ``single``: rows that share its value have one owner, because a declared foreign key refers to
    it, or is it; ``lacking``: so, but rows without a partner have none. ``merged``: USING showed it
    already. ``untyped`` is set where its file has no types. ``mark`` is a field that is NULL where
    an owner without a field is missing.
    """

    name: str
    field: str | None
    table: str = ""
    owner: bool = False
    partly: bool = False
    origin: tuple[str, str] | None = None
    link: tuple[str, str] | None = None
    single: bool = False
    lacking: bool = False
    merged: bool = False
    untyped: Untyped | None = None
    mark: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A relation with its names. ``unit`` None: public. ``key``: fields whose values do not repeat.

    ``path`` says in words how the rows were made. ``hidden`` are columns that the policy names and
    hides.
    """

    relation: Relation
    names: tuple[Name, ...]
    unit: PrivacyUnit | None
    key: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if sum(map(len, self.path)) > _PATH_MAX:  # tables of tables of tables double each time
            raise Unsupported(
                "The query takes too many steps.", fix="Ask a simpler question.", about="steps"
            )

    @property
    def schema(self) -> dict[str, Domain]:
        """The columns of the relation."""
        return schema_of(self.relation)

    @property
    def is_row_level(self) -> bool:
        """Whether every row is one unit by declaration."""
        return self.unit is not None and self.unit.column is None

    @property
    def unit_name(self) -> str:
        """What to call the unit's column in a message."""
        shown = next((name.name for name in self.names if name.owner), None)
        return shown or (self.unit.column if self.unit is not None else None) or "the unit"

    def filtered(self, condition: Expression, words: str = "kept by a condition") -> "Rows":
        """The rows for which the condition is true."""
        return self.made(Filter(self.relation, condition), words)

    def made(self, relation: Relation, words: str) -> "Rows":
        """The same names over another relation."""
        return replace(self, relation=relation, path=(*self.path, words))

    def called(self, alias: exp.TableAlias | str | None) -> "Rows":
        """The rows as FROM ... AS alias(columns) names them."""
        if alias is None:
            return self
        if isinstance(alias, str):
            names = [replace(name, table=alias) for name in self.names]
            return replace(self, names=tuple(names))
        shown = [name for name in self.names if not name.merged]
        columns = [column.name for column in alias.args.get("columns") or ()]
        if len(columns) > len(shown):
            raise Unsupported(f"{alias.name!r} lists too many columns.", fix="List fewer.")
        fresh = [*columns, *(name.name for name in shown[len(columns) :])]
        names = [
            replace(name, name=new, table=alias.name or name.table)
            for name, new in zip(shown, fresh, strict=True)
        ]
        return replace(self, names=tuple(names))


def single_columns(tables: Iterable[TableDomain]) -> frozenset[tuple[str, str]]:
    """The columns (table, name) along the ways to owners: who shares a value there is one owner."""
    found: set[tuple[str, str]] = set()
    for table in tables:
        at = table.name
        for step in table.path:
            found |= {(at, step.column), (step.table, step.key)}
            at = step.table
    return frozenset(found)


def rows_of_table(
    table: TableDomain, singles: Collection[tuple[str, str]] = (), kinds: Kinds | None = None
) -> Rows:
    """The rows of a table of the policy; ``singles`` are the `single_columns` of all."""
    relation = Table(table)
    owner = _owner_column(table)
    links = {step.column: (step.table, step.key) for step in table.path[:1]}

    def named(name: str, field: str | None) -> Name:
        return Name(name=name, field=field, table=table.name, owner=name == owner,
                    origin=(table.name, name), link=links.get(name))  # fmt: skip

    names = [
        replace(
            named(name, name),
            single=(table.name, name) in singles,
            untyped=kinds.of(table.name, name)
            if kinds is not None and table.columns[name].untyped
            else None,
        )
        for name in schema_of(relation)
    ]
    if owner is not None and not any(name.owner for name in names):
        names.append(named(owner, None))
    return Rows(
        relation=relation,
        names=tuple(names),
        unit=table.unit,
        key=table.key,
        path=(f"table {table.name}",),
        hidden=tuple(name for name, column in table.columns.items() if column.hidden),
    )


def _owner_column(table: TableDomain) -> str | None:
    """The column that holds the owner: the unit's, or a foreign key that refers to it."""
    if table.unit is None or table.unit.column is None:
        return None
    if not table.path:
        return table.unit.column
    only = table.path[0]
    return only.column if len(table.path) == 1 and only.key == table.unit.column else None


def find(column: exp.Column, names: Iterable[Name]) -> Name | None:
    """The name that a column of the SQL means, if there is one."""
    if column.args.get("db") or column.args.get("catalog"):
        raise Unsupported(
            f"{column.sql()!r} has more than two parts.", fix="Write column or table.column."
        )
    table, wanted = fold(column.table), fold(column.name)
    found = [
        name
        for name in names
        if fold(name.name) == wanted and (fold(name.table) == table if table else not name.merged)
    ]
    if len(found) > 1:
        places = ", ".join(sorted({f"{name.table}.{name.name}" for name in found}))
        raise Unsupported(
            f"Column {column.name!r} is ambiguous.",
            fix=f"Name the table: {places}.",
            about="ambiguous",
        )
    return found[0] if found else None


def field_of(name: Name) -> Field:
    """The column as a value to compute with."""
    if name.field is None:
        raise Unsupported(
            f"Column {name.name!r} holds the unit and cannot be used in expressions here.",
            fix="Join on it, group by it or count it; or compute with it before GROUP BY.",
            about="unit",
        )
    return Field(name.field)


def fresh(prefix: str, taken: Collection[str]) -> str:
    """A name that none of the others is."""
    return next(name for place in count() if (name := f"{prefix}{place}") not in taken)


def unknown(column: exp.Column, rows: Rows) -> Unsupported:
    """The refusal of a column that is not in sight."""
    names = rows.names
    if column.table and fold(column.table) not in {fold(name.table) for name in names}:
        raise Unsupported(
            f"{column.table!r} is not a table of this FROM, and a sub-query over private rows "
            "sees only its own tables.",
            fix="Join the tables, or group by the key in the sub-query and join the results.",
            about="scope",
        )
    if fold(column.name) in map(fold, rows.hidden):
        return Unsupported(
            f"Column {column.name!r} is hidden by the policy.",
            fix=f"There are: {', '.join(dict.fromkeys(name.name for name in names))}.",
            about="hidden",
        )
    for table in (each.domain for each in all_of(rows.relation) if type(each) is Table):
        owner = table.unit and table.unit.column
        if table.path and owner is not None and fold(owner) == fold(column.name):
            ways = zip((table.name, *(step.table for step in table.path)), table.path, strict=False)
            joins = [f"JOIN {s.table} ON {at}.{s.column} = {s.table}.{s.key}" for at, s in ways]
            return Unsupported(
                f"There is no column {column.name!r} in {table.name!r}.",
                fix=f"It is in {table.path[-1].table!r}: {' '.join(joins)}.",
                about="column",
            )
    return no_such("column", column.name, dict.fromkeys(name.name for name in names))


def projected(rows: Rows, items: list[tuple[str, Name | Expression]], words: str) -> Rows:
    """The rows with ``(shown name, column or expression)`` instead of their columns.

    A name that comes again is called name_1, as in DuckDB.
    """
    seen: set[str] = set()
    names: list[Name] = []
    columns: list[tuple[str, Expression]] = []
    key_at: dict[str, str] = {}
    for asked, item in items:
        shown, again = asked, 0
        while fold(shown) in seen:
            again += 1
            shown = f"{asked}_{again}"
        seen.add(fold(shown))
        if isinstance(item, Name):
            names.append(
                replace(
                    item, name=shown, field=item.field and shown, table="", merged=False, mark=None
                )
            )
            if item.field is None:
                continue
            key_at[item.field] = shown
            columns.append((shown, Field(item.field)))
        else:
            names.append(Name(name=shown, field=shown))
            columns.append((shown, item))
    key = (
        tuple(key_at[field] for field in rows.key)
        if rows.key and set(rows.key) <= set(key_at)
        else ()
    )
    same = not columns or columns == [(name, Field(name)) for name in rows.schema]
    made = Rows(
        relation=rows.relation if same else Project(rows.relation, tuple(columns)),
        names=tuple(names),
        unit=rows.unit,
        key=key,
        path=rows.path if same else (*rows.path, words),
    )
    made.schema  # noqa: B018 - refuses here what does not fit
    return made


SEVERAL_ROWS: Final = (exp.Window, exp.Query, exp.Exists, exp.In)  # what one row does not tell
_ALIASES_MAX: Final = 2_000
AGGREGATES: Final = listed(
    """mean first last arg_min arg_max list string_agg histogram mode entropy kurtosis skewness mad
    product bit_and bit_or bit_xor bool_and bool_or favg fsum kahan_sum reservoir_quantile
    approx_top_k min_by max_by regr_slope regr_count"""
)


@final
@dataclass(frozen=True, slots=True)
class SelectReader:
    """Reads the clauses of one SELECT over ``rows``; ``aliases`` are what its items are called.

    ``known`` are windows and sub-queries whose values the rows have by now.
    """

    rows: Rows
    aliases: dict[str, Node] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    known: dict[Node, Expression] = field(default_factory=dict)

    @property
    def reading(self) -> ExpressionReader:
        """Reads expressions over the rows."""
        return ExpressionReader(self.rows.schema, self.hook, self.untyped)

    @property
    def untyped(self) -> dict[str, Untyped]:
        """The columns without types."""
        names = ((name.field, name.untyped) for name in self.rows.names)
        return {name: each for name, each in names if name is not None and each is not None}

    def hook(self, node: Node) -> Expression | None:
        """What a node means that is not computed from others: a column above all."""
        if self.known and isinstance(node, SEVERAL_ROWS) and node in self.known:
            return self.known[node]
        if isinstance(node, exp.Column):
            found = self.name(node)
            if isinstance(found, Name):
                return field_of(found)
            return self.without(fold(node.name)).reading.read(found)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            asked = self.name(node.this) if isinstance(node.this, exp.Column) else None
            if isinstance(asked, Name) and asked.field is None and asked.mark is not None:
                return Call("is_null", (Field(asked.mark),))
        if isinstance(node, exp.Star):
            raise refusal("*")
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise sub_query_refusal(node)
        if isinstance(node, exp.Window):
            raise Unsupported(
                "A window function is used where an expression of one row is expected.",
                fix="Put it in the SELECT or QUALIFY of a sub-query.",
                about="window",
            )
        if is_aggregate(node):
            raise Unsupported(
                f"{node.sql(dialect='duckdb')} is used where an expression of one row is expected.",
                fix="Aggregates belong in SELECT, HAVING and ORDER BY.",
                about="aggregate",
            )
        return None

    def name(self, column: exp.Column) -> Name | Node:
        """The column, or else the item of SELECT that has this name."""
        if isinstance(column.this, exp.Star):
            raise refusal("*")
        found = find(column, self.rows.names)
        if found is not None:
            return found
        alias = None if column.table else self.aliases.get(fold(column.name))
        if alias is None:
            raise unknown(column, self.rows)
        return alias

    def without(self, alias: str) -> "SelectReader":
        """The same without one alias, so that none means itself."""
        self.used.append(alias)
        if len(self.used) > _ALIASES_MAX:  # a AS b, b + b AS c, c + c AS d: doubles each time
            raise Unsupported(
                "Aliases refer to each other too often.", fix="Use a sub-query.", about="aliases"
            )
        rest = {name: node for name, node in self.aliases.items() if name != alias}
        return replace(self, aliases=rest)

    def target(self, node: Node) -> Name | Expression:
        """A GROUP BY or SELECT item: the owner's column as a name, others as expressions."""
        if not isinstance(node, exp.Subquery) or node not in self.known:
            node = node.unnest()
        if isinstance(node, exp.Column):
            found = self.name(node)
            if not isinstance(found, Name):
                return self.without(fold(node.name)).target(found)
            return found if found.owner else field_of(found)
        return exact(self.reading.read(node), self.rows.schema)


def is_aggregate(node: Node) -> bool:
    """Whether the node is a call of an aggregate function."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in AGGREGATES
    if isinstance(node, exp.Grouping | exp.GroupingId):
        return False
    return isinstance(node, exp.AggFunc | exp.WithinGroup) or (
        isinstance(node, exp.Filter | exp.IgnoreNulls) and is_aggregate(node.this)
    )


def aggregates_in(node: Node) -> bool:
    """Whether an aggregate stands in the node, outside sub-queries and the heads of windows."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        head = node.this
        while isinstance(head, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            head = head.this
        parts = [*head.iter_expressions(), *node.iter_expressions()]
        return any(aggregates_in(part) for part in parts if part is not node.this)
    return is_aggregate(node) or any(map(aggregates_in, node.iter_expressions()))


def outermost_aggregates(node: Node) -> Iterator[Node]:
    """The calls of aggregates in a node, outside sub-queries and windows."""
    if is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Query | exp.Exists | exp.Window):
        for child in node.iter_expressions():
            yield from outermost_aggregates(child)


def item_of(node: Node) -> Node:
    """A SELECT item without its name."""
    return node.this if isinstance(node, exp.Alias) else node


def plain_name(item: Node) -> str:
    """What a SELECT item is called that was given no name."""
    if isinstance(item, exp.Column):
        return item.name
    if isinstance(item, exp.Count) and isinstance(item.this, exp.Star):
        return "count"
    return item.sql(dialect="duckdb", normalize_functions="lower", comments=False)


def aliases_of(select: exp.Select) -> dict[str, Node]:
    """The names that SELECT gives to its items."""
    return {
        fold(item.alias): item.this.copy()
        for item in select.expressions
        if isinstance(item, exp.Alias)
    }


def conjuncts(node: Node | None) -> list[Node]:
    """The parts of a condition that AND joins; what every branch of an OR says is one of them."""
    if node is None:
        return []
    inner = node.unnest()
    if isinstance(inner, exp.And):
        return [part for each in inner.flatten() for part in conjuncts(each)]
    return _factored(inner) if isinstance(inner, exp.Or) else [inner]


def _factored(node: exp.Or) -> list[Node]:
    """The condition (a AND b) OR (a AND c) as a, and b OR c: the same also where some are NULL."""
    branches = [conjuncts(each) for each in node.flatten()]
    common = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    if not common:
        return [node]
    rests = [[part for part in branch if part not in common] for branch in branches]
    if not all(rests):
        return common
    return [*common, exp.or_(*(exp.and_(*rest) for rest in rests))]
