"""Engines over frames, made once for all frames of the same columns: to make one takes 30 ms.

An engine over files is always a new one: it may reach these and nothing else. One over frames
reaches no file, and frames belong to a line (`sources/duckdb/room.py`). So a source over other
frames with the same columns gets a line of its own to the same locked engine, and sees its own rows
alone. All that is checked when a source is made is checked for each. Whoever tests the engine
itself asks for `own_engine`; one that has to be made again is made anew.
"""

import os
from collections import OrderedDict
from weakref import WeakSet

from noisegate.sources.duckdb.files import file_of, only
from noisegate.sources.duckdb.room import Line
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.used import used_columns

MOST = 32  # that are kept: each has threads of its own
connect = DuckDBSource._connect  # as it is


class KeptEngines:
    """Engines by all that they were made from but the rows."""

    def __init__(self):
        self._types, self._engines, self._seen = {}, OrderedDict(), WeakSet()

    def connect(self, source):
        """What `DuckDBSource._connect` does, with an engine that is there, if there is one."""
        again = source in self._seen
        self._seen.add(source)
        if again or any(file_of(each) is not None for each in source._data.values()):
            return connect(source)
        shapes = str([(table, str(rows.schema)) for table, rows in source._data.items()])
        if shapes not in self._types:
            return self._new(source, shapes)
        source._types, tables = self._types[shapes], source._tables
        source._used = {name: used_columns(name, tables, source._types[name]) for name in tables}
        if (name := self._name(source, shapes)) not in self._engines:
            return self._new(source, shapes)
        self._engines.move_to_end(name)
        source._require_owners()
        line = self._engines[name].cursor()
        for place, (table, rows) in enumerate(source._data.items()):
            line.register(f"frame{place}", only(rows, source._used[table]))
        source._free = [Line(line, line)]
        return line

    def _new(self, source, shapes):
        made = connect(source)
        self._types[shapes] = source._types
        self._engines[self._name(source, shapes)] = made.cursor()  # which has none of its frames
        while len(self._engines) > MOST:
            self._engines.popitem(last=False)
        return made

    @staticmethod
    def _name(source, shapes):
        made_from = source._memory, *source._settings(), shapes, source._used
        return os.getpid(), repr(made_from)
