"""Relations and tallies as queries: the only place that writes SQL about rows.

Columns are called c0, c1, … inside, and the owner ``o``, so that no declared name can clash with
another. Every private relation but a row-level one carries its owner through every step.
"""

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from hashlib import sha256
from itertools import count
from typing import Any, Final, final

from sqlglot import exp

from noisegate.algebra.expression import Expression, Field, Schema
from noisegate.algebra.relation import (
    Filter,
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
from noisegate.algebra.schema import schema_of
from noisegate.errors import Bug
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Kind, Step, TableDomain
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.expressions import write
from noisegate.sources.writing.words import (
    and_,
    as_,
    base_value,
    cast,
    col,
    is_not_null,
    named,
    not_,
)

OWNER: Final = "o"
SIZE: Final = "m"  # at least as many rows as the relation has of the owner


def base_view(place: int) -> str:
    """What the engine calls a table. No name of the engine comes from outside."""
    return f"base{place}"


@final
@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query, its columns by name, and whether it has an owner, and the ``SIZE`` of owners.

    ``stored`` are columns as they lie in the table: numbers that are not clamped and may be NaN or
    infinite, and whole numbers that are not widened.
    """

    query: exp.Select
    columns: Mapping[str, str]
    is_owned: bool
    stored: Mapping[str, str] = field(default_factory=dict)
    is_sized: bool = False

    @property
    def carried(self) -> list[str]:
        """What every step hands on beside the columns."""
        return [OWNER, SIZE] if self.is_sized else [OWNER] if self.is_owned else []


@final
@dataclass(frozen=True, slots=True)
class Coins:
    """Coins that a secret key decides: the same name has the same coin, wherever it is tossed."""

    probability: Fraction
    key: str

    def heads(self, tossed: exp.Expr, dialect: Dialect) -> exp.Expr:
        """Whether the coin of an owner, or of a row's number, shows heads."""
        limit = self.probability.numerator * (1 << 256) // self.probability.denominator
        text = exp.DPipe(
            this=exp.Literal.string(self.key), expression=cast(tossed, "VARCHAR"), safe=False
        )
        return exp.LT(this=dialect.sha256(text), expression=exp.Literal.string(f"{limit:064x}"))

    def apart(self, name: str) -> "Coins":
        """Coins that have nothing to do with these, whoever is called the same."""
        return Coins(self.probability, sha256(f"{self.key} {name}".encode()).hexdigest())

    def of_rows(self, query: exp.Select, dialect: Dialect) -> exp.Select:
        """The rows with heads, each by the number that the engine gives it in this reading."""
        return dialect.with_heads(query, lambda number: self.heads(number, dialect))


@final
@dataclass(frozen=True, slots=True)
class Opened:
    """A SELECT from a relation that shows nothing yet."""

    query: exp.Select
    below: WrittenQuery
    alias: str
    dialect: Dialect

    @property
    def is_owned(self) -> bool:
        """Whether ``o`` is there."""
        return self.below.is_owned

    def field(self, name: str) -> exp.Expr:
        """A column."""
        return col(self.below.columns[name], self.alias)

    def stored(self, field: Expression) -> exp.Expr:
        """A column as it lies in the table."""
        assert type(field) is Field  # noqa: S101 - only columns are stored
        return col(self.below.stored[field.name], self.alias)


def base_of(relation: Relation) -> Table | None:
    """The table that the relation holds some rows of, unchanged."""
    while isinstance(relation, Filter):
        relation = relation.of
    return relation if isinstance(relation, Table) else None


class RelationWriter:
    """Writes relations over base tables whose stored engine types are ``types[table][column]``.

    Of a base table it reads the columns in ``used``, from what the engine calls ``view(table)``.
    With ``coins``, it reads the rows of those owners alone whose coin shows heads.
    """

    def __init__(
        self,
        tables: Mapping[str, TableDomain],
        types: Mapping[str, Mapping[str, str]],
        used: Collection[str],
        view: Callable[[str], str],
        coins: "Coins | None" = None,
        *,
        dialect: Dialect,
    ) -> None:
        self._tables, self.types, self._used, self._names = tables, types, used, count()
        self._view, self._coins, self._dialect = view, coins, dialect
        self.read: tuple[str, ...] = ()  # other tables than those views, by the engine's names

    @property
    def dialect(self) -> Dialect:
        """The engine's words."""
        return self._dialect

    def write(self, relation: Relation) -> WrittenQuery:
        """The query of a relation."""
        rules: dict[type, Callable[[Any], WrittenQuery]] = {
            Table: self._table,
            Filter: self._filter,
            Project: self._project,
            Join: self._join,
            Matching: self._matching,
            Partnered: self._partnered,
            PerUnit: self._per_unit,
            Sampled: self._sampled,
            Union: self._union,
            Windowed: self._windowed,
        }
        return rules[type(relation)](relation)

    def _filter(self, relation: Filter) -> WrittenQuery:
        inner, field = self._inside(relation.of)
        condition = self._written(relation.condition, schema_of(relation.of), field)
        query = inner.query.where(condition, copy=False)
        return replace(inner, query=query)

    def _project(self, relation: Project) -> WrittenQuery:
        inner, field = self._inside(relation.of)
        return self._shown(relation.columns, schema_of(relation.of), inner, field)

    def over(self, relation: Relation) -> Opened:
        """An open SELECT from the relation."""
        below, alias = self.write(relation), self._alias()
        query = exp.select().from_(below.query.subquery(alias, copy=False), copy=False)
        return Opened(query, below, alias, self._dialect)

    def _written(
        self, expression: Expression, schema: Schema, field: Callable[[str], exp.Expr]
    ) -> exp.Expr:
        return write(expression, schema, field, self._dialect)

    def _base(self, name: str) -> exp.Expr:
        return named(self._view(name))

    def _alias(self) -> str:
        return f"t{next(self._names)}"

    def _inside(self, relation: Relation) -> tuple[WrittenQuery, Callable[[str], exp.Expr]]:
        """The relation as a derived table, with all its columns selected again."""
        below, alias = self.write(relation), self._alias()
        names = list(dict.fromkeys([*below.columns.values(), *below.stored.values()]))
        names += below.carried or ([] if names else ["row"])
        query = exp.select(*(col(name, alias) for name in names))
        query = query.from_(below.query.subquery(alias, copy=False), copy=False)
        return replace(below, query=query), _fields(below.columns, alias)

    def _shown(
        self,
        columns: tuple[tuple[str, Expression], ...],
        schema: Schema,
        inner: WrittenQuery,
        field: Callable[[str], exp.Expr],
    ) -> WrittenQuery:
        names = {name: f"c{place}" for place, (name, _) in enumerate(columns)}
        shown = [as_(self._written(e, schema, field), names[name]) for name, e in columns]
        query = inner.query.select(*shown, append=False, copy=False)
        if inner.is_owned:
            alias = inner.query.args["from_"].this.alias
            query = query.select(*(col(name, alias) for name in inner.carried), copy=False)
        elif not shown:
            query = query.select(as_(exp.true(), "row"), copy=False)
        return WrittenQuery(query, names, inner.is_owned, is_sized=inner.is_sized)

    def _table(self, relation: Table) -> WrittenQuery:
        table, alias = relation.domain, self._alias()
        types, dialect = self.types[table.name], self._dialect
        shown: list[exp.Expr] = []
        names: dict[str, str] = {}
        stored: dict[str, str] = {}
        for column in table.columns.values():
            if column.hidden or column.name not in self._used:
                continue
            names[column.name] = f"c{len(names)}"
            value: exp.Expr = col(column.name, alias)
            read = base_value(column, types[column.name], value, dialect)
            shown.append(as_(read, names[column.name]))
            if column.kind is Kind.NUMBER or dialect.is_narrow(column, types[column.name]):
                stored[column.name] = f"s{len(stored)}"
                if column.kind is Kind.NUMBER:
                    value = dialect.read_as(column, types[column.name], value)
                shown.append(as_(value.copy(), stored[column.name]))
        query = exp.select(*shown) if shown else exp.select(as_(exp.true(), "row"))
        query = query.from_(as_(self._base(table.name), alias), copy=False)
        if table.unit is None or table.unit.column is None:
            return WrittenQuery(query, names, is_owned=False, stored=stored)
        value = self.as_owner(table.unit.column, alias)
        if table.path:
            there = self._alias()
            found = self._owners(table.path, table.unit.column).subquery(there, copy=False)
            named_by = exp.EQ(
                this=self.as_owner(table.path[0].column, alias), expression=col("k", there)
            )
            query = query.join(found, on=named_by, join_type="inner", copy=False)
            value = col(OWNER, there)
        query = query.select(as_(value, OWNER), copy=False)
        query = query.where(is_not_null(value.copy()), copy=False)
        if self._coins is not None:
            coins = self._coins.apart(f"ids of {table.unit.ids}")
            query = query.where(coins.heads(value.copy(), dialect), copy=False)
        return WrittenQuery(query, names, is_owned=True, stored=stored)

    def _owners(self, path: tuple[Step, ...], owner: str) -> exp.Select:
        """Whom each key leads to, once: so a row is there once for its owner, as in plain SQL."""
        here = self._alias()
        query = exp.select(as_(self.as_owner(path[0].key, here), "k")).distinct(copy=False)
        query = query.from_(as_(self._base(path[0].table), here), copy=False)
        for step in path[1:]:
            one, there = self.as_owner(step.column, here), self._alias()
            condition = exp.EQ(this=one, expression=self.as_owner(step.key, there))
            joined = as_(self._base(step.table), there)
            query = query.join(joined, on=condition, join_type="inner", copy=False)
            here = there
        return query.select(as_(self.as_owner(owner, here), OWNER), copy=False)

    def as_owner(self, column: str, alias: str) -> exp.Expr:
        """An id as it is compared: whole numbers where every table has them, else text.

        Ids are never parsed or rounded: that could make two owners one.
        """
        return self._dialect.owner(col(column, alias), self._owner_types)

    @property
    def _owner_types(self) -> set[str]:
        """The stored types of all columns that owners are found by."""
        found = set()
        for table in self._tables.values():
            if table.unit is None or table.unit.column is None:
                continue
            at = table.name
            for step in table.path:
                found |= {self.types[at][step.column], self.types[step.table][step.key]}
                at = step.table
            found.add(self.types[at][table.unit.column])
        return found

    def _join(self, relation: Join) -> WrittenQuery:
        from noisegate.sources.writing.links import sides  # noqa: PLC0415 - for joins alone

        left, right = map(self.write, sides(relation, self))
        one, other = self._alias(), self._alias()
        condition = self._equal(
            relation.on, relation.left, relation.right, (left, one), (right, other)
        )
        condition = and_(condition, *_one_owner(left, one, right, other))
        shown: list[exp.Expr] = []
        names: dict[str, str] = {}
        for written, alias in ((left, one), (right, other)):
            for name, inside in written.columns.items():
                names[name] = f"c{len(names)}"
                shown.append(as_(col(inside, alias), names[name]))
        owned = left.is_owned or right.is_owned
        if owned:
            shown.append(as_(col(OWNER, one if left.is_owned else other), OWNER))
        kind = "left" if relation.kind is JoinKind.LEFT else "inner"
        query = exp.select(*(shown or [as_(exp.true(), "row")]))
        query = query.from_(left.query.subquery(one, copy=False), copy=False)
        partner = right.query.subquery(other, copy=False)
        query = query.join(partner, on=condition, join_type=kind, copy=False)
        return WrittenQuery(query, names, owned)

    def _matching(self, relation: Matching) -> WrittenQuery:
        inner, _ = self._inside(relation.of)
        alias = inner.query.args["from_"].this.alias
        partner, there = self.write(relation.other), self._alias()
        condition = and_(
            self._equal(relation.on, relation.of, relation.other, (inner, alias), (partner, there)),
            *_one_owner(inner, alias, partner, there),
        )
        exists = exp.Exists(
            this=exp.select("1")
            .from_(partner.query.subquery(there, copy=False), copy=False)
            .where(condition, copy=False)
        )
        wanted = not_(exists) if relation.negated else exists
        return WrittenQuery(inner.query.where(wanted, copy=False), inner.columns, inner.is_owned)

    def _partnered(self, relation: Partnered) -> WrittenQuery:
        if not self._dialect.correlates:
            raise self._dialect.refusal("Comparing each row with other rows")
        inner, _ = self._inside(relation.of)
        alias = inner.query.args["from_"].this.alias
        names, schema = dict(inner.columns), schema_of(relation.other)
        from noisegate.sources.writing.folds import fold  # noqa: PLC0415

        for folded in relation.folded:
            partner, there = self.write(relation.other), self._alias()
            field = _fields(partner.columns, there)
            either = {name: col(each, alias) for name, each in inner.columns.items()}
            either |= {name: col(each, there) for name, each in partner.columns.items()}
            condition = self._written(
                relation.condition, {**schema_of(relation.of), **schema}, either.__getitem__
            )
            query = exp.select(fold(folded, schema, field, self._dialect))
            query = query.from_(partner.query.subquery(there, copy=False), copy=False).where(
                and_(condition, *_one_owner(inner, alias, partner, there)), copy=False
            )
            names[folded.name] = f"c{len(names)}"
            inner.query.select(as_(query.subquery(copy=False), names[folded.name]), copy=False)
        return WrittenQuery(inner.query, names, inner.is_owned)

    def _windowed(self, relation: Windowed) -> WrittenQuery:
        from noisegate.sources.writing.folds import window  # noqa: PLC0415

        inner, field = self._inside(relation.of)
        alias, schema = inner.query.args["from_"].this.alias, schema_of(relation.of)
        columns = [field(name) for name in inner.columns]
        names = dict(inner.columns)
        for each in relation.windows:
            names[each.name] = f"c{len(names)}"
            value = window(each, schema, field, col(OWNER, alias), columns, self._dialect)
            inner.query.select(as_(value, names[each.name]), copy=False)
        return WrittenQuery(inner.query, names, is_owned=True)

    def _equal(
        self,
        on: tuple[tuple[Expression, Expression], ...],
        left: Relation,
        right: Relation,
        one: tuple[WrittenQuery, str],
        other: tuple[WrittenQuery, str],
    ) -> exp.Expr:
        pairs = [
            _same(
                self._written(a, schema_of(left), _fields(one[0].columns, one[1])),
                self._written(b, schema_of(right), _fields(other[0].columns, other[1])),
            )
            for a, b in on
        ]
        return and_(*pairs) if pairs else exp.true()

    def _per_unit(self, relation: PerUnit) -> WrittenQuery:
        opened, schema = self.over(relation.of), schema_of(relation.of)
        query, field, alias = opened.query, opened.field, opened.alias
        names: dict[str, str] = {}
        shown: list[exp.Expr] = []
        groups: list[exp.Expr] = [col(OWNER, alias)]
        for name, expression in relation.keys:
            names[name] = f"c{len(names)}"
            key = self._written(expression, schema, field)
            groups.append(key)
            shown.append(as_(key.copy(), names[name]))
        from noisegate.sources.writing.folds import fold  # noqa: PLC0415

        for folded in relation.folded:
            names[folded.name] = f"c{len(names)}"
            shown.append(as_(fold(folded, schema, field, self._dialect), names[folded.name]))
        shown.append(as_(col(OWNER, alias), OWNER))
        query = query.select(*shown, copy=False).group_by(*groups, copy=False)
        return WrittenQuery(query, names, is_owned=True)

    def _sampled(self, relation: Sampled) -> WrittenQuery:
        """Keep an owner's rows, or where rows are owners each row, by a coin.

        Claim: coins are independent, and the same for all rows of an owner. Why: a coin is the hash
            of a secret key and the owner, or the number that the engine gives a row; such hashes
            are as good as random to whoever does not know the key, which is used once. An owner's
            text is its own: ids are never rounded. Rounding: down, to a multiple of 2**-256.
        """
        if relation.key is None:
            raise Bug("The sample has not been drawn.", fix="Please report the question.")
        inner, _ = self._inside(relation.of)
        alias = inner.query.args["from_"].this.alias
        coins = Coins(relation.probability, relation.key)
        if inner.is_owned:
            query = inner.query.where(coins.heads(col(OWNER, alias), self._dialect), copy=False)
        else:
            query = coins.of_rows(inner.query, self._dialect)
        return replace(inner, query=query)

    def _union(self, relation: Union) -> WrittenQuery:
        parts = [self.write(part) for part in relation.parts]
        used = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
        queries = [
            exp.select(
                *(as_(col(part.columns[name], "u"), f"c{place}")
                  for place, name in enumerate(used)),
                *([col(OWNER, "u")] if part.is_owned else [] if used else [as_(exp.true(), "row")]),
            ).from_(part.query.subquery("u", copy=False), copy=False)
            for part in parts
        ]  # fmt: skip
        united: exp.Query = queries[0]
        for query in queries[1:]:
            united = exp.union(united, query, distinct=False)
        names = {name: f"c{place}" for place, name in enumerate(used)}
        alias = self._alias()
        shown = [*names.values(), *([OWNER] if parts[0].is_owned else [] if used else ["row"])]
        query = exp.select(*(col(name, alias) for name in shown)).from_(
            united.subquery(alias, copy=False), copy=False
        )
        return WrittenQuery(query, names, parts[0].is_owned)


def _fields(columns: Mapping[str, str], alias: str) -> Callable[[str], exp.Expr]:
    return lambda name: col(columns[name], alias)


def _one_owner(one: WrittenQuery, alias: str, other: WrittenQuery, there: str) -> list[exp.Expr]:
    """That private rows and their private partners are one owner's."""
    owned = one.is_owned and other.is_owned
    return [_same(col(OWNER, alias), col(OWNER, there))] if owned else []


def _same(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.EQ(this=exp.paren(one), expression=exp.paren(other))
