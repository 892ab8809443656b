"""Parquet files as tables of an engine of this process: which these are, and whether they stay."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

from noisegate.errors import DEBUG, NoisegateError, PolicyError, SourceError
from noisegate.files import TABLE, keep, place_of
from noisegate.frozen import dataclass
from noisegate.sources.asked import delta
from noisegate.sources.asked.folders import named_by, require_same_names
from noisegate.sources.duckdb.files import require_file

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES: Final = {  # of Arrow's types, as `asked/dialect.py` calls them
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "uint8": "smallint",
    "uint16": "int", "uint32": "bigint", "float": "float", "double": "double", "bool": "boolean",
    "string": "string", "large_string": "string", "string_view": "string", "date32[day]": "date",
}  # fmt: skip

_CALENDAR: Final = (-62_135_596_800, 253_402_300_800)  # seconds from the year 1 until 10000
_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6}


@final
@dataclass(frozen=True, slots=True)
class Parquet:
    """A table as it was opened: its files, each with its state, and its columns."""

    path: Path
    files: tuple[Path, ...]
    states: tuple[tuple[int, ...], ...]
    columns: "pa.Schema"

    @property
    def types(self) -> Mapping[str, str]:
        """The stored types of the columns that can be read."""
        found = {each.name: stored_type(each.type) for each in self.columns}
        return {name: kind for name, kind in found.items() if kind is not None}

    @property
    def scales(self) -> Mapping[str, int]:
        """How many digits its decimals have."""
        return {e.name: e.type.scale for e in self.columns if stored_type(e.type) == "decimal"}

    @property
    def is_same(self) -> bool:
        """Whether nobody has changed or removed a file since."""
        return tuple(map(_state, self.files)) == self.states

    @property
    def places(self) -> frozenset[str]:
        """Its files and its folder, as `ledger/origin.py` writes paths."""
        real = map(os.path.realpath, (self.path, *self.files))
        return frozenset(each.replace("%", "%25").replace("#", "%23") for each in real)


def stored_type(kind: "pa.DataType") -> str | None:
    """The name of a type, or None of one that is not read."""
    said = str(kind.value_type if str(kind).startswith("dictionary") else kind)
    if said.startswith("timestamp["):
        return "timestamp"
    return "decimal" if said.startswith("decimal128(") else _NAMES.get(said)


def microseconds(count: str, unit: str) -> str:
    """A time in SQL, by its number since 1970; NULL outside the years 1 to 9999."""
    if unit == "ns":  # to the nearest, as DuckDB reads it
        near = (
            f"CASE WHEN {count} % 1000 >= 500 THEN 1 WHEN {count} % 1000 <= -500 THEN -1 ELSE 0 END"
        )
        return f"CAST({count} / 1000 + {near} AS TIMESTAMP(6))"
    first, beyond = (seconds * _UNITS[unit] for seconds in _CALENDAR)
    passed = f"CAST({count} * {10**6 // _UNITS[unit]} AS TIMESTAMP(6))"
    return f"CASE WHEN {count} >= {first} AND {count} < {beyond} THEN {passed} END"


def require_same(tables: Iterable[Parquet]) -> None:
    """Refuse files that somebody has changed or removed."""
    if not all(each.is_same for each in tables):
        raise SourceError(
            "A file has changed, or is gone, since the gate was opened.",
            fix="Open the gate again, under a new snapshot.",
            about="drift",
        )


def path_of(origin: str) -> Path:
    """What a policy names: ``ENGINE:///FOLDER``, ``…/FILE.parquet``, or ``…/FOLDER#TABLE``."""
    url, inside = place_of(origin)
    scheme, _, named = url.partition("://")
    path = Path(named)
    if not path.is_absolute():
        raise PolicyError(
            "The address does not name a folder or file by its whole path.",
            fix=f"Write {scheme}:///FOLDER or {scheme}:///FOLDER/FILE.parquet.",
            about="address",
        )
    if inside is None:
        return path
    return path / inside if (path / inside).is_dir() else path / f"{inside}.parquet"


def parquet_table(path: Path, columns_of: Callable[[Path], "pa.Schema"]) -> Parquet:
    """The files of a table and its columns, as of now. Reads no row."""
    files = _listed(path)
    for file in files:
        require_file(file)
        keep(file, TABLE)
    states = tuple(map(_state, files))
    first, *others = _columns(files, columns_of)
    if any(other != first for other in others):
        raise SourceError(
            f"The files of {path.name!r} have different columns.",
            fix="Write them anew with the same columns, in the same order and of the same types.",
            about="drift",
        )
    if path.is_dir():
        named = {named_by(file.relative_to(path).parts[:-1]) for file in files}
        require_same_names(named, first.names)
    return Parquet(path, tuple(files), states, first)


def _listed(path: Path) -> Sequence[Path]:
    """A file, or those of a folder and its folders that are not hidden."""
    if not path.is_dir():
        return [path]
    if (path / delta.FOLDER).is_dir():
        found = [path / each for each in delta.live_files(_Log(path / delta.FOLDER))]
        return found or _nothing(path)
    around = (each / delta.FOLDER for each in path.resolve().parents)
    if any(each.is_dir() for each in (*around, *path.rglob(delta.FOLDER))):
        raise delta.not_plain(delta.FOLDER)
    for folder, part in delta.OTHERS.items():
        if any(part in each.name for each in (path / folder).glob("*")):
            raise delta.not_plain(folder)
    found = sorted(each for each in path.rglob("*.parquet") if not each.is_dir())
    found = [f for f in found if not any(map(_is_hidden, f.relative_to(path).parts))]
    return found or _nothing(path)


def _is_hidden(part: str) -> bool:
    """Whether a file or folder is not of the table; one that names a value is, as for Spark."""
    return part[0] == "." or (part[0] == "_" and "=" not in part)


def _nothing(path: Path) -> NoReturn:
    raise SourceError(f"{path.name!r} has no Parquet file.", fix="Check the path.", about="file")


@final
@dataclass(frozen=True, slots=True)
class _Log:
    """The log of a Delta table in a folder."""

    folder: Path

    def names(self) -> list[str]:
        return [each.name for each in self.folder.iterdir()]

    def commit(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def checkpoint(self, name: str) -> "list[delta.Action]":
        import pyarrow.parquet as pq  # noqa: PLC0415 - of Delta tables only

        held = pq.ParquetFile(self.folder / name)
        columns = [each for each in delta.COLUMNS if _has(held.schema_arrow, each)]
        found: list[delta.Action] = held.read(columns=columns).to_pylist()
        return found


def _has(schema: "pa.Schema", column: str) -> bool:
    outer, _, inner = column.partition(".")
    at = schema.get_field_index(outer)
    return at >= 0 and (not inner or schema.field(at).type.get_field_index(inner) >= 0)


def _columns(files: Sequence[Path], columns_of: Callable[[Path], "pa.Schema"]) -> "list[pa.Schema]":
    """The columns of each file; an error of the engine is a refusal for the steward."""
    try:
        return [columns_of(file).remove_metadata() for file in files]
    except NoisegateError:
        raise
    except Exception:
        if os.environ.get(DEBUG):
            raise
    raise SourceError(
        "A file is not Parquet, or cannot be read.", fix="Check the files.", about="file"
    )


def _state(file: Path) -> tuple[int, ...]:
    """What tells whether a file is the one that was opened; nothing of one that is gone."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
