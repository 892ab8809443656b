"""The clean process: it loads libraries once, then starts a fresh child for every block.

It is started anew for each question, by ``python -I``, with an empty environment, and holds no
rows, no program and no secret. What it is told comes over one socket:

    b"i" and the names of modules: loads them, and says which it cannot;
    b"f" with two descriptors, what to run and where to answer: starts a child;
    b"k": ends all children, and waits for nothing: a program can make itself slow to clear away.

The child reads what to run, locks itself in, and only then looks at the program. So nothing that a
program does reaches the process that the next child is made of.
"""

import gc
import importlib
import io
import json
import os
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

from noisegate.isolated.channel import LOCKED, SIZE, receive, send
from noisegate.isolated.lockdown import ANSWER, limit, lock
from noisegate.isolated.rows import unpacked

_SKLEARN_LOOKS: Final = "_get_threadpool_controller"  # reads which libraries are mapped, once
_NO_NUMBER: Final = "It gives NaN, as where values are missing: leave out NULL, or mind it."
_MAPS, _MAPPED = Path("/proc/self/maps"), Path("/proc/self/smaps")
_PART: Final = 1 << 20
_READ: Final[set[str]] = set()  # files that have been read whole
_WORDS_MAX: Final = 2000  # of what went wrong, on made-up rows


def serve() -> None:
    """Load what is asked for, start and end children, until nobody asks any more."""
    channel, locked = socket.socket(fileno=int(sys.argv[1])), LOCKED in sys.argv
    children: list[int] = []
    if locked:
        _stop_clocks()
    while True:
        order, given, _, _ = socket.recv_fds(channel, 1, 2)
        if order == b"i":
            found = [(name, _loads(name)) for name in receive(channel)]
            shared = locked and _shares_memory()
            send(channel, [name for name, known in found if shared or not known])
            _settle()
        elif order == b"f" and len(given) == 2:
            children.append(os.fork())
            if children[-1] == 0:
                _be_a_child(channel, *given)
            for descriptor in given:
                os.close(descriptor)
        elif order == b"k":
            while children:
                os.kill(children.pop(), signal.SIGKILL)
            _forget_the_gone()
        else:
            channel.close()
            return
        channel.sendall(order)


def _forget_the_gone() -> None:
    """Let the kernel drop the last children, and those before that were slow; waits for none.

    Which of them are left is noted down nowhere: the next child could read it.
    """
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


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
    if not _MAPS.exists():
        return
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
    if not _MAPPED.exists():
        return False
    facts = (line.split() for line in _MAPPED.read_text().splitlines())
    return any(fact[0] == "VmFlags:" and "sh" in fact for fact in facts)


def _be_a_child(channel: socket.socket, task: int, answer: int) -> Never:
    """Run a task and end, whatever happens."""
    try:
        signal.set_wakeup_fd(-1)
        with io.FileIO(task) as file:
            (size,) = SIZE.unpack(file.read(SIZE.size))
            order = json.loads(file.read(size))
            rows = unpacked(file.readall())
        channel.close()
        os.dup2(answer, ANSWER)
        os.closerange(ANSWER + 1, max(answer, 64) + 1)
        os.write(ANSWER, _answered(order, rows))
    finally:
        os._exit(0)


def _answered(order: dict[str, Any], rows: dict[str, Any]) -> bytes:
    """What the program says: doubles, as they lie in memory. On made-up rows, what went wrong."""
    limit(seconds=order["seconds"], memory=order["memory"])
    if order["locked"]:
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, _NothingMore]
        lock()
    try:
        scope: dict[str, Any] = {"__name__": "program"}
        exec(compile(order["text"], "<program>", "exec"), scope)  # noqa: S102 - what this is for
        numbers = np.asarray(scope[order["name"]](rows), np.float64).ravel()
        if numbers.size != order["outputs"]:
            raise ValueError(f"It gives {numbers.size} numbers instead of {order['outputs']}.")  # noqa: TRY301
        if order["rehearsal"] and not np.isfinite(numbers).all():
            raise ValueError(_NO_NUMBER)  # noqa: TRY301
    except BaseException as wrong:  # noqa: BLE001 - a program may do anything
        if not order["rehearsal"]:
            return b""
        name = wrong.name if isinstance(wrong, ImportError) else None
        words = f"{type(wrong).__name__}: {wrong}"[:_WORDS_MAX]
        return b"E" + json.dumps({"words": words, "module": name}).encode()
    return b"O" if order["rehearsal"] else numbers.tobytes()


class _NothingMore:
    """The end of the list of places to find modules: files cannot be read any more."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> Never:
        """Say which module was not loaded beforehand."""
        raise ModuleNotFoundError(f"The module {name!r} was not loaded beforehand.", name=name)


if __name__ == "__main__":
    serve()
