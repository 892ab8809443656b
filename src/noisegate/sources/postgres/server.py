"""A connection to a Postgres server, and what its catalogue says of tables. Reads no rows.

Every question runs in a transaction: READ ONLY, REPEATABLE READ, with settings that decide what a
statement means pinned. Tables are locked before it has a snapshot, so that what the catalogue says
of them then is what the statements find. An error of the server is told by its kind alone: its
words, its DETAIL above all, may quote rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from sqlglot import exp

from noisegate.errors import PolicyError, SourceError
from noisegate.extras import extra
from noisegate.frozen import dataclass
from noisegate.sources.postgres.dialect import KIND_OF

if TYPE_CHECKING:
    import psycopg

AGAIN: Final = "Nothing was released; ask again with the same request id."
UNREACHABLE: Final = "The engine could not read the table."
_CONNECT_S: Final = 10
_VERSION: Final = 140_000
_SETTINGS: Final = {
    "search_path": "pg_catalog, pg_temp",  # no function or table of ours can be shadowed
    "timezone": "'UTC'",
    "datestyle": "'ISO, YMD'",
    "standard_conforming_strings": "on",
    "extra_float_digits": "1",
    "client_encoding": "'UTF8'",
    "row_security": "off",  # rows that a rule would hide are an error, not a smaller table
    "lock_timeout": "'30s'",
    "client_min_messages": "error",
    "jit": "off",
    "enable_tidscan": "on",  # pages are read by their numbers
    "work_mem": "'128MB'",  # of one sort or hash table: owners are grouped by the million
}
_TABLES: Final = """
    SELECT p.at::int8, c.oid::int8, c.relkind::text, c.relrowsecurity,
        EXISTS (SELECT FROM pg_catalog.pg_roles r
            WHERE pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER')
                AND (pg_catalog.has_table_privilege(
                        r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
                    OR pg_catalog.has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE'))),
        CASE WHEN c.relkind IN ('v', 'm') THEN pg_catalog.pg_get_viewdef(c.oid) ELSE '' END,
        c.relkind IN ('r', 'p', 'v') AND pg_catalog.has_table_privilege(c.oid, 'SELECT'),
        c.relkind = 'r' AND c.relam = 2  -- heap, whose number is fixed
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS p(schema, name, at)
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schema
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.name
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_PARTS: Final = """
    WITH RECURSIVE below(top, oid) AS (
        SELECT o, o FROM pg_catalog.unnest(%s::oid[]) AS given(o) UNION
        SELECT b.top, i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid)
    SELECT b.top::int8, pg_catalog.bool_and(c.relkind IN ('r', 'p')),
        pg_catalog.array_agg(b.oid::int8)
    FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid GROUP BY b.top
"""
_COLUMNS: Final = """
    SELECT a.attrelid::int8, a.attname::text, CASE WHEN t.typtype = 'e' THEN 'enum'
        WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE '' END,
        a.atttypmod, a.attgenerated IN ('', 's')
            AND pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
        pg_catalog.col_description(a.attrelid, a.attnum)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attrelid, a.attnum
"""
_UNIQUE: Final = """
    SELECT i.indrelid::int8, pg_catalog.array_agg(a.attname::text) FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k(n)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n]
    WHERE i.indrelid = ANY (%s::oid[]) AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indrelid, i.indexrelid
"""
_MAY_KNOW: Final = (
    "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
)
_NUMBERS: Final = """
    SELECT system_identifier::text, d.oid::text
    FROM pg_catalog.pg_control_system(), pg_catalog.pg_database d
    WHERE d.datname = pg_catalog.current_database()
"""
_CASTS: Final = """
    SELECT EXISTS (SELECT FROM pg_catalog.pg_cast c
        JOIN pg_catalog.pg_type s ON s.oid = c.castsource
        JOIN pg_catalog.pg_type t ON t.oid = c.casttarget
        WHERE c.oid >= 16384 AND c.castmethod <> 'i'
            AND (s.typnamespace = 'pg_catalog'::regnamespace OR s.oid = ANY (used.types))
            AND (t.typnamespace = 'pg_catalog'::regnamespace OR t.oid = ANY (used.types)))
    FROM (SELECT pg_catalog.array_agg(atttypid) FROM pg_catalog.pg_attribute
        WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped) AS used(types)
"""  # from 16384 on, it was not made with the database
# A role can become any that it is a member of. Of the server's own, these read and no more.
_ROLE: Final = """
    SELECT pg_catalog.bool_or(rolsuper OR rolcreaterole OR rolbypassrls OR rolreplication
        OR rolname ~ '^pg_' AND rolname <> ALL ('{pg_read_all_data,pg_read_all_settings,'
            'pg_read_all_stats,pg_stat_scan_tables,pg_monitor,pg_use_reserved_connections}'))
    FROM pg_catalog.pg_roles WHERE pg_catalog.pg_has_role(current_user, oid, 'MEMBER')
"""


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A table of a server: the address without the table, its schema and its name."""

    url: str
    schema: str
    table: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A table as the catalogue has it. ``types`` are those that can be read, ``scales`` decimals'.

    ``is_stored``: its rows lie in this database, each by itself. ``parts`` are the tables that they
    lie in, itself and its partitions. ``guarded``: a rule of the server hides some of them.
    ``locks``: LOCK TABLE takes it, which needs a right to the whole table. ``view`` is the
    definition of one. ``in_pages``: its rows lie in pages of the usual kind, and in no other table.
    ``own_casts``: somebody made a cast between types that are read.
    """

    oid: int
    parts: frozenset[int]
    is_stored: bool
    guarded: bool
    writes: bool
    locks: bool
    in_pages: bool
    view: str
    own_casts: bool
    types: Mapping[str, str]
    scales: Mapping[str, int]
    hidden: frozenset[str]
    unique: frozenset[frozenset[str]]
    comments: Mapping[str, str]

    @property
    def is_plain(self) -> bool:
        """Whether all of its rows may be read by their places in its pages."""
        return self.in_pages and self.is_stored and self.locks and not self.guarded


def url_of(data: Mapping[str, Place]) -> str:
    """The one server of all tables."""
    urls = {place.url for place in data.values()}
    if len(urls) != 1:
        raise PolicyError(
            "The tables are in several databases.",
            fix="Keep all tables of a policy in one database.",
            about="engines",
        )
    return urls.pop()


@contextmanager
def told() -> Iterator[None]:
    """An error of the server while its catalogue is read, as a refusal for the steward."""
    psycopg = extra("psycopg", "Tables of a Postgres server", "postgres")
    try:
        yield
    except psycopg.Error:
        raise SourceError(UNREACHABLE, fix="Check the server.", about="server") from None


def connect(url: str) -> "psycopg.Connection[Any]":
    """A connection of a role that can do no more than it needs."""
    psycopg = extra("psycopg", "Tables of a Postgres server", "postgres")
    why = ""
    try:
        connection = psycopg.connect(
            url, autocommit=True, connect_timeout=_CONNECT_S, prepare_threshold=None
        )
    except psycopg.Error as error:  # before any row: its words are read here and dropped
        why = _why(str(error.sqlstate or ""), str(error))
    if why:
        raise SourceError(why, fix="Check the address, the role and its password.", about="server")
    wrong: PolicyError | SourceError | None = None
    try:
        wrong = _unfit(connection)
    except psycopg.Error:
        wrong = SourceError(UNREACHABLE, fix="Check the server.", about="server")
    if wrong is not None:
        connection.close()
        raise wrong
    return connection  # type: ignore[no-any-return]


def _why(state: str, words: str) -> str:
    """What went wrong before anything was read, without the server's own words."""
    if state.startswith("28") or "authentication" in words or "no password" in words:
        return "The server refuses the role or its password."
    if state == "3D000" or "does not exist" in words:
        return "The server has no such database or role."
    return "The server cannot be reached."


def _unfit(connection: "psycopg.Connection[Any]") -> SourceError | PolicyError | None:
    """Why rows must not be read over this connection, if so."""
    encoding = connection.info.parameter_status("server_encoding")
    if connection.info.server_version < _VERSION or encoding != "UTF8":
        return SourceError(
            "The server is older than Postgres 14, or its encoding is not UTF8.",
            fix="Use a server from version 14 on, and a database in UTF8.",
            about="version",
        )
    begin(connection, seconds=_CONNECT_S)
    can_more = connection.execute(_ROLE).fetchone() != (False,)
    connection.execute("ROLLBACK")
    if can_more:
        return PolicyError(
            "The role may do more than read: it is a superuser, owns the database, can make roles, "
            "replicate or write, or is a member of such a role.",
            fix="CREATE ROLE noisegate LOGIN; GRANT SELECT on the tables of the policy alone, and "
            "name it in the address.",
            about="role",
        )
    return None


def begin(connection: "psycopg.Connection[Any]", *, seconds: float, idle: float = 60) -> None:
    """One transaction that only reads, at one moment, with all settings pinned.

    Each time anew: behind a pool, the next transaction may be in another session. It has no
    snapshot yet: SET takes none.
    """
    pinned = {
        **_SETTINGS,
        "statement_timeout": _milliseconds(seconds),
        "idle_in_transaction_session_timeout": _milliseconds(idle),
    }
    steps = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"]
    steps += [f"SET LOCAL {name} = {value}" for name, value in pinned.items()]
    connection.execute("; ".join(steps))


def _milliseconds(seconds: float) -> str:
    return f"'{max(1, round(seconds * 1000))}ms'"


def hold(
    connection: "psycopg.Connection[Any]", data: Mapping[str, Place], form: Mapping[str, Stored]
) -> None:
    """Let nobody change the form of these tables before the transaction ends. Reads no row.

    What LOCK does not take (foreign tables, materialised views, tables of which the role may read
    some columns) is locked by a look at it, which takes the snapshot: so after the others.
    """
    locks, looks = [], []
    for name, place in data.items():
        named = (exp.to_identifier(each, quoted=True) for each in (place.table, place.schema))
        table, schema = named
        found = exp.table_(table, db=schema)
        if form[name].locks:
            locks.append(found.sql(dialect="postgres"))
        else:
            looks.append(exp.select(exp.Literal.number(1)).from_(found).limit(0))
    if locks:
        connection.execute(f"LOCK TABLE {', '.join(locks)} IN ACCESS SHARE MODE")
    if looks:
        text = " UNION ALL ".join(f"({each.sql(dialect='postgres')})" for each in looks)
        connection.execute(text)


def number_of(connection: "psycopg.Connection[Any]") -> str:
    """The server and the database by their own numbers; nothing if the role may not know them."""
    if connection.execute(_MAY_KNOW).fetchone() != (True,):
        return ""
    ((server, database),) = connection.execute(_NUMBERS).fetchall()
    return f"postgresql:{server}/{database}"


def stored_tables(
    connection: "psycopg.Connection[Any]", data: Mapping[str, Place]
) -> dict[str, Stored]:
    """What the catalogue says of those tables that there are."""
    schemas, tables = zip(*((p.schema, p.table) for p in data.values()), strict=True)
    found = connection.execute(_TABLES, (list(schemas), list(tables))).fetchall()
    oids = [oid for _, oid, *_ in found]
    parts = {top: each for top, *each in connection.execute(_PARTS, (oids,))}
    columns = connection.execute(_COLUMNS, (oids,)).fetchall()
    unique = connection.execute(_UNIQUE, (oids,)).fetchall()
    ((casts,),) = connection.execute(_CASTS, (oids,)).fetchall()
    names = list(data)
    return {
        names[at - 1]: Stored(
            oid=oid,
            is_stored=kind in "rp" and parts[oid][0],
            parts=frozenset(parts[oid][1]),
            guarded=guarded,
            writes=writes,
            locks=locks,
            in_pages=heap and parts[oid][1] == [oid],
            view=view,
            own_casts=casts,
            types={n: t for o, n, t, _, seen, _ in columns if o == oid and seen and t in KIND_OF},
            scales={n: (m - 4) & 0xFFFF for o, n, t, m, *_ in columns
                    if o == oid and t == "numeric" and m >= 4},
            hidden=frozenset(n for o, n, _, _, seen, _ in columns if o == oid and not seen),
            unique=frozenset(frozenset(key) for o, key in unique if o == oid)
            if kind == "p" or parts[oid][1] == [oid] else frozenset(),  # an heir has no such index
            comments={n: note for o, n, *_, note in columns if o == oid and note},
        )
        for at, oid, kind, guarded, writes, view, locks, heap in sorted(found)
    }  # fmt: skip
