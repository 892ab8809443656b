"""The same rows on several engines, and what each says of them."""

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import jvm
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from noisegate.sources.asked.parquet import parquet_table
from noisegate.sources.datafusion.dialect import DATAFUSION
from noisegate.sources.datafusion.session import columns_of, session
from noisegate.sources.datafusion.source import DataFusionSource
from noisegate.sources.postgres.dialect import POSTGRES
from noisegate.sources.postgres.server import Place
from noisegate.sources.postgres.source import PostgresSource
from noisegate.sources.spark import server as spark
from noisegate.sources.spark.dialect import SPARK
from noisegate.sources.spark.source import SparkSource

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


class OnPostgres:
    """Tables of a database that are shown other rows."""

    name, dialect, questions = "Postgres", POSTGRES, 10

    def __init__(self, database):
        self.database, self._source = database, None

    def show(self, frames, tables):
        if self._source is None:
            places = self.database.hold(frames, unique=[("drugs", ["code"])])
            self._source = PostgresSource(places, tables)
        self.database.show(frames)
        return self._source


class Folders:
    """A new folder of Parquet files for each set of rows."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="ng"))

    def write(self, frames):
        folder = self.root / str(next(_numbers))
        for name, frame in frames.items():
            (folder / name).mkdir(parents=True)
            pq.write_table(frame, folder / name / "part-0.parquet")
        return {name: folder / name for name in frames}

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)


SAIL = """
import sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer(port=0)
server.start(background=True)
print(server.listening_address[1], flush=True)
sys.stdin.read()
server.stop()
"""


class OnSpark(Folders):
    """A Spark Connect server without a JVM, in a process of its own: it would end at any SIGINT."""

    name, dialect, questions = "Spark", SPARK, 4

    def __init__(self):
        super().__init__()
        self.url, self._stop = self._started()

    def _started(self):
        server = subprocess.Popen(
            [sys.executable, "-c", SAIL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RUST_LOG": "off"}, start_new_session=True,
        )  # fmt: skip
        port = server.stdout.readline().strip()
        assert port.isdigit()
        return f"sc://localhost:{port}", lambda: server.communicate(timeout=30)

    def places(self, frames):
        found = self.write(frames)
        return {name: spark.Place(self.url, str(folder)) for name, folder in found.items()}

    def show(self, frames, tables):
        return SparkSource(self.places(frames), tables)

    def ask(self, frame, texts):
        """Columns of expressions over one table, in the order of its rows."""
        (place,) = self.places({"rows": frame}).values()
        session = spark.connect(place)
        shown = ", ".join(f"{text} AS r{n}" for n, text in enumerate(texts))
        found = session.sql(f"SELECT {shown} FROM parquet.`{place.table}` ORDER BY `row number`")
        return [column.to_pylist() for column in found.toArrow().columns]

    def close(self):
        self._stop()
        super().close()


class OnJvm(OnSpark):
    """Spark itself, in a process that other processes of the run use, too."""

    def __init__(self, folder):
        self._folder = folder
        super().__init__()

    def _started(self):
        server = jvm.Server(self._folder)
        self.port = server.port
        return server.url, server.close


class OnDataFusion(Folders):
    """An engine of this process."""

    name, dialect, questions = "DataFusion", DATAFUSION, 4

    def show(self, frames, tables):
        return DataFusionSource(self.write(frames), tables)

    def ask(self, frame, texts):
        """Columns of expressions over one table, in the order of its rows."""
        (folder,) = self.write({"rows": frame}).values()
        asked = session([parquet_table(folder, columns_of)])
        shown = ", ".join(f"{text} AS r{n}" for n, text in enumerate(texts))
        found = asked.sql(f'SELECT {shown} FROM base0 ORDER BY "row number"')
        return [column.to_pylist() for column in found.to_arrow_table().columns]
