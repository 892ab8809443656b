"""What is checked when tables of a Postgres server are opened; and rows of public ones."""

from collections.abc import Mapping

from noisegate.errors import PolicyError, SourceError
from noisegate.privacy.domain import Kind, TableDomain
from noisegate.sources.asked.opening import require_kinds, require_one_owner
from noisegate.sources.postgres.dialect import KIND_OF, READ_AS
from noisegate.sources.postgres.server import Place, Stored
from noisegate.sources.used import used_columns


def checked(
    form: Mapping[str, Stored],
    data: Mapping[str, Place],
    tables: Mapping[str, TableDomain],
) -> dict[str, dict[str, str]]:
    """The stored types of all tables, or a refusal of a table, a column, a right or a key."""
    require_tables(form, data)
    types = {}
    for name, stored in form.items():
        types[name] = dict(stored.types)
        _require_rights(tables[name], stored)
        _require_stored(tables[name], stored)
    require_one_owner({name: stored.parts for name, stored in form.items()}, tables)
    for name, table in tables.items():
        used_columns(name, tables, types[name])
        require_kinds(table, types, KIND_OF, READ_AS, "Postgres")
        _require_key(table, form[name], types[name])
    return types


def require_tables(form: Mapping[str, Stored], data: Mapping[str, Place]) -> None:
    """Refuse a table that is not there."""
    for name, place in data.items():
        if name not in form:
            raise SourceError(
                f"The database has no table {place.table!r} in its schema {place.schema!r}, or "
                "the role cannot see it.",
                fix="Name one that it has: postgresql://…#SCHEMA.TABLE as the source in a policy.",
                about="table",
            )
        if form[name].hidden and not form[name].types:
            raise SourceError(
                f"The role may not read {place.table!r} of the schema {place.schema!r}.",
                fix="GRANT USAGE on the schema, and SELECT on the table, to the role.",
                about="role",
            )


def _require_rights(table: TableDomain, stored: Stored) -> None:
    if stored.writes:
        raise PolicyError(
            f"The role may write to {table.name!r}.",
            fix="Use a role that owns nothing, and GRANT it SELECT alone.",
            about="role",
        )
    if stored.own_casts:
        raise PolicyError(
            "The database has a cast of its own between types that are read: what a value means "
            "would be decided by its function.",
            fix="DROP CAST, or use a database without it.",
            about="cast",
        )
    if missing := sorted(stored.hidden & table.columns.keys()):
        raise PolicyError(
            f"Column {missing[0]!r} of {table.name!r} may not be read by the role, or is computed "
            "when it is read.",
            fix="GRANT SELECT on it, or leave the column out of the policy.",
            about="column",
        )


def _require_stored(table: TableDomain, stored: Stored) -> None:
    """Refuse private rows that are computed, or hidden by a rule, unless the steward vouches."""
    if table.is_public:
        return
    computed = not stored.is_stored or stored.guarded
    if computed and table.name not in table.views:
        raise PolicyError(
            f"The source of the private table {table.name!r} is a view, a foreign table, or one "
            "with row-level security: what it shows of one unit may depend on the rows of others.",
            fix="Name the table itself. Or, if every row of it is made from rows of one unit "
            "alone, and no row can make it fail, say trusted_view = true in the policy.",
            about="view",
        )
    if table.name in table.views and not computed:
        raise PolicyError(
            f"The source of {table.name!r} is not a view.",
            fix="Leave out trusted_view.",
            about="no-view",
        )


def _require_key(table: TableDomain, stored: Stored, types: Mapping[str, str]) -> None:
    """Rely on no key but one that the server keeps unique, as values are read here.

    Why: rows may be added while the gate is open, so that looking once would prove nothing. Values
        that are clamped, or decimals read as doubles, could become equal.
    """
    if not table.key:
        return
    columns = [table.columns[name] for name in table.key]
    kept = all(
        column.between is None and KIND_OF[types[column.name]] is column.kind
        and column.kind is not Kind.NUMBER
        for column in columns
    )  # fmt: skip
    if not kept or not any(each <= set(table.key) for each in stored.unique):
        raise PolicyError(
            f"Nothing keeps the key of {table.name!r} unique: {', '.join(table.key)}.",
            fix="Let the database have a UNIQUE or PRIMARY KEY constraint on these columns, "
            "declared as they are stored; or leave out key.",
            about="key",
        )
