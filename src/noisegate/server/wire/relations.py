"""The tables of Postgres' catalogue, as far as clients read them, filled from declared facts.

Columns are written as ``name:letter``: u an OID, t text, i and s whole numbers, b true or false,
f a number, T, S and U lists. A relation without rows is there because clients join it.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final, final

from noisegate.desk.display.prompt import plain_end
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.server.wire import types
from noisegate.server.wire.binding import OF_KIND
from noisegate.server.wire.types import Type

LETTERS: Final = {
    "u": "UINTEGER", "t": "VARCHAR", "i": "INTEGER", "s": "SMALLINT", "b": "BOOLEAN", "f": "FLOAT",
    "l": "BIGINT", "d": "TIMESTAMP", "T": "VARCHAR[]", "S": "SMALLINT[]", "U": "UINTEGER[]",
}  # fmt: skip
SYSTEM: Final = {"pg_catalog": 11, "public": 2200, "information_schema": 13000}
CLASSES: Final = {  # OIDs of the catalogue's own tables, which descriptions are filed under
    "pg_proc": 1255, "pg_class": 1259, "pg_type": 1247, "pg_attribute": 1249, "pg_database": 1262,
    "pg_attrdef": 2604, "pg_constraint": 2606, "pg_namespace": 2615, "pg_description": 2609,
}  # fmt: skip
OWNER: Final = 10
_FIRST: Final = 16384  # as in Postgres, the first OID that is not the system's
_KEYS_SHOWN: Final = 20
PG: Final = {
    "pg_namespace": "oid:u nspname:t nspowner:u nspacl:T",
    "pg_class": "oid:u relname:t relnamespace:u reltype:u reloftype:u relowner:u relam:u"
    " relfilenode:u reltablespace:u relpages:i reltuples:f relallvisible:i reltoastrelid:u"
    " relhasindex:b relisshared:b relpersistence:t relkind:t relnatts:s relchecks:s relhasrules:b"
    " relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b"
    " relreplident:t relispartition:b relrewrite:u relfrozenxid:l relminmxid:l relacl:T"
    " reloptions:T relpartbound:t relhasoids:b",
    "pg_attribute": "attrelid:u attname:t atttypid:u attlen:s attnum:s attcacheoff:i atttypmod:i"
    " attndims:s attbyval:b attalign:t attstorage:t attcompression:t attnotnull:b atthasdef:b"
    " atthasmissing:b attidentity:t attgenerated:t attisdropped:b attislocal:b attinhcount:s"
    " attcollation:u attstattarget:s attacl:T attoptions:T attfdwoptions:T attmissingval:T",
    "pg_type": "oid:u typname:t typnamespace:u typowner:u typlen:s typbyval:b typtype:t"
    " typcategory:t typispreferred:b typisdefined:b typdelim:t typrelid:u typsubscript:t"
    " typelem:u typarray:u typinput:t typoutput:t typreceive:t typsend:t typmodin:t typmodout:t"
    " typanalyze:t typalign:t typstorage:t typnotnull:b typbasetype:u typtypmod:i typndims:i"
    " typcollation:u typdefault:t typacl:T formatted:t",
    "pg_description": "objoid:u classoid:u objsubid:i description:t",
    "pg_constraint": "oid:u conname:t connamespace:u contype:t condeferrable:b condeferred:b"
    " convalidated:b conrelid:u contypid:u conindid:u conparentid:u confrelid:u confupdtype:t"
    " confdeltype:t confmatchtype:t conislocal:b coninhcount:s connoinherit:b conkey:S confkey:S"
    " conpfeqop:U conppeqop:U conffeqop:U confdelsetcols:S conexclop:U conbin:t definition:t"
    " conperiod:b",
    "pg_database": "oid:u datname:t datdba:u encoding:i datlocprovider:t datistemplate:b"
    " datallowconn:b datconnlimit:i datfrozenxid:l datminmxid:l dattablespace:u datcollate:t"
    " datctype:t daticulocale:t daticurules:t datlocale:t datcollversion:t datacl:T",
    "pg_roles": "oid:u rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b"
    " rolcanlogin:b rolreplication:b rolconnlimit:i rolpassword:t rolvaliduntil:d rolbypassrls:b"
    " rolconfig:T",
    "pg_user": "usename:t usesysid:u usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t"
    " valuntil:d useconfig:T",
    "pg_tables": "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b"
    " hastriggers:b rowsecurity:b",
    "pg_settings": "name:t setting:t unit:t category:t short_desc:t context:t vartype:t source:t"
    " min_val:t max_val:t enumvals:T boot_val:t reset_val:t pending_restart:b",
    "pg_am": "oid:u amname:t amhandler:t amtype:t",
    "pg_collation": "oid:u collname:t collnamespace:u collowner:u collprovider:t"
    " collisdeterministic:b collencoding:i collcollate:t collctype:t",
    "pg_tablespace": "oid:u spcname:t spcowner:u spcacl:T spcoptions:T",
    # always empty
    "pg_attrdef": "oid:u adrelid:u adnum:s adbin:t adsrc:t",
    "pg_authid": "oid:u rolname:t",
    "pg_auth_members": "oid:u roleid:u member:u grantor:u admin_option:b",
    "pg_cast": "oid:u castsource:u casttarget:u castfunc:u castcontext:t castmethod:t",
    "pg_depend": "classid:u objid:u objsubid:i refclassid:u refobjid:u refobjsubid:i deptype:t",
    "pg_enum": "oid:u enumtypid:u enumsortorder:f enumlabel:t",
    "pg_event_trigger": "oid:u evtname:t evtevent:t evtowner:u evtfoid:u evtenabled:t evttags:T",
    "pg_extension": "oid:u extname:t extowner:u extnamespace:u extrelocatable:b extversion:t",
    "pg_foreign_data_wrapper": "oid:u fdwname:t fdwowner:u fdwoptions:T",
    "pg_foreign_server": "oid:u srvname:t srvowner:u srvfdw:u srvtype:t srvversion:t srvoptions:T",
    "pg_foreign_table": "ftrelid:u ftserver:u ftoptions:T",
    "pg_index": "indexrelid:u indrelid:u indnatts:s indnkeyatts:s indisunique:b"
    " indnullsnotdistinct:b indisprimary:b indisexclusion:b indimmediate:b indisclustered:b"
    " indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:S"
    " indcollation:U indclass:U indoption:S indexprs:t indpred:t",
    "pg_indexes": "schemaname:t tablename:t indexname:t tablespace:t indexdef:t",
    "pg_inherits": "inhrelid:u inhparent:u inhseqno:i inhdetachpending:b",
    "pg_language": "oid:u lanname:t lanowner:u lanispl:b lanpltrusted:b",
    "pg_locks": "locktype:t database:u relation:u transactionid:l pid:i mode:t granted:b",
    "pg_matviews": "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b"
    " ispopulated:b definition:t",
    "pg_opclass": "oid:u opcmethod:u opcname:t opcnamespace:u opcdefault:b",
    "pg_operator": "oid:u oprname:t oprnamespace:u oprleft:u oprright:u",
    "pg_partitioned_table": "partrelid:u partstrat:t partnatts:s partdefid:u partattrs:S",
    "pg_policy": "oid:u polname:t polrelid:u polcmd:t polpermissive:b polroles:U polqual:t"
    " polwithcheck:t",
    "pg_policies": "schemaname:t tablename:t policyname:t permissive:t roles:T cmd:t qual:t"
    " with_check:t",
    "pg_proc": "oid:u proname:t pronamespace:u proowner:u prolang:u prokind:t prosecdef:b"
    " proisstrict:b proretset:b provolatile:t pronargs:s prorettype:u proargtypes:U"
    " proallargtypes:U proargmodes:T proargnames:T prosrc:t proisagg:b proacl:T",
    "pg_publication": "oid:u pubname:t pubowner:u puballtables:b pubinsert:b",
    "pg_publication_namespace": "oid:u pnpubid:u pnnspid:u",
    "pg_publication_rel": "oid:u prpubid:u prrelid:u prqual:t prattrs:S",
    "pg_range": "rngtypid:u rngsubtype:u rngmultitypid:u rngcollation:u",
    "pg_rewrite": "oid:u rulename:t ev_class:u ev_type:t ev_enabled:t is_instead:b",
    "pg_sequence": "seqrelid:u seqtypid:u seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l"
    " seqcycle:b",
    "pg_sequences": "schemaname:t sequencename:t sequenceowner:t",
    "pg_shdescription": "objoid:u classoid:u description:t",
    "pg_stat_activity": "datid:u datname:t pid:i usename:t application_name:t state:t query:t",
    "pg_stat_gssapi": "pid:i gss_authenticated:b principal:t encrypted:b",
    "pg_stat_ssl": "pid:i ssl:b version:t cipher:t bits:i",
    "pg_stat_user_tables": "relid:u schemaname:t relname:t seq_scan:l n_live_tup:l",
    "pg_statio_user_tables": "relid:u schemaname:t relname:t",
    "pg_statistic_ext": "oid:u stxrelid:u stxname:t stxnamespace:u stxowner:u stxstattarget:s"
    " stxkeys:S stxkind:T stxexprs:t",
    "pg_stats": "schemaname:t tablename:t attname:t null_frac:f n_distinct:f",
    "pg_timezone_names": "name:t abbrev:t is_dst:b",
    "pg_trigger": "oid:u tgrelid:u tgparentid:u tgname:t tgfoid:u tgtype:s tgenabled:t"
    " tgisinternal:b tgconstrrelid:u tgconstrindid:u tgconstraint:u tgdeferrable:b"
    " tginitdeferred:b tgnargs:s",
    "pg_views": "schemaname:t viewname:t viewowner:t definition:t",
    "pg_get_keywords": "word:t catcode:t barelabel:b catdesc:t baredesc:t",
}
_PLACE: Final = "table_catalog:t table_schema:t table_name:t"
_CONSTRAINT: Final = "constraint_catalog:t constraint_schema:t constraint_name:t"
_GRANT: Final = "grantor:t grantee:t"
INFORMATION: Final = {
    "schemata": "catalog_name:t schema_name:t schema_owner:t default_character_set_name:t",
    "tables": f"{_PLACE} table_type:t self_referencing_column_name:t reference_generation:t"
    " user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t"
    " is_insertable_into:t is_typed:t commit_action:t",
    "columns": f"{_PLACE} column_name:t ordinal_position:i column_default:t is_nullable:t"
    " data_type:t character_maximum_length:i character_octet_length:i numeric_precision:i"
    " numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t"
    " collation_name:t domain_name:t udt_catalog:t udt_schema:t udt_name:t dtd_identifier:t"
    " is_self_referencing:t is_identity:t identity_generation:t is_generated:t"
    " generation_expression:t is_updatable:t",
    # always empty
    "views": f"{_PLACE} view_definition:t check_option:t is_updatable:t",
    "table_constraints": f"{_CONSTRAINT} {_PLACE} constraint_type:t is_deferrable:t"
    " initially_deferred:t enforced:t",
    "key_column_usage": f"{_CONSTRAINT} {_PLACE} column_name:t ordinal_position:i"
    " position_in_unique_constraint:i",
    "constraint_column_usage": f"{_PLACE} column_name:t {_CONSTRAINT}",
    "referential_constraints": f"{_CONSTRAINT} unique_constraint_catalog:t"
    " unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t"
    " delete_rule:t",
    "check_constraints": f"{_CONSTRAINT} check_clause:t",
    "table_privileges": f"{_GRANT} {_PLACE} privilege_type:t is_grantable:t with_hierarchy:t",
    "role_table_grants": f"{_GRANT} {_PLACE} privilege_type:t is_grantable:t with_hierarchy:t",
    "column_privileges": f"{_GRANT} {_PLACE} column_name:t privilege_type:t is_grantable:t",
    "routines": "specific_name:t routine_catalog:t routine_schema:t routine_name:t routine_type:t"
    " data_type:t",
    "parameters": "specific_schema:t specific_name:t ordinal_position:i parameter_name:t",
    "sequences": "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t",
    "triggers": "trigger_schema:t trigger_name:t event_manipulation:t event_object_table:t",
    "domains": "domain_schema:t domain_name:t data_type:t",
    "enabled_roles": "role_name:t",
    "applicable_roles": "grantee:t role_name:t is_grantable:t",
}
_NAMES: Final = {  # of types, where typname is not the first word of what SQL says
    "boolean": "bool", "bigint": "int8", "smallint": "int2", "integer": "int4", "real": "float4",
    "double precision": "float8", "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz", "time without time zone": "time",
    '"char"': "char", "character varying": "varchar", "character": "bpchar",
}  # fmt: skip
_UNDERSCORED: Final = frozenset(  # whose functions are called date_recv and not daterecv
    {"date", "time", "timestamp", "timestamptz", "numeric", "json", "jsonb", "uuid"}
)
_CATEGORY: Final = {
    "bool": "B", "date": "D", "timestamp": "D", "timestamptz": "D", "time": "D", "bytea": "U",
    "uuid": "U", "json": "U", "jsonb": "U", "unknown": "X",
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric", "oid"), "N"),
    "regclass": "N",
}  # fmt: skip
_TYPE_OF: Final = {
    "u": types.OID, "t": types.TEXT, "i": types.INT4, "s": types.INT2, "b": types.BOOL,
    "f": types.FLOAT4, "l": types.INT8, "d": types.TIMESTAMP, "T": types.KNOWN[1009],
    "S": types.KNOWN[1005], "U": types.KNOWN[1028],
}  # fmt: skip


def columns_of(spec: str) -> dict[str, str]:
    """Names and letters of a relation's columns."""
    return dict(each.split(":") for each in spec.split())


COLUMN_TYPES: Final[Mapping[str, Type]] = {
    name: _TYPE_OF[letter]
    for spec in (*PG.values(), *INFORMATION.values())
    for name, letter in columns_of(spec).items()
}


def type_name(kind: Type) -> str:
    """The name of a type in pg_type."""
    if kind.item is not None:
        return "_" + type_name(kind.item)
    return _NAMES.get(kind.name, kind.name)


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """What is declared about a data set, as rows of the catalogue."""

    dataset: str
    tables: Mapping[str, TableDomain]
    settings: Mapping[str, str]

    def rows(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Schema, relation and row; columns that a row does not have are NULL."""
        for name, oid in SYSTEM.items():
            yield "pg", "pg_namespace", {"oid": oid, "nspname": name, "nspowner": OWNER}
            yield "info", "schemata", {
                "catalog_name": self.dataset, "schema_name": name, "schema_owner": "steward",
            }  # fmt: skip
        yield "pg", "pg_database", {
            "oid": 5, "datname": self.dataset, "datdba": OWNER, "encoding": 6, "datallowconn": True,
            "datistemplate": False, "datconnlimit": -1, "datcollate": "C", "datctype": "C",
            "datlocprovider": "c", "dattablespace": 1663,
        }  # fmt: skip
        yield "pg", "pg_roles", {"oid": OWNER, "rolname": "steward", "rolcanlogin": False}
        yield "pg", "pg_am", {"oid": 2, "amname": "heap", "amtype": "t"}
        yield "pg", "pg_tablespace", {"oid": 1663, "spcname": "pg_default", "spcowner": OWNER}
        yield "pg", "pg_collation", {"oid": 100, "collname": "default", "collnamespace": 11}
        for word in ("analyze", "ilike", "limit", "offset", "returning", "similar"):
            yield "pg", "pg_get_keywords", {"word": word, "catcode": "R", "catdesc": "reserved"}
        for name, value in self.settings.items():
            yield "pg", "pg_settings", {"name": name, "setting": value, "reset_val": value}
        yield from _types()
        for oid, (name, table) in enumerate(self.tables.items(), _FIRST):
            yield from self._table(oid, name, table)
        yield from self._references()

    def _table(
        self, oid: int, name: str, table: TableDomain
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        place = {"table_catalog": self.dataset, "table_schema": "public", "table_name": name}
        shown = shown_columns(table)
        yield "pg", "pg_class", _relation(oid, name, "r", len(shown))
        yield "pg", "pg_tables", {
            "schemaname": "public", "tablename": name, "tableowner": "steward",
            **dict.fromkeys(("hasindexes", "hasrules", "hastriggers", "rowsecurity"), False),
        }  # fmt: skip
        yield "info", "tables", {
            **place, "table_type": "BASE TABLE", "is_insertable_into": "NO", "is_typed": "NO",
        }  # fmt: skip
        yield "pg", "pg_description", _described(oid, 0, about_table(table))
        for number, column in enumerate(shown, 1):
            yield "pg", "pg_attribute", _attribute(oid, number, column)
            yield "info", "columns", {**place, **_information(self.dataset, number, column)}
            if words := about_column(column):
                yield "pg", "pg_description", _described(oid, number, words)

    def _references(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Declared references and paths to the unit, as foreign keys.

        Drivers look for the index of the key that one refers to, by which it has a name.
        """
        oids = {name: oid for oid, name in enumerate(self.tables, _FIRST)}
        at = {
            name: {column.name: number for number, column in enumerate(shown_columns(table), 1)}
            for name, table in self.tables.items()
        }
        found = {
            (name, column.name, *column.references)
            for name, table in self.tables.items()
            for column in table.columns.values()
            if column.references is not None
        }
        for name, table in self.tables.items():
            here = name
            for step in table.path:
                found.add((here, step.column, step.table, step.key))
                here = step.table
        known = [
            each
            for each in sorted(found)
            if each[1] in at.get(each[0], ()) and each[3] in at.get(each[2], ())
        ]
        free = count(_FIRST + len(oids))
        indexes = {pair: next(free) for pair in dict.fromkeys(each[2:] for each in known)}
        for (other, key), oid in indexes.items():
            yield "pg", "pg_class", _relation(oid, f"{other}_{key}_key", "i", 1)
        for oid, (name, column, other, key) in zip(free, known, strict=False):
            quoted = [_ident(each) for each in (column, other, key)]
            yield "pg", "pg_constraint", {
                "oid": oid, "conname": f"{name}_{column}_fkey", "connamespace": SYSTEM["public"],
                "contype": "f", "conrelid": oids[name], "confrelid": oids[other],
                "conkey": [at[name][column]], "confkey": [at[other][key]], "convalidated": False,
                "definition": "FOREIGN KEY ({}) REFERENCES {}({})".format(*quoted),
                "confupdtype": "a", "confdeltype": "a", "confmatchtype": "s",
                "conindid": indexes[other, key],
                **dict.fromkeys(("contypid", "conparentid"), 0),
                **dict.fromkeys(("condeferrable", "condeferred", "connoinherit"), False),
                "conperiod": False,
            }  # fmt: skip


def _relation(oid: int, name: str, kind: str, columns: int) -> dict[str, Any]:
    return {
        "oid": oid, "relname": name, "relnamespace": SYSTEM["public"], "relowner": OWNER,
        "relam": 2, "relkind": kind, "relpersistence": "p", "relnatts": columns,
        "reltuples": -1.0, "relpages": 0, "relreplident": "d", "relispopulated": True,
        **dict.fromkeys(("reltype", "reloftype", "reltoastrelid", "reltablespace",
                         "relfilenode", "relrewrite", "relchecks", "relallvisible"), 0),
        "relhastriggers": kind == "r",  # as tables with foreign keys have
        **dict.fromkeys(("relhasindex", "relisshared", "relhasrules", "relhassubclass",
                         "relrowsecurity", "relforcerowsecurity",
                         "relispartition", "relhasoids"), False),
    }  # fmt: skip


def _ident(name: str) -> str:
    plain = name.isidentifier() and name.islower()
    return name if plain else '"' + name.replace('"', '""') + '"'


def shown_columns(table: TableDomain) -> list[Column]:
    """The columns that can be asked about."""
    return [column for column in table.columns.values() if not column.hidden]


def _types() -> Iterator[tuple[str, str, dict[str, Any]]]:
    arrays = {each.item.oid: each.oid for each in types.KNOWN.values() if each.item}
    for kind in types.KNOWN.values():
        name = type_name(kind)
        category = "A" if kind.item else _CATEGORY.get(name, "S")
        proc = "array_" if kind.item else f"{name}_" if name in _UNDERSCORED else name
        yield "pg", "pg_type", {
            "oid": kind.oid, "typname": name, "typnamespace": 11, "typowner": OWNER,
            "typlen": kind.size, "typtype": "p" if name == "unknown" else "b",
            "typcategory": category, "typisdefined": True, "typdelim": ",", "typrelid": 0,
            "typelem": kind.item.oid if kind.item else 0, "typarray": arrays.get(kind.oid, 0),
            "typbasetype": 0, "typtypmod": -1, "typndims": 0, "typnotnull": False,
            "typcollation": 100 if category == "S" else 0, "typispreferred": name == "text",
            "typinput": f"{proc}in", "typoutput": f"{proc}out", "typreceive": f"{proc}recv",
            "typsend": f"{proc}send", "formatted": kind.name, "typbyval": 0 < kind.size <= 8,
            "typalign": "i", "typstorage": "p" if kind.size > 0 else "x",
        }  # fmt: skip


def _described(oid: int, number: int, words: str) -> dict[str, Any]:
    about = {"objoid": oid, "classoid": CLASSES["pg_class"], "objsubid": number}
    return {**about, "description": words}


def _attribute(oid: int, number: int, column: Column) -> dict[str, Any]:
    kind = OF_KIND[column.kind]
    return {
        "attrelid": oid, "attname": column.name, "atttypid": kind.oid, "attlen": kind.size,
        "attnum": number, "atttypmod": -1, "attndims": 0, "attnotnull": not column.domain.may_lack,
        "attidentity": "", "attgenerated": "", "attstorage": "p" if kind.size > 0 else "x",
        "attcompression": "", "attalign": "i", "attinhcount": 0, "attstattarget": -1,
        "attcollation": 100 if column.kind is Kind.TEXT else 0, "attcacheoff": -1,
        "attislocal": True, "attbyval": kind.size > 0,
        **dict.fromkeys(("atthasdef", "atthasmissing", "attisdropped"), False),
    }  # fmt: skip


def _information(dataset: str, number: int, column: Column) -> dict[str, Any]:
    kind = OF_KIND[column.kind]
    numeric = {Kind.INTEGER: (64, 2, 0), Kind.NUMBER: (53, 2, None)}
    precision, radix, scale = numeric.get(column.kind, (None, None, None))
    return {
        "column_name": column.name, "ordinal_position": number, "data_type": kind.name,
        "is_nullable": "YES" if column.domain.may_lack else "NO", "udt_catalog": dataset,
        "udt_schema": "pg_catalog", "udt_name": type_name(kind), "is_identity": "NO",
        "is_generated": "NEVER", "is_updatable": "NO", "dtd_identifier": str(number),
        "numeric_precision": precision, "numeric_precision_radix": radix, "numeric_scale": scale,
        "is_self_referencing": "NO",
        "datetime_precision": 6 if column.kind is Kind.TIMESTAMP else None,
    }  # fmt: skip


# declared facts in words


def about_table(table: TableDomain) -> str:
    """Whose rows they are, and how many of one unit count."""
    if table.unit is None:
        return "Public rows: exact and free."
    words = f"Private rows; protected: {table.unit}."
    if (cap := table.rows_per_unit_max) is not None:
        words += f" At most {cap} row{'s' if cap > 1 else ''} of one unit count."
    if (cap := table.groups_per_unit_max) is not None:
        words += f" One unit counts in at most {cap} group{'s' if cap > 1 else ''}."
    return words


def about_column(column: Column) -> str:
    """Its keys or bounds, as far as they are declared."""
    if column.references is not None:
        return f"Keys of {'.'.join(column.references)}."
    if column.keys is not None:
        some = ", ".join(map(str, column.keys[:_KEYS_SHOWN]))
        more = len(column.keys) - _KEYS_SHOWN
        return f"One of {some}{f' and {more} more' if more > 0 else ''}."
    if column.between is None:
        return ""
    low, high = (plain_end(bound, column.kind) for bound in column.between)
    return f"Between {low} and {high}."
