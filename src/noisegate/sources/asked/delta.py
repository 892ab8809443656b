"""Delta tables: which of the Parquet files in a folder are the table, by its log.

A folder with a ``_delta_log`` also holds files of former versions, with rows that were changed or
deleted since. Read as plain Parquet, a person would be there twice, or after being deleted. So the
log is replayed: the newest checkpoint, then each commit after it, every one of them there. Refused
is what plain files cannot say: rows deleted by a vector, columns by another name (column mapping),
values of partitions that the names of folders do not say, and any feature that is not known here.
Iceberg and Hudi tables are refused as a whole.

Facts: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from posixpath import normpath
from typing import Any, Final, Protocol
from urllib.parse import unquote

from noisegate.errors import SourceError
from noisegate.sources.asked.folders import named_values

FOLDER: Final = "_delta_log"
OTHERS: Final = {"metadata": ".metadata.json", ".hoodie": ""}  # folders of Iceberg and of Hudi
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_FEATURES: Final = frozenset({"deletionVectors", "timestampNtz", "vacuumProtocolCheck"})
_READER_MAX: Final = 3  # the last version of the protocol for readers
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset")  # which tell one from another
_MAPPING: Final = "delta.columnMapping.mode"
COLUMNS: Final = (  # of a checkpoint: what it says of values is not read
    "add.path", "add.deletionVector", "add.partitionValues", "metaData.configuration",
    "protocol.minReaderVersion", "protocol.readerFeatures",
)  # fmt: skip
COPY: Final = "Write a copy as Parquet files, and name its folder."

Action = Mapping[str, Any]


class Log(Protocol):
    """The files of a log: their names, commits as text and checkpoints as rows."""

    def names(self) -> Sequence[str]:
        """The names of all files in it."""

    def commit(self, name: str) -> str:
        """A commit: one action a line."""

    def checkpoint(self, name: str) -> Iterable[Action]:
        """The actions of a checkpoint, without what it says of values."""


def live_files(log: Log) -> tuple[str, ...]:
    """The files of the newest version, as paths below the folder."""
    found = None
    with suppress(ValueError, TypeError, KeyError, AttributeError, OSError, RuntimeError):
        found = _live(log)
    if found is None:  # the words of an error may quote what the log says of values
        raise SourceError("The log of a Delta table cannot be read.", fix=COPY, about="log")
    return found


def _live(log: Log) -> tuple[str, ...]:
    names = log.names()
    start, actions = _checkpoint(log, names)
    versions = sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))
    after = [each for each in versions if each > start]
    if after != list(range(start + 1, start + 1 + len(after))) or start + len(after) < 0:
        raise SourceError(
            "The log of a Delta table has gaps, or a checkpoint of a kind that is not known here.",
            fix=COPY,
            about="log",
        )
    for version in after:
        lines = log.commit(f"{version:020}.json").split("\n")  # texts may have other ends of lines
        actions += [json.loads(line) for line in lines if line.strip()]
    return tuple(sorted(_replayed(actions)))


def _checkpoint(log: Log, names: Sequence[str]) -> tuple[int, list[Action]]:
    """The version of the newest checkpoint whose parts are all there, and its actions; or -1."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(name)
    whole = {at: held for at, held in parts.items() if len(held) == at[1]}
    if not whole:
        return -1, []
    at = max(whole, key=lambda each: (each[0], -each[1]))  # parts may be of several writers
    return at[0], [action for name in sorted(whole[at]) for action in log.checkpoint(name)]


def _replayed(actions: Iterable[Action]) -> set[str]:
    """What is left; a file with a vector is another one than the same without."""
    live: dict[tuple[str, tuple[Any, ...]], dict[str, str | None]] = {}  # with their values
    for action in actions:
        for kind in ("add", "remove"):
            each = action.get(kind) or {}
            if each.get("path") is None:
                continue
            vector = each.get("deletionVector") or {}
            told = tuple(vector.get(part) for part in _VECTOR) if vector else ()
            file = _plain(each["path"]), told
            if kind == "add":
                live[file] = dict(each.get("partitionValues") or {})
            elif file in live:
                del live[file]
            else:
                raise _unknown("removes a file that it does not have", "Write it anew")
        _require_known(action)
    if any(vector for _, vector in live):
        raise _unknown("has rows that are deleted by a vector", "Run REORG TABLE … APPLY (PURGE)")
    return {_named(path, values) for (path, _), values in live.items()}


def _require_known(action: Action) -> None:
    protocol = action.get("protocol") or {}
    unknown = {*(protocol.get("readerFeatures") or ())} - _FEATURES - {"columnMapping"}
    if unknown or (protocol.get("minReaderVersion") or 1) > _READER_MAX:
        raise _unknown("uses features that are not known here", "Write it without them")
    said = dict((action.get("metaData") or {}).get("configuration") or {})
    if said.get(_MAPPING, "none") != "none":
        raise _unknown("has columns by another name than its files", "Write it anew")


def _plain(path: str) -> str:
    """A path of a log, which is that of a URI, in the one way to write it; whole ones begin so."""
    return f"/{path}" if ":" in path.partition("/")[0] else normpath(unquote(path))


def _named(path: str, values: Mapping[str, str | None]) -> str:
    """Only files below the table's folder, in folders that name the values of the log."""
    folders = path.split("/")[:-1]
    if path.partition("/")[0] in ("", ".."):
        raise _unknown("has files outside of its folder, as a shallow clone does", "Clone it whole")
    if named_values(folders) != {name: value or None for name, value in values.items()}:
        raise _unknown("has values of partitions that its folders do not name", "Write it anew")
    return path


def _unknown(what: str, instead: str) -> SourceError:
    return SourceError(
        f"A Delta table {what}.",
        fix=f"{instead}, or write a copy as Parquet files and name its folder.",
        about="log",
    )


def not_plain(folder: str) -> SourceError:
    """Of a folder that has such another one, of a table of another kind, or in or above it."""
    kind = {FOLDER: "a part of a Delta", ".hoodie": "the folder of a Hudi"}
    return SourceError(
        f"This is {kind.get(folder, 'the folder of an Iceberg')} table, or holds one: its files "
        "also hold rows of former versions.",
        fix=COPY,
        about="log",
    )
