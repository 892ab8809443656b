"""Where children come from: a process that has loaded libraries and seen no program and no row.

    root          loads modules, makes the first template, then only waits for the end
    template k    waits for turn k; makes template k + 1, then the children of the turn, and ends
    child         waits for its rows, locks itself in, looks at the program

Claim: no program influences what a child of a later turn is made of. Why: template k + 1 is made
    before any child of turn k exists, and sleeps in the kernel until its own turn. Whoever has made
    a child never makes a template again, so no ancestor of a child has ever run beside, waited for,
    or been told of a program before it made that line. All of them are children of the root (its
    id is handed on by CLONE_PARENT), which sleeps too and lets the kernel bury them: no exit code,
    signal or number of a process is ever looked at in here. The door ends children (`cell.py`).

The root is started for each question by ``python -I`` with an environment that is always the same,
and finds its three connections in the places of the standard streams: orders, a leash whose end is
the root's end, and the lock that says that programs are running (`cell.py`), which every process
holds until its memory is gone.
"""

import ctypes
import gc
import importlib
import io
import json
import os
import platform
import resource  # noqa: F401 - `limit` needs it in every child
import signal
import socket
import sys
import time
from contextlib import suppress
from importlib.machinery import BuiltinImporter, FrozenImporter
from pathlib import Path
from typing import Any, Final, Never

import numpy as np

from noisegate.isolated import lockdown
from noisegate.isolated.channel import LOCKED, SIZE, receive, send, unpacked

_HELD, _ORDERS, _LEASH = 4, 5, 6  # places of the lock and of the two connections
_FDS_MAX: Final = 253  # that one message carries
_SKLEARN_LOOKS: Final = "_get_threadpool_controller"  # reads which libraries are mapped, once
_NO_NUMBER: Final = (
    "It returns NaN, perhaps because values are missing: filter out NULL, or handle it."
)
_MAPS, _MAPPED = Path("/proc/self/maps"), Path("/proc/self/smaps")
_PART: Final = 1 << 20
_READ: Final[set[str]] = set()  # files that have been read whole
_WORDS_MAX: Final = 2000  # of what went wrong, on made-up rows


def serve() -> Never:
    """Load modules, make the first template, and wait for the end of the leash."""
    orders, locked = _take_places(), LOCKED in sys.argv
    lockdown.end_first(above_all=False)
    if locked:
        lockdown.use_small_pages()
        _stop_clocks()
        lockdown.only_read()
    found = [(name, _loads(name)) for name in receive(orders)]
    shared = locked and _shares_memory()
    _settle()
    send(orders, [name for name, known in found if shared or not known])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if _cloned(signal.SIGCHLD | lockdown.PIDFD) is None:
        _be_a_template(orders)
    orders.close()
    os.read(_LEASH, 1)
    os._exit(0)


def _take_places() -> socket.socket:
    """Move the connections away from the standard streams, which become the null device."""
    for stream, place in ((0, _ORDERS), (1, _LEASH), (2, _HELD)):
        os.dup2(stream, place)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(
        lockdown.ANSWER + 1
    ):  # the place of the answer is taken too, until there is one
        os.dup2(nowhere, stream)
    if nowhere > _LEASH:
        os.close(nowhere)
    return socket.socket(fileno=_ORDERS)


def _be_a_template(orders: socket.socket) -> Never:
    """Wait for a turn; make who waits for the next, then the children of this one; and end."""
    os.close(_LEASH)
    while True:
        lockdown.end_with_parent()
        order, given, _, _ = socket.recv_fds(orders, 1, _FDS_MAX)
        if not order:
            os._exit(0)
        following = _cloned(signal.SIGCHLD | lockdown.PIDFD | lockdown.SAME_PARENT)
        if following is not None:
            break
        for descriptor in given:
            os.close(descriptor)
    os.close(following)
    children = []
    for task, answer in zip(given[::2], given[1::2], strict=True):
        child = _cloned(signal.SIGCHLD | lockdown.PIDFD | lockdown.SAME_PARENT)
        if child is None:
            _be_a_child(task, answer)
        children.append(child)
    socket.send_fds(orders, [order], children)
    os._exit(0)


def _cloned(flags: int) -> int | None:
    """A copy of this process: a descriptor of it, or None in the copy.

    `os.fork` would let Python and the C library write the new number of the process into its
    memory, and that depends on which others there are. Here the number is returned to nobody: the
    result is not looked at. The kernel writes the descriptor for the original alone, when memory
    has been copied. There are no other threads to be mended.
    """
    call, descriptor = ctypes.CDLL(None, use_errno=True).syscall, ctypes.c_int(-1)
    call.restype = None
    ctypes.set_errno(0)
    call(lockdown.CLONE[platform.machine()], flags, None, ctypes.byref(descriptor), None, None)
    if descriptor.value >= 0:
        return descriptor.value
    if ctypes.get_errno():
        os._exit(1)  # no process can be made: the door hears that nobody answers
    return None


def _stop_clocks() -> None:
    """Let Python's clocks stand still: libraries look in passing, and the kernel will refuse."""
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, f"{name}_ns", lambda: 0)


def _settle() -> None:
    """Let libraries look at the machine now, as they cannot later; keep what is loaded in place."""
    counts_threads = getattr(sys.modules.get("sklearn.utils.parallel"), _SKLEARN_LOOKS, None)
    if counts_threads is not None:
        counts_threads()
    _read_libraries()
    gc.collect()
    gc.freeze()


def _read_libraries() -> None:
    """Read all files that are mapped into memory, so that every part of them is there.

    Else a program could leave a sign: a part that one block used is there sooner for the next.
    """
    lines = (line.split(maxsplit=5) for line in _MAPS.read_text().splitlines())
    files = {parts[5] for parts in lines if len(parts) == 6 and parts[5].startswith("/")}
    for file in files - _READ:
        with suppress(OSError), open(file, "rb", buffering=0) as library:  # noqa: PTH123 - unbuffered
            while library.read(_PART):
                pass
    _READ.update(files)


def _loads(name: str) -> bool:
    try:
        importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - a module may do anything when it is loaded
        return False
    return True


def _shares_memory() -> bool:
    """Whether some memory is shared with children: one could leave a sign there for the next."""
    facts = (line.split() for line in _MAPPED.read_text().splitlines())
    return any(fact[0] == "VmFlags:" and "sh" in fact for fact in facts)


def _be_a_child(task: int, answer: int) -> Never:
    """Wait for a task, run it and end, whatever happens."""
    try:
        lockdown.end_with_parent()
        with open(task, "rb") as file:
            order = json.loads(_part(file))
            lockdown.limit(
                seconds=order["seconds"], memory=order["memory"], processor=order["processor"]
            )
            rows = unpacked(_part(file))  # they count for the memory: it has to be cleared away
        os.dup2(answer, lockdown.ANSWER)
        os.closerange(_HELD + 1, 1 << 16)
        os.write(lockdown.ANSWER, _answered(order, rows))
    finally:
        os._exit(0)


def _part(file: io.BufferedReader) -> bytes:
    (size,) = SIZE.unpack(file.read(SIZE.size))
    return file.read(size)


def _answered(order: dict[str, Any], rows: dict[str, Any]) -> bytes:
    """What the program says: doubles, as they lie in memory. On made-up rows, what went wrong."""
    _have_chances_of_its_own()
    if order["locked"]:
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, _NothingMore]
        lockdown.lock()
    try:
        scope: dict[str, Any] = {"__name__": "program"}
        exec(compile(order["text"], "<program>", "exec"), scope)  # noqa: S102 - what this is for
        numbers = np.asarray(scope[order["name"]](rows), np.float64).ravel()
        if numbers.size != order["outputs"]:
            raise ValueError(f"It returns {numbers.size} numbers instead of {order['outputs']}.")  # noqa: TRY301
        if order["rehearsal"] and not np.isfinite(numbers).all():
            raise ValueError(_NO_NUMBER)  # noqa: TRY301
    except BaseException as wrong:  # noqa: BLE001 - a program may do anything
        if not order["rehearsal"]:
            return b""
        name = wrong.name if isinstance(wrong, ImportError) else None
        words = f"{type(wrong).__name__}: {wrong}"[:_WORDS_MAX]
        return b"E" + json.dumps({"words": words, "module": name}).encode()
    return b"O" if order["rehearsal"] else numbers.tobytes()


def _have_chances_of_its_own() -> None:
    """Seed the generators that programs share with their template: else all blocks draw alike."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()


class _NothingMore:
    """The end of the list of places to find modules: files cannot be read any more."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> Never:
        """Say which module was not loaded beforehand."""
        raise ModuleNotFoundError(f"The module {name!r} was not loaded beforehand.", name=name)


if __name__ == "__main__":
    serve()
