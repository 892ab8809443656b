"""A session of a Spark server, and which files tables are. Reads no rows.

Every source has a session of its own, with settings pinned that decide what a statement means. An
error of the server is told by its kind alone: its words may quote rows, and so may the client's
log, which is kept silent.
"""

import atexit
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import unquote

from noisegate.errors import DEBUG, PolicyError, SourceError
from noisegate.extras import extra
from noisegate.files import place_of, table_of
from noisegate.frozen import dataclass, field
from noisegate.sources.asked import delta
from noisegate.sources.asked.folders import named_by, require_same_names

REMOTE: Final = "SPARK_REMOTE"  # of the environment: the server of addresses without a host
_HOME: Final = "SPARK_HOME"
_SAID: Final = frozenset({"use_ssl", "user_id", "token_file"})
_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # else old dates are an error
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # types are not guessed
}
_KEPT: Final = ("parquet", "delta")  # whose files stay what they are
_HIVE: Final = (  # how Hive reads plain Parquet files
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
)
_ROOT: Final = re.compile(r"^(\w+):/{1,3}(?=[^/])")
_UNLIKE: Final = re.compile("merg(e|ing) schema")
_FOLDERS: Final = re.compile(  # of Spark, and of Sail
    "_PARTITION_COLUMN_|COLUMN_ALREADY_EXISTS|mixed partition values|duplicate column names"
)
_MISSING: Final = "PATH_NOT_FOUND"
_TRIES: Final = {"max_retries": 5, "max_backoff": 3000}  # seven seconds; else it is ten minutes
_PARTITION: Final = re.compile(r"/[^/=]+=[^/]*")
_DECIMAL: Final = re.compile(r"decimal\(\d+,(\d+)\)")


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A table: the server's address, and a folder of Parquet files or a name of the catalogue.

    ``session`` is one that somebody has opened, instead of an address.
    """

    url: str
    table: str
    session: Any = field(default=None, repr=False)
    _listed: "list[Stored]" = field(default_factory=list, compare=False, repr=False)

    def stored(self, session: Any) -> "Stored":  # noqa: ANN401 - a SparkSession
        """The table as it was when this was first asked: what is checked is what is read."""
        if not self._listed:
            self._listed.append(stored_table(session, self))
        return self._listed[0]

    @property
    def is_folder(self) -> bool:
        """Whether it is a path."""
        return "/" in self.table


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """A table as it was opened: its files, which are read from then on, and its columns."""

    root: str
    files: tuple[str, ...]
    types: Mapping[str, str]
    scales: Mapping[str, int]
    schema: Any = field(compare=False, repr=False)  # so that no file is read to find it out again

    def rows(self, session: Any) -> Any:  # noqa: ANN401 - a SparkSession, a DataFrame
        """The rows of these files and of no other."""
        read = session.read.option("basePath", self.root)
        return read.schema(self.schema).parquet(*self.files)

    @property
    def folders(self) -> frozenset[str]:
        """Where its files are, without the folders of partitions."""
        parents = (file.rpartition("/")[0] for file in self.files)
        return frozenset(f"spark:{_PARTITION.sub('', parent)}" for parent in parents)


def place_from(origin: str) -> Place:
    """The table that a policy names: ``sc://HOST:PORT#/FOLDER``, or ``#TABLE`` of its catalogue."""
    url, inside = place_of(origin)
    _, *said = url.partition("://")[2].partition("/")[2].split(";")
    names = {each.partition("=")[0] for each in said if each}
    if "@" in url or names & {"token", "password"}:
        raise PolicyError(
            "The address of the server has a secret in it.",
            fix="Leave it out, and put the token into the environment "
            "(SPARK_CONNECT_AUTHENTICATE_TOKEN) or into a file (;token_file=… in the address).",
            about="password",
        )
    if names - _SAID:
        raise PolicyError(
            f"The address of the server says {min(names - _SAID)!r}.",
            fix=f"It may say: {', '.join(sorted(_SAID))}.",
            about="address",
        )
    if inside is None or "/" not in inside:
        schema, table = table_of(inside or "")
        inside = ".".join(f"`{each.replace('`', '``')}`" for each in (schema, table) if each)
    return Place(url, inside)


@contextmanager
def told() -> Iterator[None]:
    """An error of the server while tables are looked up, as a refusal for the steward."""
    refusal: Exception | None = None
    try:
        yield
    except (PolicyError, SourceError):
        raise
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        refusal = SourceError(
            "The server cannot be reached, or has no such table that can be read.",
            fix="Check the address, the server and the names of its tables and folders.",
            about="server",
        )
        if _FOLDERS.search(str(error)):
            refusal = SourceError(
                "Folders of a table name values (NAME=VALUE) that its server cannot read.",
                fix="Put all files into folders of the same names, which no file has a column of.",
                about="folder",
            )
        if _UNLIKE.search(str(error)):
            refusal = SourceError(
                "The files of a table have columns of one name and different types.",
                fix="Write them anew with the same types.",
                about="drift",
            )
    if refusal is not None:
        raise refusal from None


def connect(place: Place) -> Any:  # noqa: ANN401 - a SparkSession
    """A new session with all settings pinned."""
    with warnings.catch_warnings(), _at_home():  # pandas, which its client loads, is not used
        warnings.filterwarnings("ignore", message="PySpark does not yet", category=FutureWarning)
        extra("pyspark.sql.connect.session", "Tables of a Spark server", "spark")
        retries = extra("pyspark.sql.connect.client.retries", "Tables of a Spark server", "spark")
    if not os.environ.get(DEBUG):
        logging.getLogger("SQLQueryContextLogger").disabled = True  # it quotes what it failed on
    with told(), warnings.catch_warnings(action="ignore", category=UserWarning):  # old settings
        found = _remote(place.url) if place.session is None else _beside(place.session)
        found.client.set_retry_policies([retries.DefaultPolicy(**_TRIES)])
        found.client.enable_reattachable_execute()  # else a retry would send rows a second time
        for name, value in _SETTINGS.items():
            found.conf.set(name, value)
    # at the end of the process it would wait for a server that may be gone, to clear away models
    atexit.unregister(getattr(found.client, "_on_exit", atexit.unregister))
    return found


@contextmanager
def _at_home() -> Iterator[None]:
    """Name a place for a whole Spark, which need not be there.

    A program without a file (``python -c``) is taken for a test by the client, and ended unless it
    finds one.
    """
    if _HOME in os.environ:
        yield
        return
    os.environ[_HOME] = os.sep
    try:
        yield
    finally:
        del os.environ[_HOME]


def _beside(session: Any) -> Any:  # noqa: ANN401 - SparkSessions
    """Another session on the same server, so that nobody's settings are changed."""
    if hasattr(session, "newSession"):
        return session.newSession()
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - an extra

    return SparkSession.builder.channelBuilder(session.client._builder).create()  # noqa: SLF001


def _remote(url: str) -> Any:  # noqa: ANN401 - a SparkSession
    address, *said = url.split(";")
    kept = [each for each in said if not each.startswith("token_file=")]
    for each in said:
        if each.startswith("token_file="):
            token = Path(each.partition("=")[2]).read_text(encoding="utf-8").strip()
            kept.append(f"token={token}")
    if address.partition("://")[2].strip("/") == "":
        wanted = os.environ.get(REMOTE, "")
        if not wanted:
            raise SourceError(
                "The address names no server.",
                fix=f"Name one (sc://HOST:PORT#TABLE), or set {REMOTE} in the environment.",
                about="server",
            )
        if wanted.startswith("local"):
            from pyspark.sql import SparkSession as Local  # noqa: PLC0415 - an extra

            return Local.builder.remote(wanted).getOrCreate().newSession()
        address = wanted
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - an extra

    return SparkSession.builder.remote(";".join([address, *kept])).create()


def takes_any_text(session: Any) -> bool:  # noqa: ANN401 - a SparkSession
    """Whether its texts may be any bytes, as Spark's are; else a row could make a statement fail.

    Servers that hold texts as UTF-8 (Sail) fail where they read another one.
    """
    with suppress(Exception):
        found = session.sql("SELECT IS_VALID_UTF8(CAST(X'FF' AS STRING)) AS valid").toArrow()
        return bool(found.column("valid").to_pylist() == [False])
    return False


def stored_table(session: Any, place: Place) -> Stored:  # noqa: ANN401 - a SparkSession
    """The files of a table and its columns, as of now. Reads no row."""
    root, is_listed = (place.table, False) if place.is_folder else _location(session, place.table)
    files = _files(session, root.rstrip("/"))
    if is_listed:
        files = _registered(session, place.table, root)
    read = session.read.option("basePath", root)
    if _found(read, files) != files:
        raise SourceError(
            "Files of a table are not found by their names.",
            fix="Name them and their folders by letters, digits, dots and dashes.",
            about="file",
        )
    _require_folders(session, root, files)
    # of all files: a statement that meets another type than that of the first would fail
    schema = read.option("mergeSchema", value=True).parquet(*files).schema
    said = {each.name: each.dataType.simpleString() for each in schema.fields}
    if len({name.casefold() for name in said}) < len(schema.fields):
        raise SourceError(
            "Columns of a table have names that differ in upper and lower case alone.",
            fix="Write the files again, with one name for each column.",
            about="file",
        )
    scales = {name: _DECIMAL.fullmatch(kind) for name, kind in said.items()}
    return Stored(
        root,
        files,
        {name: kind.partition("(")[0] for name, kind in said.items()},
        {name: int(found[1]) for name, found in scales.items() if found},
        schema,
    )


def _found(read: Any, files: Sequence[str]) -> tuple[str, ...]:  # noqa: ANN401 - a DataFrameReader
    """The files that are found by these names, which some servers read with other signs."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - an extra

    try:
        return tuple(sorted(read.parquet(*files).inputFiles()))
    except AnalysisException as error:
        if error.getCondition() != _MISSING:
            raise
    return ()


def _require_folders(session: Any, root: str, files: Sequence[str]) -> None:  # noqa: ANN401
    """Refuse folders whose names say something else than the files do. Reads no row."""
    named = {named_by(_folders(file, root)) for file in files}
    if named != {()}:  # beside each other, without the folders above, they are files alone
        alone = session.read.option("mergeSchema", value=True).parquet(*files)
        require_same_names(named, alone.columns)


def _folders(file: str, root: str) -> list[str]:
    """The folders that name values on the way from a table's folder to a file."""
    above = len(_PARTITION.findall(f"{root}/"))
    found = _PARTITION.findall(unquote(file).rpartition("/")[0])[above:]
    return [each[1:] for each in found]


def _files(session: Any, root: str) -> tuple[str, ...]:  # noqa: ANN401 - a SparkSession
    """The Parquet files of a folder; of a Delta table, those of its newest version."""
    log = _Log(session, f"{root}/{delta.FOLDER}")
    if log.files:
        base = log.files[0].rpartition(f"/{delta.FOLDER}/")[0]
        held = delta.live_files(log)
        found = (
            session.read.parquet(*(f"{base}/{each}" for each in held)).inputFiles() if held else []
        )
        named = {f"{unquote(base)}/{each}" for each in held}
        if not found or {*map(unquote, found)} != named:  # a name may be read as a pattern
            raise SourceError(
                "The log of a Delta table names files that are not found by their names, or none.",
                fix=delta.COPY,
                about="log",
            )
        return tuple(sorted(found))
    whole = _PARTITION.sub("", root)
    if whole != root and _Log(session, f"{whole}/{delta.FOLDER}").files:
        raise delta.not_plain(delta.FOLDER)
    for folder, part in delta.OTHERS.items():
        if any(part in each for each in _Log(session, f"{root}/{folder}").files):
            raise delta.not_plain(folder)
    return tuple(sorted(session.read.parquet(root).inputFiles()))


def _registered(session: Any, table: str, root: str) -> tuple[str, ...]:  # noqa: ANN401
    """The files of a table with partitions: those that its catalogue names, and no other."""
    if _Log(session, f"{root}/{delta.FOLDER}").files:
        raise delta.not_plain(delta.FOLDER)
    files: list[str] = session.table(table).inputFiles()
    below = _ROOT.sub(r"\1:///", root.rstrip("/")) + "/"
    if not all(_ROOT.sub(r"\1:///", file).startswith(below) for file in files):
        raise SourceError(
            "A table has partitions outside of its folder.", fix=delta.COPY, about="file"
        )
    folders = {"/".join(_folders(file, root)) for file in files} - {""}
    if folders:  # what they are called is what will be read
        listed = session.sql(f"SHOW PARTITIONS {table}").toArrow().column(0).to_pylist()
        if not folders <= set(listed):
            raise SourceError(
                "A table has partitions in folders that name other values.",
                fix=delta.COPY,
                about="folder",
            )
    return tuple(sorted(files))


@final
class _Log:
    """The files of a folder of the server, as the log of a Delta table."""

    def __init__(self, session: Any, folder: str) -> None:  # noqa: ANN401 - a SparkSession
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - an extra

        self._read = session.read
        try:
            self.files = sorted(session.read.text(folder).inputFiles())
        except AnalysisException as error:
            if error.getCondition() != _MISSING:
                raise
            self.files = []

    def names(self) -> list[str]:
        return [each.rpartition("/")[2] for each in self.files]

    def commit(self, name: str) -> str:
        found = self._read.option("wholetext", value=True).text(self._at(name)).toArrow()
        return "\n".join(found.column("value").to_pylist())

    def checkpoint(self, name: str) -> list[delta.Action]:
        rows = self._read.parquet(self._at(name))
        inner = {outer.name: set(outer.dataType.names) for outer in rows.schema.fields
                 if hasattr(outer.dataType, "names")}  # fmt: skip
        pairs = [each.split(".") for each in delta.COLUMNS]
        held = [(a, b) for a, b in pairs if b in inner.get(a, ())]
        found = rows.selectExpr(*(f"{a}.{b} AS {a}_{b}" for a, b in held)).toArrow().to_pylist()
        actions: list[delta.Action] = []
        for row in found:
            action: dict[str, dict[str, Any]] = {}
            for a, b in held:
                action.setdefault(a, {})[b] = row[f"{a}_{b}"]
            actions.append(action)
        return actions

    def _at(self, name: str) -> str:
        found: str = next(each for each in self.files if each.endswith(f"/{name}"))
        return found


def _location(session: Any, table: str) -> tuple[str, bool]:  # noqa: ANN401 - a SparkSession
    """The folder of a table of the catalogue, and whether this lists its partitions.

    Refuses what cannot be kept still. Hive's tables with transactions also hold rows of former
    versions, as those of other formats do that are read through Hive.
    """
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {table}").toArrow().to_pylist()
    said = {str(row["col_name"]).lower(): str(row["data_type"]) for row in rows}
    provider, where = said.get("provider", "").lower(), said.get("location", "")
    form, kept = (said.get("serde library"), said.get("inputformat")), provider in _KEPT
    is_hive = provider == "hive" and form == _HIVE
    is_hive = is_hive and "transactional" not in said.get("table properties", "")
    if said.get("type", "").upper() not in ("MANAGED", "EXTERNAL") or not (kept or is_hive):
        raise PolicyError(
            f"{table} is a view, or not stored as Parquet or Delta: nothing keeps its rows as they "
            "are while a question is computed.",
            fix="Name a table that is stored so, or its folder: sc://…#/FOLDER.",
            about="view",
        )
    listed = provider == "parquet" and "# partition information" in said
    return where, is_hive or listed
