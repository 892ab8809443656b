"""A question about the catalogue in Postgres' words becomes one in DuckDB's.

Only relations and functions that are listed remain; each other one is refused by name. Functions
that look something up become sub-queries over the catalogue's own tables.
"""

from collections.abc import Callable, Mapping
from typing import Final, final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.server.wire.commands import tokens_of
from noisegate.server.wire.relations import CLASSES, COLUMN_TYPES, INFORMATION, PG
from noisegate.server.wire.statements import DIALECT, list_of, with_names
from noisegate.server.wire.types import TEXT

_TYPES: Final = {
    "NAME": "VARCHAR", '"CHAR"': "VARCHAR", "OID": "BIGINT", "XID": "BIGINT", "REGPROC": "VARCHAR",
    "INT2VECTOR": "VARCHAR", "OIDVECTOR": "VARCHAR", "CARDINAL_NUMBER": "INT", "CHAR": "VARCHAR",
    "SQL_IDENTIFIER": "VARCHAR", "CHARACTER_DATA": "VARCHAR", "YES_OR_NO": "VARCHAR",
    "REGNAMESPACE": "VARCHAR", "REGROLE": "VARCHAR",
}  # fmt: skip
_PLAIN: Final = frozenset(  # functions of the engine that do here what they do in Postgres
    """array_length array_position array_to_string btrim cardinality char_length chr concat
    concat_ws greatest initcap json_build_object least left length lower ltrim md5 mod nullif
    coalesce position quote_literal regexp_replace replace reverse right round rtrim
    split_part starts_with strpos substr substring trim upper abs ceil floor sign sqrt power
    row_number rank dense_rank count min max sum avg array_agg string_agg bool_and bool_or list
    first last now unnest generate_subscripts to_char date_trunc date_part extract
    string_to_array ascii random if all any""".split()  # noqa: SIM905 - reads better
)
_TRUE: Final = frozenset(
    """pg_table_is_visible pg_type_is_visible pg_function_is_visible pg_operator_is_visible
    pg_opclass_is_visible pg_collation_is_visible pg_relation_is_publishable
    has_table_privilege has_schema_privilege has_database_privilege
    has_any_column_privilege has_column_privilege has_function_privilege
    has_type_privilege has_language_privilege""".split()  # noqa: SIM905 - reads better
)
_NULL: Final = frozenset(
    """pg_get_expr pg_get_viewdef pg_get_indexdef pg_get_triggerdef pg_get_ruledef pg_get_partkeydef
    pg_get_statisticsobjdef_columns pg_get_serial_sequence pg_get_functiondef shobj_description
    pg_get_function_identity_arguments pg_get_function_arguments pg_get_function_result
    pg_get_function_sqlbody pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size
    pg_database_size pg_tablespace_location pg_size_pretty pg_stat_get_numscans
    pg_index_column_has_property pg_get_partition_constraintdef pg_advisory_unlock_all
    pg_last_xact_replay_timestamp inet_server_addr inet_client_addr pg_my_temp_schema
    pg_notify pg_sleep pg_advisory_lock pg_advisory_unlock pg_try_advisory_lock
    pg_get_constraintdef_of_nothing pg_options_to_table pg_export_snapshot""".split()  # noqa: SIM905 - reads better
)
_FALSE: Final = frozenset(
    """pg_is_in_recovery pg_is_other_temp_schema pg_has_role row_security_active
    has_sequence_privilege pg_is_wal_replay_paused has_server_privilege
    has_tablespace_privilege""".split()  # noqa: SIM905 - reads better
)
_NOW: Final = frozenset({"transaction_timestamp", "statement_timestamp", "clock_timestamp"})
_CLOCKS: Final[Mapping[type[exp.Expr], str]] = {  # whose words the engine takes for an item's name
    exp.CurrentTimestamp: "now", exp.CurrentDate: "today", exp.Localtime: "current_localtime",
    exp.CurrentTime: "current_localtime", exp.Localtimestamp: "current_localtimestamp",
}  # fmt: skip
_SYSTEM_COLUMNS: Final = frozenset({"xmin", "ctid", "tableoid"})
_TABLE_FUNCTIONS: Final = frozenset({"unnest", "generate_series", "generate_subscripts"})
_LISTING: Final = (exp.Unnest, exp.GenerateSeries, exp.ExplodingGenerateSeries)
_BOMBS: Final = frozenset(  # a few letters that make gigabytes; and files
    {"repeat", "pad", "lpad", "rpad", "generate_series", "exploding_generate_series", "space"}
    | {"read_csv", "read_parquet"}
)
_PARTITIONS: Final = ("pg_partition_ancestors", "pg_partition_tree")
_NO_TABLE: Final = "List the tables with \\dt."
_NOT_HERE: Final = "Ask about tables with \\d, or SELECT from one of them."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who asks, about which data set, with which settings."""

    user: str
    dataset: str
    version: str
    settings: Mapping[str, str]


def rewritten(tree: exp.Expr, context: Context) -> str:
    """The SQL for DuckDB."""
    tree = tree.copy()
    if any(str(each.this).lower() == "_pg_expandarray" for each in tree.find_all(exp.Anonymous)):
        return _no_rows(tree)
    ctes = {each.alias.lower() for each in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        _place(table, ctes)
    rewriter, tree = _Rewriter(context), with_names(tree)
    for node in reversed(list(tree.walk())):  # what is inside comes first
        made = rewriter.node(node)
        if made is not node:
            node.replace(made)
    return tree.sql(dialect=DIALECT, comments=False)


def parsed(sql: str) -> exp.Expr:
    """The tree of a question about the catalogue, as Postgres spells it."""
    try:
        (tree,) = sqlglot.parse(_cleaned(sql), dialect="postgres")
    except (SqlglotError, ValueError, RecursionError):
        tree = None
    if not isinstance(tree, exp.Query):
        raise Unsupported("The SQL cannot be read.", fix="Check its spelling.", about="syntax")
    return tree


def _cleaned(sql: str) -> str:
    """The SQL without ``pg_catalog.``, ``OPERATOR(…)`` and COLLATE, which change nothing here."""
    tokens, keep, at = tokens_of(sql), list[str](), 0
    words = [_word(sql, token) for token in tokens]
    while at < len(words):
        after = words[at + 1 : at + 4]
        if words[at] == "pg_catalog" and after[:1] == ["."]:
            at += 2
        elif words[at] == "operator" and after[:1] == ["("]:
            end = words.index(")", at)
            keep.append(sql[tokens[end - 1].start : tokens[end - 1].end + 1])
            at = end + 1
        elif words[at] == "collate":
            at += 4 if after[1:2] == ["."] else 2
        elif words[at] == "select" and words[at - 1 : at] == ["as"]:  # a name, as any word there
            keep.append('"select"')
            at += 1
        elif words[at] == "oid" and words[at - 1 : at] == ["::"]:
            keep.append("bigint")
            at += 1
        else:
            keep.append(sql[tokens[at].start : tokens[at].end + 1])
            at += 1
    return " ".join(keep).replace("$ ", "$")


def _word(sql: str, token: Token) -> str:
    text = sql[token.start : token.end + 1]
    return text.lower() if text == token.text else text


def _no_rows(tree: exp.Expr) -> str:
    """The columns without a row: keys of indexes, of which there are none."""
    names = [name for name in getattr(tree, "named_selects", ()) if name != "*"]
    none = [exp.alias_(exp.cast(exp.Null(), "VARCHAR"), name, quoted=True) for name in names]
    return exp.select(*none).where(exp.false()).sql(dialect=DIALECT)


def _place(table: exp.Table, ctes: set[str]) -> None:
    """Point a name at the relation that is meant."""
    name, schema = table.name.lower(), table.db.lower()
    called = table.this
    if isinstance(called, exp.Anonymous):
        name = str(called.this).lower()
        name = "pg_settings" if name == "pg_show_all_settings" else name
        if name in _PARTITIONS:
            no = exp.select("NULL::BIGINT AS relid", "1 AS depth", dialect=DIALECT)
            no = no.where(exp.false())  # no table is a partition of another one
            table.replace(exp.Subquery(this=no, alias=table.args.get("alias")))
            return
        if name in PG:
            table.set("this", exp.to_identifier(name))
    if isinstance(called, exp.Func) and name not in PG:
        if name not in _TABLE_FUNCTIONS and not isinstance(called, _LISTING):
            name = name or called.sql_name().lower()
            raise Unsupported(
                f"There is no function {name!r} here.", fix=_NOT_HERE, about="function"
            )
        return
    if not schema and name in ctes:
        return
    if schema == "information_schema" and name in INFORMATION:
        where = "info"
    elif schema in ("", "pg_catalog") and name in PG:
        where = "pg"
    else:
        said = f"{schema}.{name}" if schema else name
        raise Unsupported(f"There is no table {said!r}.", fix=_NO_TABLE, about="table")
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
    table.set("this", exp.to_identifier(name))
    table.set("db", exp.to_identifier(where))
    table.set("catalog", None)


@final
class _Rewriter:
    """One node at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def node(self, node: exp.Expr) -> exp.Expr:  # noqa: PLR0911 - one for each kind
        """What stands in its place."""
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Any | exp.All) and isinstance(node.this, exp.Literal):
            return type(node)(this=list_of(node.this))
        if isinstance(node, exp.EQ | exp.NEQ):
            return _comparison(node)
        if isinstance(node, exp.Column) and node.name.lower() in _SYSTEM_COLUMNS:
            none = exp.Literal.number(0)
            shown = isinstance(node.parent, exp.Select)
            return exp.alias_(none, node.name, quoted=True) if shown else none
        if isinstance(node, exp.Column) and not node.table:
            asks = node.name.lower() in ("current_role", "user") and not node.this.quoted
            return exp.Literal.string(self._context.user) if asks else node
        if isinstance(node, exp.Column):
            for part in ("db", "catalog"):
                node.set(part, None)
            return node
        if isinstance(node, exp.Func) and not isinstance(node, exp.And | exp.Or | exp.Cast):
            return self._function(node)
        return node

    def _cast(self, node: exp.Cast) -> exp.Expr:
        name = node.to.sql(dialect="postgres").upper().rpartition(".")[2]
        if name == "REGCLASS":
            return _class(node.this)
        if name == "REGTYPE":
            return _type(node.this)
        if name.endswith("[]") and name[:-2] in _TYPES:
            node.set("to", exp.DataType.build(f"{_TYPES[name[:-2]]}[]", dialect=DIALECT))
        elif name in _TYPES:
            node.set("to", exp.DataType.build(_TYPES[name], dialect=DIALECT))
        if isinstance(node.this, exp.Literal) and name.endswith("[]"):
            return exp.cast(list_of(node.this), node.to)
        return node

    def _function(self, node: exp.Func) -> exp.Expr:  # noqa: PLR0911 - one for each kind
        typed = not isinstance(node, exp.Anonymous)
        name = (node.sql_name() if typed else str(node.this)).lower()
        args = list(node.args.values()) if typed else node.expressions
        if name in _TRUE:
            return exp.true()
        if name in _FALSE:
            return exp.false()
        if name in _NULL:
            return exp.cast(exp.Null(), "VARCHAR")
        if name in _NOW or type(node) in _CLOCKS:
            return exp.Anonymous(this=_CLOCKS.get(type(node), "now"))
        if (known := self._known(name)) is not None:
            return exp.Literal.string(known)
        if (looked := _LOOKED_UP.get(name)) is not None:
            return looked(args)
        if name in ("current_setting", "set_config"):
            return self._setting(args)
        listed = isinstance(node.parent, exp.Table)  # row by row, which stops in time
        if listed or name in _PLAIN or (typed and name not in _BOMBS):
            return node
        said = name.removeprefix("exploding_")
        raise Unsupported(f"There is no function {said!r} here.", fix=_NOT_HERE, about="function")

    def _known(self, name: str) -> str | None:
        context = self._context
        return {
            "current_version": f"PostgreSQL {context.version} (noisegate)",
            "current_database": context.dataset, "current_catalog": context.dataset,
            "current_schema": "public", "current_user": context.user,
            "session_user": context.user, "getdatabaseencoding": "UTF8",
            "pg_client_encoding": "UTF8", "pg_encoding_to_char": "UTF8",
            "pg_get_userbyid": "steward",
        }.get(name)  # fmt: skip

    def _setting(self, args: list[exp.Expr]) -> exp.Expr:
        name = args[0].name.lower() if args and isinstance(args[0], exp.Literal) else ""
        if len(args) > 2 and name.startswith("noisegate."):
            raise Unsupported("set_config changes nothing here.", fix=f"Use SET {name} = …")
        value = self._context.settings.get(name)
        return exp.cast(exp.Null(), "VARCHAR") if value is None else exp.Literal.string(value)


def _comparison(node: exp.Binary) -> exp.Expr:
    """Names of functions are text here: ``typreceive <> 0``."""
    left, right = node.left, node.right
    if isinstance(left, exp.Column) and isinstance(right, exp.Literal) and not right.is_string:
        kind = COLUMN_TYPES.get(left.name.lower())
        if kind is not None and kind == TEXT:
            right.replace(exp.Literal.string(right.this))
    return node


def _select(sql: str, **given: exp.Expr) -> exp.Expr:
    """A sub-query with expressions in place of its names."""
    tree = sqlglot.parse_one(sql, dialect=DIALECT)
    for each in list(tree.find_all(exp.Placeholder)):
        each.replace(given[each.name].copy())
    return exp.Subquery(this=tree)


def _class(node: exp.Expr) -> exp.Expr:
    """A relation's OID by its name; of an OID, the name."""
    plain = node.unnest()
    if isinstance(plain, exp.Literal) and plain.this.isdigit():
        return exp.Literal.number(plain.this)
    if isinstance(plain, exp.Literal) and plain.is_string:
        name = str(plain.this).replace('"', "").rpartition(".")[2]
        if name in CLASSES:
            return exp.Literal.number(CLASSES[name])
        sql = "SELECT ng_oid FROM ng.classes WHERE ng_name = $name"
        return _select(sql, name=exp.Literal.string(name))
    if isinstance(plain, exp.Null):
        return plain
    sql = "SELECT ng_name FROM ng.classes WHERE CAST(ng_oid AS VARCHAR) = CAST($oid AS VARCHAR)"
    return _select(sql, oid=node)


def _type(node: exp.Expr) -> exp.Expr:
    plain = node.unnest()
    if isinstance(plain, exp.Literal) and plain.is_string and not plain.this.isdigit():
        sql = "SELECT MIN(ng_oid) FROM ng.types WHERE ng_name = $name OR ng_words = $name"
        return _select(sql, name=plain)
    return _format_type([node])


def _format_type(args: list[exp.Expr]) -> exp.Expr:
    sql = "SELECT ng_words FROM ng.types WHERE ng_oid = CAST($oid AS BIGINT)"
    return _select(sql, oid=args[0])


def _description(args: list[exp.Expr]) -> exp.Expr:
    sql = (
        "SELECT ng_words FROM ng.descriptions"
        " WHERE ng_place = $place AND ng_oid = CAST($oid AS BIGINT)"
    )
    numbered = len(args) > 1 and not (isinstance(args[1], exp.Literal) and args[1].is_string)
    return _select(sql, oid=args[0], place=args[1] if numbered else exp.Literal.number(0))


_LOOKED_UP: Final[Mapping[str, Callable[[list[exp.Expr]], exp.Expr]]] = {
    "format_type": _format_type,
    "obj_description": lambda args: _description(args[:1]),
    "col_description": _description,
    "pg_get_constraintdef": lambda args: _select(
        "SELECT ng_words FROM ng.constraints WHERE ng_oid = CAST($oid AS BIGINT)", oid=args[0]
    ),
    "to_regclass": lambda args: _class(args[0]),
    "to_regtype": lambda args: _type(args[0]),
    "json_build_object": lambda args: exp.Anonymous(this="json_object", expressions=args),
    "quote_ident": lambda args: args[0],
    "current_schemas": lambda _: exp.Array(
        expressions=[exp.Literal.string("pg_catalog"), exp.Literal.string("public")]
    ),
    "array_upper": lambda args: exp.Anonymous(this="array_length", expressions=args[:1]),
    "array_lower": lambda _: exp.Literal.number(1),
    "pg_partition_ancestors": lambda _: exp.cast(exp.Null(), "BIGINT"),
    "pg_partition_root": lambda _: exp.cast(exp.Null(), "BIGINT"),
    "age": lambda _: exp.cast(exp.Null(), "BIGINT"),
    "txid_current": lambda _: exp.cast(exp.Null(), "BIGINT"),
    "pg_postmaster_start_time": lambda _: exp.cast(
        exp.Literal.string("2000-01-01 00:00:00+00"), "TIMESTAMPTZ", dialect=DIALECT
    ),
    "pg_backend_pid": lambda _: exp.Literal.number(0),
    "inet_server_port": lambda _: exp.Literal.number(5432),
    "pg_relation_filenode": lambda _: exp.Literal.number(0),
}
