"""The same rows on several engines, and what each says of them."""

from itertools import count

import psycopg
import pyarrow as pa

from noisegate.sources.postgres.server import Place

READER = "noisegate_reader"
_numbers = count(1)
_TYPES = {
    pa.int64(): "bigint", pa.int32(): "integer", pa.float64(): "double precision",
    pa.string(): "text", pa.bool_(): "boolean", pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
}  # fmt: skip


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def type_of(kind):
    decimal = pa.types.is_decimal(kind)
    return f"numeric({kind.precision}, {kind.scale})" if decimal else _TYPES[kind]


class Database:
    """A schema of its own on the server, and a role that may read it."""

    def __init__(self, server):
        self.owner = psycopg.connect(server.uri, autocommit=True)
        self.schema = f"rows_{next(_numbers)}"
        self.url = server.uri.replace("postgres:@", f"{READER}@")
        found = self.owner.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (READER,))
        if not found.fetchone():
            self.owner.execute(f"CREATE ROLE {READER} LOGIN")
        self.owner.execute(f"CREATE SCHEMA {self.schema}")
        self.owner.execute(f"GRANT USAGE ON SCHEMA {self.schema} TO {READER}")

    def hold(self, frames, *, unique=()):
        """Make the tables, with these rows; gives where they are."""
        for name, frame in frames.items():
            columns = [f"{quoted(f.name)} {type_of(f.type)}" for f in frame.schema]
            columns += [
                f"UNIQUE ({', '.join(map(quoted, key))})" for of, key in unique if of == name
            ]
            table = f"{self.schema}.{quoted(name)}"
            self.owner.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            self.owner.execute(f"GRANT SELECT ON {table} TO {READER}")
        self.show(frames)
        return {name: Place(self.url, self.schema, name) for name in frames}

    def show(self, frames):
        """Other rows for the same tables."""
        names = ", ".join(f"{self.schema}.{quoted(name)}" for name in frames)
        with self.owner.transaction():
            self.owner.execute(f"TRUNCATE {names}")
            for name, frame in frames.items():
                rows = zip(*(column.to_pylist() for column in frame.columns), strict=True)
                table = f"{self.schema}.{quoted(name)}"
                with self.owner.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)

    def close(self):
        self.owner.close()
