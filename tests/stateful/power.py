"""What a power failure can leave of a SQLite ledger: writes of which only the synchronised are sure.

`Recorder` puts itself between SQLite and the system (its table of file functions, by ctypes) and
notes each write, truncation, removal and synchronisation. `states` then makes the files that a
failure before each of them can leave: what was synchronised is there; of what was written to a file
since, any part may be, and a write may be torn at a sector.
"""

import _sqlite3
import ctypes
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
C, INT, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
OPEN = ctypes.CFUNCTYPE(INT, C, C, C, INT, C)  # the name is kept by SQLite: a pointer, not a copy
DELETE = ctypes.CFUNCTYPE(INT, C, ctypes.c_char_p, INT)
WRITE = ctypes.CFUNCTYPE(INT, C, C, INT, LONG)
TRUNCATE = ctypes.CFUNCTYPE(INT, C, LONG)
SYNC = ctypes.CFUNCTYPE(INT, C, INT)


class System(ctypes.Structure):
    """sqlite3_vfs as far as it is needed."""

    _fields_ = [
        ("version", INT), ("file_bytes", INT), ("path_max", INT),
        *((name, C) for name in ("next", "name", "data", "open", "delete")),
    ]  # fmt: skip


class Functions(ctypes.Structure):
    """sqlite3_io_methods: a version and eighteen functions."""

    _fields_ = [
        ("version", INT),
        *((name, C) for name in ("close", "read", "write", "truncate", "sync")),
        ("more", C * 13),
    ]


@dataclass
class Recorder:
    """Notes what SQLite does to files while it is entered; ``notes`` also takes marks of others."""

    notes: list = field(default_factory=list)  # (what, file, …)
    _kept: list = field(default_factory=list)  # what C points to

    def mark(self, *words):
        self.notes.append(("mark", None, *words))

    def __enter__(self):
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(System)
        self._system = library.sqlite3_vfs_find(None).contents
        self._before = self._system.open, self._system.delete
        do_open, do_delete = OPEN(self._before[0]), DELETE(self._before[1])

        def opening(system, name, file, flags, out):
            code = do_open(system, name, file, flags, out)
            if code == 0 and name is not None:
                self._watch(file, Path(ctypes.string_at(name).decode()).name)
            return code

        def deleting(system, name, sync):
            self.notes.append(("delete", Path(name.decode()).name))
            return do_delete(system, name, sync)

        self._system.open = self._c(OPEN(opening))
        self._system.delete = self._c(DELETE(deleting))
        return self

    def __exit__(self, *_):
        self._system.open, self._system.delete = self._before

    def _c(self, function):
        self._kept.append(function)
        return ctypes.cast(function, C)

    def _watch(self, file, name):
        place = C.from_address(file)
        if not place.value:
            return
        functions = Functions.from_buffer_copy(
            ctypes.string_at(place.value, ctypes.sizeof(Functions))
        )
        write, cut = WRITE(functions.write), TRUNCATE(functions.truncate)
        sync = SYNC(functions.sync)

        def writing(file, data, size, offset):
            self.notes.append(("write", name, offset, ctypes.string_at(data, size)))
            return write(file, data, size, offset)

        def cutting(file, size):
            self.notes.append(("truncate", name, size))
            return cut(file, size)

        def syncing(file, flags):
            code = sync(file, flags)
            self.notes.append(("sync", name))
            return code

        functions.write, functions.truncate = self._c(WRITE(writing)), self._c(TRUNCATE(cutting))
        functions.sync = self._c(SYNC(syncing))
        self._kept.append(functions)
        place.value = ctypes.addressof(functions)


def states(notes, files, chance):
    """For each moment: its number, and files as a failure may leave them. ``files``: at the start."""
    sure, pending = {name: bytearray(data) for name, data in files.items()}, defaultdict(list)
    for number, (what, name, *words) in enumerate(notes):
        if what == "mark":
            continue
        for chosen in _subsets(pending, chance):
            made = {each: bytearray(data) for each, data in sure.items()}
            for note in chosen:
                _apply(made, note)
            yield number, made
        if what == "sync":
            for note in pending.pop(name, ()):
                _apply(sure, note)
        else:
            pending[name].append((what, name, *words))
    yield len(notes), {**sure}


def _subsets(pending, chance):
    """All of what is not synchronised, nothing of it, parts of it, the last write torn."""
    notes = [note for each in pending.values() for note in each]
    yield notes
    if not notes:
        return
    yield []
    for gone in (0, len(notes) // 2):
        yield notes[:gone] + notes[gone + 1 :]
    for _ in range(2):
        yield [note for note in notes if chance.random() < 0.5]
    if notes[-1][0] == "write" and len(notes[-1][3]) > SECTOR:
        what, name, offset, data = notes[-1]
        half = len(data) // 2 // SECTOR * SECTOR
        yield [*notes[:-1], (what, name, offset, data[:half])]
        yield [*notes[:-1], (what, name, offset + half, data[half:])]


def _apply(files, note):
    what, name, *words = note
    if what == "delete":
        files.pop(name, None)
        return
    data = files.setdefault(name, bytearray())
    if what == "truncate":
        del data[words[0] :]
        data.extend(bytes(words[0] - len(data)))
        return
    offset, new = words
    data.extend(bytes(max(0, offset + len(new) - len(data))))
    data[offset : offset + len(new)] = new


def one_chance():
    """The same choices each time: a state that fails can be made again."""
    return random.Random(1)
