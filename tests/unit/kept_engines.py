"""Engines of the same rows and tables are made once: to make one takes longer than most tests.

A gate's source looks at rows and changes none, so two gates that are opened in front of the same
rows, with the same facts about them, find the same. What a source counts and copies is its own
here as ever; shared are the engine itself and the statements that were written for it. Tests of
the engine make a `DuckDBSource` by hand.
"""

from collections import Counter, OrderedDict
from copy import copy
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from noisegate.sources.duckdb import source as duckdb_source
from noisegate.sources.duckdb.files import plain
from noisegate.sources.duckdb.source import DuckDBSource

MADE_BY = ("root.parts", "root.rehearsal", "sources.duckdb.facts")  # who makes sources
_ENGINES_MAX = 24
_BYTES_MAX = 1 << 24
kept: "OrderedDict[object, DuckDBSource]" = OrderedDict()


def kept_source(data, tables):
    """A source of its own on the engine of the same rows and tables; on a new one else."""
    rows = {name: plain(data[name], name) for name in tables}
    marks = [_mark(each) for each in rows.values()]
    if None in marks:
        return DuckDBSource(data, tables)
    plain_tables = {name: replace(table, snapshot="") for name, table in tables.items()}
    name = (*marks, repr(plain_tables))  # an engine knows nothing of snapshots
    if name not in kept:
        kept[name] = DuckDBSource(data, tables)
        while len(kept) > _ENGINES_MAX:
            kept.popitem(last=False)
    kept.move_to_end(name)
    found = copy(kept[name])
    found._tables, found._asked, found._copies = tables, Counter(), None
    found._made_by = kept[name]  # whose end is the end of what it spilled
    duckdb_source._living.add(found)
    return found


def _mark(rows):
    """What tells these rows from others: where their file is and all that it says, or a frame's."""
    if isinstance(rows, pa.Table) and rows.nbytes <= _BYTES_MAX:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        return blake2b(sink.getvalue()).digest()
    if isinstance(rows, Path) and rows.is_file() and rows.stat().st_size <= _BYTES_MAX:
        return str(rows.resolve()), blake2b(rows.read_bytes()).digest()
    return None
