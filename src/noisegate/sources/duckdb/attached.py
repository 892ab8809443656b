"""One engine of a process for names and types in DuckDB files: to make one takes 30 ms."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from noisegate.sources.duckdb.files import Within


@contextmanager
def attaching(
    files: "Mapping[str, Path | Within | pa.Table]",
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to which databases are attached for one at a time; afterwards none is.

    An engine in which anything failed is not used again: it may be broken.
    """
    engine, alone = _shared(os.getpid())
    with alone, engine.cursor() as connection:
        try:
            yield connection
        except BaseException:
            _shared.cache_clear()
            raise
        finally:
            for place in range(len(files)):
                with suppress(duckdb.Error):
                    connection.execute(f"DETACH DATABASE IF EXISTS file{place}")


@cache
def _shared(process: int) -> tuple[duckdb.DuckDBPyConnection, Lock]:  # noqa: ARG001 - not a child's
    return duckdb.connect(":memory:"), Lock()
