"""A place to run one program on one block after another, each for the same time.

    task = Task(text="def f(rows): …", name="f", outputs=1, seconds=1.0, memory=1 << 28)
    with Cell(task) as cell:
        raw = cell.answers(blocks)      # bytes of doubles, or nothing, one for each block

Claim: the k-th answer is made of the k-th block, the task and chance alone, and of how busy those
    of its turn (`workers`) keep the machine; how many blocks there are and the task decide when
    each begins and ends, and when all is over. Why: every block has a process of its own, made of
    one that has seen no rows, and locked in before it looks at the program (`lockdown.py`); its
    answer is taken when its time is over, never before, and it is ended then. The next turn begins
    at a time that was fixed beforehand. By then all is cleared away, unless a program took pains to
    make that slow; nobody waits for it, or whoever holds a watch could tell. Should the machine
    itself stand still, all that follows is put off by a whole turn.
    The first begins a 16th, an 8th, a 4th … of a second after blocks were asked for. So how long it
    took to read all of them shows in which of these moments it is, and in nothing else; programs
    have no clock to tell these apart.
"""

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from select import select
from tempfile import TemporaryFile
from threading import Lock
from time import monotonic, sleep
from typing import Final, Self, final

from noisegate.errors import SpecError, Unsupported
from noisegate.isolated.channel import LOCKED, SIZE, receive, send
from noisegate.isolated.lockdown import can_lock

_FIRST: Final = 1 / 16  # when blocks begin, if they are there by then
_PAUSE: Final = 0.05  # between blocks, and more for the memory that has to be cleared away
_PAUSE_PER_BYTE: Final = 0.25 / (1 << 30)
_ALONE: Final = Lock()
_LOADED_MAX: Final = 64  # modules that a rehearsal may find missing
_WORDS: Final = 4096
_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program and what it may use: ``memory`` bytes, ``seconds`` of which all are always used.

    In each turn, ``workers`` blocks run at once.
    """

    text: str
    name: str
    outputs: int
    seconds: float
    memory: int
    imports: tuple[str, ...] = ()
    locked: bool = True
    workers: int = 1

    @property
    def pause(self) -> float:
        """The time between two turns, for clearing away."""
        return _PAUSE + self.memory * _PAUSE_PER_BYTE

    @property
    def turn(self) -> float:
        """The time from the beginning of one turn to that of the next."""
        return self.seconds + self.pause

    def packed(self, block: bytes, *, rehearsal: bool = False) -> bytes:
        """All that a child is given: what to do, and the rows."""
        order = {
            "text": self.text, "name": self.name, "outputs": self.outputs, "memory": self.memory,
            "seconds": self.seconds, "locked": self.locked, "rehearsal": rehearsal,
        }  # fmt: skip
        text = json.dumps(order).encode()
        return SIZE.pack(len(text)) + text + block


@final
class Cell:
    """A clean process, and the children that it starts. Use it as a context."""

    def __init__(self, task: Task) -> None:
        if not hasattr(os, "fork"):
            raise Unsupported("This machine starts no processes for blocks.", fix="Use Linux.")
        if task.locked and not can_lock():
            raise Unsupported(
                "This machine cannot lock a program in.",
                fix="Use Linux on x86_64, or 6.12 and later on aarch64; "
                "or trusted=True, if it is your own program.",
            )
        if task.locked:
            _require_room(task)
        self._task, self._imports = task, task.imports

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def answers(self, blocks: Iterable[bytes]) -> list[bytes]:
        """What the program says about each block: raw bytes, none where it said nothing in time.

        Blocks are read whole before any runs. Locked-in programs run alone, whoever asked.
        """
        asked = monotonic()
        listed = list(blocks)
        begin = _next_moment(asked)
        with _ALONE if self._task.locked else nullcontext():
            return self._in_turns(listed, begin)

    def _in_turns(self, blocks: Sequence[bytes], begin: float) -> list[bytes]:
        task, found = self._task, list[bytes]()
        for first in range(0, len(blocks), task.workers):
            while monotonic() > begin + task.pause / 2:
                begin += task.turn
            _wait_until(begin)
            end = monotonic() + task.seconds
            tasks = [task.packed(block) for block in blocks[first : first + task.workers]]
            found += self._said(tasks, task.outputs * 8, end=end)
            begin += task.turn
        _wait_until(begin)
        return [said if len(said) == task.outputs * 8 else b"" for said in found]

    def rehearse(self, block: bytes) -> tuple[str, ...]:
        """Run the program on made-up rows, and refuse it if it fails there.

        Returns the modules that it turned out to need beyond those that were named. What goes wrong
        is told, so it runs alone too: else it could tell how busy a program with rows is.
        """
        with _ALONE if self._task.locked else nullcontext():
            return self._rehearsed(block)

    def _rehearsed(self, block: bytes) -> tuple[str, ...]:
        for _ in range(_LOADED_MAX):
            (said,) = self._said([self._task.packed(block, rehearsal=True)], _WORDS, end=None)
            if said == b"O":
                return self._imports[len(self._task.imports) :]
            words, module = _went_wrong(said)
            if module is None or module in self._imports:
                break
            self._imports += (module,)
            self._load(module)
        raise SpecError(
            f"On made-up rows the program fails: {words}",
            fix="It sees a dictionary of NumPy arrays, and no file, network, thread or clock. "
            "Mend it, give it more seconds or memory, or rehearse=False.",
        )

    def _said(self, tasks: Sequence[bytes], most: int, *, end: float | None) -> list[bytes]:
        """A child for each task, from start to end.

        Without an ``end``, until the first has answered or its time is up. If the clean process is
        gone, which no program can cause, a new one takes its place.
        """
        with ExitStack() as open_until_then:
            try:
                answers = [self._child(task, open_until_then) for task in tasks]
                if end is None:
                    select(answers, [], [], self._task.seconds)
                else:
                    _wait_until(end)
                self._channel.sendall(b"k")
                said = [_read(answer, most + 1) for answer in answers]
                self._echoed(b"k")
            except OSError:
                _wait_until(end or monotonic())
                self._restart()
                return [b""] * len(tasks)
            return said

    def _child(self, task: bytes, kept: ExitStack) -> int:
        """Start one, and say where it will answer."""
        given, (answer, sent) = _held(task), os.pipe()
        kept.callback(os.close, answer)
        os.set_blocking(answer, False)
        try:
            socket.send_fds(self._channel, [b"f"], [given, sent])
            self._echoed(b"f")
        finally:
            os.close(given)
            os.close(sent)
        return answer

    def _echoed(self, order: bytes) -> None:
        if self._channel.recv(1) != order:
            raise BrokenPipeError

    def _start(self) -> None:
        self._channel, other = socket.socketpair()
        locked = [LOCKED] if self._task.locked else []
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-I", "-m", "noisegate.isolated.zygote", str(other.fileno()), *locked],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[other.fileno()], env=_ONE_THREAD, cwd="/", start_new_session=True,
        )  # fmt: skip
        other.close()
        self._load(*self._imports)

    def _load(self, *modules: str) -> None:
        """Let the clean process load modules; children that are made later have them."""
        try:
            self._channel.sendall(b"i")
            send(self._channel, modules)
            missing = receive(self._channel)
            self._echoed(b"i")
        except OSError:
            self._stop()
            raise Unsupported(
                "The process for programs does not start.",
                fix="Install noisegate into the environment of this Python.",
            ) from None
        if missing:
            self._stop()
            raise SpecError(
                f"The module {missing[0]!r} cannot be loaded.",
                fix="Programs use what is installed here and shares no memory, not files beside.",
            )

    def _stop(self) -> None:
        self._channel.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _restart(self) -> None:
        self._stop()
        self._start()


def _require_room(task: Task) -> None:
    """Refuse programs for which memory, with that of those before, might not suffice."""
    most = _memory_of_machine() // (2 * task.workers)
    if task.memory > most:
        raise SpecError(
            "Programs could use up the memory of the machine, for the next to feel.",
            fix=f"Use memory up to {most >> 20:,} megabytes, or fewer workers.",
        )


def _memory_of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _next_moment(asked: float) -> float:
    """When blocks begin that were asked for then: a moment that hardly says when they were read."""
    after = _FIRST
    while asked + after < monotonic():
        after *= 2
    return asked + after


def _wait_until(end: float) -> None:
    while (left := end - monotonic()) > 0:
        sleep(left)


def _held(task: bytes) -> int:
    """A descriptor of a file in memory alone, to be read from its beginning."""
    if sys.platform == "linux":
        held = os.memfd_create("task")
    else:
        with TemporaryFile() as file:
            held = os.dup(file.fileno())
    with io.FileIO(held, "r+", closefd=False) as file:
        left = memoryview(task)
        while left:
            left = left[file.write(left) :]
        file.seek(0)
    return held


def _read(answer: int, most: int) -> bytes:
    try:
        return os.read(answer, most)
    except BlockingIOError:
        return b""


def _went_wrong(said: bytes) -> tuple[str, str | None]:
    """What a rehearsal says of itself: words for people, and a module that it needs."""
    try:
        found = json.loads(said.removeprefix(b"E"))
        return str(found["words"]), found["module"]
    except (ValueError, TypeError, KeyError):
        return "it does not end in time, needs too much memory, or counts the time.", None
