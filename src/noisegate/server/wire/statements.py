"""What a question is about, and whether it only looks.

Tools look before they ask: previews, samples, row counts, lists of values, empty results to learn
the columns. Looks are told apart by their form alone, and a doubtful one is taken for a look, which
never costs anything.

| form | example | answered from |
|---|---|---|
| catalogue | ``SELECT version()``, ``pg_class``, no table at all | declared facts |
| public | ``SELECT * FROM drugs`` | public rows, exact and free |
| preview | ``SELECT * FROM visits LIMIT 100`` | the practice twin |
| empty | ``SELECT … LIMIT 0``, ``WHERE 1 = 0`` | the practice twin |
| scan | ``SELECT COUNT(*) FROM visits``, ``SELECT DISTINCT …`` | the twin, unless priced or free |
| aggregate | all else | the gate, for a price |
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from noisegate.desk.terms.terms import Terms
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import TableDomain
from noisegate.server.wire.commands import tokens_of
from noisegate.sql.reading.clock import moment_of
from noisegate.sql.reading.statement import take_hints

Form: TypeAlias = Literal["catalogue", "public", "preview", "empty", "scan", "aggregate"]
DIALECT: Final = "duckdb"
SCHEMA: Final = "public"
_AGGREGATES: Final = frozenset(  # that sqlglot does not know as such
    {"covar_samp", "mode", "histogram", "approx_quantile", "quantile_disc", "count_star"}
)
_GATHERED: Final = (exp.AggFunc, exp.Group, exp.Distinct, exp.Pivot)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question: its form, its SQL in DuckDB's spelling, and what it says about paying.

    ``tree`` is None where only the gate can say what is wrong with it. ``exact`` says that the SQL
    is as it was sent, so that the gate reads hints and places of mistakes by itself.
    """

    form: Form
    sql: str
    tree: exp.Expr | None
    terms: Terms
    exact: bool = True

    @property
    def is_priced(self) -> bool:
        """Whether the SQL itself says what to pay."""
        return any((self.terms.epsilon, self.terms.within, self.terms.relative))

    @property
    def parameters(self) -> int:
        """How many parameters it has."""
        return max((place for place, _ in parameters_of(self.tree)), default=0)

    def bound(self, values: Mapping[int, exp.Expr]) -> "Asked":
        """The same with values in place of its parameters."""
        if self.tree is None or not self.parameters:
            return self
        tree = self.tree.copy()
        for place, node in list(parameters_of(tree)):
            node.replace(values[place].copy())
        _reworded(tree)  # lists are known now
        form = self.form if self.form in ("catalogue", "public") else _form(tree)
        return replace(self, form=form, tree=tree, sql=spelled(tree), exact=False)


def read(sql: str, tables: Mapping[str, TableDomain], dataset: str) -> Asked:
    """What a question is."""
    names = {name.lower(): table.is_public for name, table in tables.items()}
    if not any(str(token.text).lower() in names for token in tokens_of(sql)):
        return Asked(form="catalogue", sql=sql, tree=None, terms=Terms())
    plain, terms, explain = take_hints(sql)
    tree = _parsed(plain)
    if tree is None or explain:
        return Asked(form="aggregate", sql=sql, tree=None, terms=terms)
    _require_plain(tree)
    changed = _without_schema(tree, {SCHEMA, dataset.lower()})
    changed = _reworded(tree) or changed
    found = _named(tree, names)
    if not found & names.keys():
        return Asked(form="catalogue", sql=sql, tree=None, terms=Terms())
    if system := {name for name in found if "." in name or name.startswith("pg_")}:
        raise Unsupported(
            f"{min(system)!r} is a table of the catalogue.",
            fix="Ask about it and about rows separately.",
            about="table",
        )
    public = all(names.get(name, False) for name in found)
    return Asked(
        form="public" if public else _form(tree),
        sql=spelled(tree) if changed else sql,
        tree=tree,
        terms=terms,
        exact=not changed,
    )


def _quantile(words: DuckDB.Generator, made: exp.WithinGroup) -> str:
    """As it was written; what the writer makes of it no reader takes for the same."""
    told, order = made.this, words.sql(made, "expression").lstrip()
    if not isinstance(told, exp.PercentileCont | exp.PercentileDisc):
        return str(words.withingroup_sql(made))
    return f"{told.sql_name()}({words.sql(told, 'this')}) WITHIN GROUP ({order})"


def spelled(tree: exp.Expr) -> str:
    """The SQL of a tree, without comments: what hints said is in its terms."""
    words = DuckDB.Generator(dialect=DIALECT, comments=False)
    words._dispatch = {**words._dispatch, exp.WithinGroup: _quantile}  # noqa: SLF001 - no heir: sqlglot may be compiled
    return str(words.generate(tree))


def parameters_of(tree: exp.Expr | None) -> Iterator[tuple[int, exp.Expr]]:
    """The places of parameters in a tree: $1, $2 and so on."""
    if tree is None:
        return
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        name = node.name or node.sql()
        if not name.isdigit() or not 1 <= int(name) <= 65_535:
            raise Unsupported(
                f"{name!r} is not a parameter.", fix="Use $1, $2, …", about="parameter"
            )
        yield int(name), node


def _parsed(sql: str) -> exp.Expr | None:
    for dialect in (DIALECT, "postgres"):
        try:
            (tree,) = sqlglot.parse(sql, dialect=dialect)
        except (SqlglotError, ValueError, RecursionError):
            continue
        if isinstance(tree, exp.Query):
            return tree
    return None


def _ctes(tree: exp.Expr) -> set[str]:
    return {each.alias.lower() for each in tree.find_all(exp.CTE)}


def _require_plain(tree: exp.Expr) -> None:
    """Refuse a table with its schema that a WITH has the name of: without it, it is the other."""
    ctes = _ctes(tree)
    for table in tree.find_all(exp.Table):
        if table.db and table.name.lower() in ctes:
            raise Unsupported(
                f"{table.name!r} is a table and also a WITH of this question.",
                fix="Give the WITH another name.",
                about="with",
            )


def _named(tree: exp.Expr, known: Collection[str]) -> set[str]:
    """The tables that are read, in small letters; those of other schemas with a dot.

    A WITH that has the name of a ``known`` table may be either, and is taken for the table.
    """
    ctes = _ctes(tree) - set(known)
    found = set()
    for table in tree.find_all(exp.Table):
        name, schema = table.name.lower(), table.db.lower()
        if name and not (name in ctes and not schema):
            found.add(f"{schema}.{name}" if schema else name)
    return found


def _without_schema(tree: exp.Expr, known: Collection[str]) -> bool:
    """Take ``public.`` off names of tables and columns, and off the data set's; whether any was."""
    changed = False
    for node in tree.find_all(exp.Table, exp.Column):
        parts = [node.args.get(part) for part in ("db", "catalog")]
        given = [part.name.lower() for part in parts if isinstance(part, exp.Identifier)]
        if given and all(part in known for part in given):
            node.set("db", None)
            node.set("catalog", None)
            changed = True
    return changed


# what Postgres has other words for


def _reworded(tree: exp.Expr) -> bool:
    """Lists of ANY and ALL become those of IN, moments plain ones of UTC; whether any did."""
    made = [(node, new) for node in tree.walk() if (new := _other_words(node)) is not None]
    for node, new in made:
        node.replace(new)
    return bool(made)


def _other_words(node: exp.Expr) -> exp.Expr | None:
    return _in_list(node) if isinstance(node, exp.EQ | exp.NEQ) else moment_of(node)


def _in_list(node: exp.Binary) -> exp.Expr | None:
    """``c = ANY(ARRAY[…])`` and ``c <> ALL(ARRAY[…])``, once their lists are known."""
    right, any_of = node.expression, isinstance(node, exp.EQ)
    if isinstance(right, exp.Any if any_of else exp.All):
        held = right.this.unnest()
    elif not any_of and isinstance(right, exp.Anonymous) and str(right.this).lower() == "all":
        held = right.expressions[0].unnest()
    else:
        return None
    held = held.this.unnest() if isinstance(held, exp.Cast) else held
    held = list_of(held) if isinstance(held, exp.Literal) and held.is_string else held
    if not isinstance(held, exp.Array):
        return None
    if not held.expressions:
        return exp.Boolean(this=not any_of)
    found = exp.In(this=node.this.copy(), expressions=[each.copy() for each in held.expressions])
    return found if any_of else exp.Not(this=found)


def list_of(node: exp.Literal) -> exp.Array:
    """A list that was written as a text: '{r,v}'."""
    inside = str(node.this).strip("{}")
    items = inside.split(",") if inside else []
    return exp.Array(expressions=[exp.Literal.string(item.strip('"')) for item in items])


# what only looks


def _form(tree: exp.Expr) -> Form:
    if not _gathers(tree):
        return "preview"
    if is_empty(tree):
        return "empty"
    return "scan" if _is_scan(tree) else "aggregate"


def _gathers(tree: exp.Expr) -> bool:
    """Whether rows are put together anywhere: only then an answer can be about all of them."""
    named = (str(each.this).lower() for each in tree.find_all(exp.Anonymous))
    return tree.find(*_GATHERED) is not None or any(
        name in _AGGREGATES or name.startswith("regr_") for name in named
    )


def is_empty(tree: exp.Expr) -> bool:
    """LIMIT 0, or a condition that is never true: only the columns are wanted."""
    limit = tree.args.get("limit")
    if limit is not None and _value(limit.expression) == 0:
        return True
    where = tree.args.get("where")
    return where is not None and _is_never(where.this)


def _is_never(condition: exp.Expr) -> bool:
    plain = condition.unnest()
    if isinstance(plain, exp.And):
        return _is_never(plain.left) or _is_never(plain.right)
    if isinstance(plain, exp.Boolean):
        return not plain.this
    if isinstance(plain, exp.EQ | exp.NEQ):
        left, right = _value(plain.left), _value(plain.right)
        known = left is not None and right is not None
        return known and (left == right) is isinstance(plain, exp.NEQ)
    return False


def _value(node: Any) -> int | str | None:  # noqa: ANN401 - of a tree
    if not isinstance(node, exp.Literal):
        return None
    return str(node.this) if node.is_string or not node.this.isdigit() else int(node.this)


def _is_scan(tree: exp.Expr) -> bool:
    """Rows counted, values listed, ends of a column: of a whole table, as it is."""
    if not isinstance(tree, exp.Select) or tree.args.get("joins") or tree.args.get("with_"):
        return False
    if not _is_whole(tree) or not _is_usual(tree):
        return False
    group, distinct = tree.args.get("group"), tree.args.get("distinct")
    items = [item.unalias() for item in tree.expressions]
    if group or distinct:
        return all(not item.find(exp.AggFunc) for item in items)
    return all(_is_end(item) for item in items)


def _is_whole(tree: exp.Select) -> bool:
    """Whether all rows of one table take part, or those of such a scan or preview."""
    where = tree.args.get("where")
    if where is not None and not _is_known(where.this):
        return False
    source = tree.args.get("from_")
    inner = None if source is None else source.this
    if isinstance(inner, exp.Table):
        return True
    if not isinstance(inner, exp.Subquery) or not isinstance(inner.this, exp.Select):
        return False
    return _is_scan(inner.this) or (_is_whole(inner.this) and not _gathers(inner.this))


def _is_known(condition: exp.Expr) -> bool:
    """``c IS NOT NULL``, which lists of values leave out."""
    plain = condition.unnest()
    if isinstance(plain, exp.And):
        return _is_known(plain.left) and _is_known(plain.right)
    inner = plain.this.unnest() if isinstance(plain, exp.Not) else plain
    return isinstance(inner, exp.Is) and isinstance(inner.this, exp.Column)


def _is_usual(tree: exp.Select) -> bool:
    """No HAVING but ``COUNT(1) > 0``, which says nothing; no window."""
    having = tree.args.get("having")
    if having is not None:
        said = having.this.unnest()
        if not (isinstance(said, exp.GT) and isinstance(said.this, exp.Count)):
            return False
        if _value(said.expression) != 0:
            return False
    return tree.find(exp.Window) is None


def _is_end(item: exp.Expr) -> bool:
    """COUNT, MIN, MAX or SUM(1) of something plain, maybe cast; or a constant."""
    while isinstance(item, exp.Cast | exp.Paren):
        item = item.this
    if isinstance(item, exp.Literal | exp.Null):
        return True
    if isinstance(item, exp.Sum):
        return _value(item.this) == 1
    if not isinstance(item, exp.Count | exp.Min | exp.Max | exp.ApproxDistinct):
        return False
    inner = item.this
    parts = inner.expressions if isinstance(inner, exp.Distinct) else [inner]
    return all(
        part is None or isinstance(part, exp.Star | exp.Column | exp.Literal) for part in parts
    )


# names of columns that a question does not name, as Postgres gives them


_UNKNOWN = "?column?"
_CALLED: Final[Mapping[type[exp.Expr], str]] = {
    exp.CurrentVersion: "version", exp.CurrentTimestamp: "now", exp.Array: "array",
}  # fmt: skip


def with_names(tree: exp.Expr) -> exp.Expr:
    """The same question in which every item of its SELECTs has a name."""
    for select in list(tree.find_all(exp.Select)):
        for item in list(select.expressions):
            if not isinstance(item, exp.Alias | exp.Star | exp.Column | exp.Unnest):
                item.replace(exp.alias_(item.copy(), _name(item), quoted=True))
    return tree


def _name(item: exp.Expr) -> str:  # noqa: PLR0911 - one for each kind
    """Of a function its own, of a cast what is cast or else the type, of all else none."""
    plain = item.unnest()
    if isinstance(plain, exp.Column | exp.Dot):
        return plain.name
    if isinstance(plain, exp.Cast):
        inner = _name(plain.this)
        return plain.to.sql(dialect="postgres").lower() if inner == _UNKNOWN else inner
    if isinstance(plain, exp.Case):
        return "case"
    if isinstance(plain, exp.Window):
        return _name(plain.this)
    if isinstance(plain, exp.Anonymous):
        return str(plain.this).lower()
    if (called := _CALLED.get(type(plain))) is not None:
        return called
    if isinstance(plain, exp.Func) and not isinstance(plain, exp.Connector | exp.Predicate):
        return plain.sql_name().lower()
    return _UNKNOWN
