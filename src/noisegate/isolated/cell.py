"""A place to run one program on one block after another, each for the same time.

    task = Task(text="def f(rows): …", name="f", outputs=1, seconds=1.0, memory=1 << 28)
    with Cell(task) as cell:
        raw = cell.answers(blocks)      # bytes of doubles, or nothing, one for each block

Claim: the k-th answer is made of the k-th block, the task and chance alone; how many blocks there
    are and the task decide when each begins and ends, and when all is over. Why: every block has a
    process of its own, made of one that has seen no rows, and locked in before it looks at the
    program (`lockdown.py`); its answer is taken when its time is over, never before, and it is
    ended then. The next begins at a time that was fixed beforehand. By then all is cleared away,
    unless the program took pains to make that slow; nobody waits for it, or the clock would tell.
    Should the machine itself stand still, all that follows is put off by a whole turn.
    What is not claimed: that a program cannot tell by the clock when all began, and so how long it
    took to read the rows of all blocks.
"""

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from select import select
from tempfile import TemporaryFile
from threading import Lock
from time import monotonic, sleep
from typing import Final, Self, final

from noisegate.errors import SpecError, Unsupported
from noisegate.isolated.channel import SIZE, receive, send
from noisegate.isolated.lockdown import can_lock

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
    """A program and what it may use: ``memory`` bytes, ``seconds`` of which all are always used."""

    text: str
    name: str
    outputs: int
    seconds: float
    memory: int
    imports: tuple[str, ...] = ()
    locked: bool = True

    @property
    def pause(self) -> float:
        """The time between two blocks, for clearing away."""
        return _PAUSE + self.memory * _PAUSE_PER_BYTE

    @property
    def turn(self) -> float:
        """The time from the beginning of one block to that of the next."""
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
                fix="Use Linux on x86_64 or aarch64; or trusted=True, if it is your own program.",
            )
        if task.locked and task.memory > (most := _memory_of_machine() // 2):  # it, and the last
            raise SpecError(
                "A program could use up the memory of the machine, for the next to feel.",
                fix=f"Use memory up to {most >> 20:,} megabytes.",
            )
        self._task, self._imports = task, task.imports

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def answers(self, blocks: Sequence[bytes]) -> list[bytes]:
        """What the program says about each block: raw bytes, none where it said nothing in time.

        Locked-in programs run one at a time, those of other questions too.
        """
        with _ALONE if self._task.locked else nullcontext():
            return self._in_turn(blocks)

    def _in_turn(self, blocks: Sequence[bytes]) -> list[bytes]:
        task, begin, found = self._task, monotonic(), []
        for place, block in enumerate(blocks):
            while monotonic() > begin + place * task.turn + task.pause / 2:
                begin += task.turn
            _wait_until(begin + place * task.turn)
            end = monotonic() + task.seconds
            said = self._answer(task.packed(block), task.outputs * 8, end=end)
            found.append(said if len(said) == task.outputs * 8 else b"")
        _wait_until(begin + len(blocks) * task.turn)
        return found

    def rehearse(self, block: bytes) -> tuple[str, ...]:
        """Run the program on made-up rows, and refuse it if it fails there.

        Returns the modules that it turned out to need beyond those that were named. What goes wrong
        is told, so it runs alone too: else it could tell how busy a program with rows is.
        """
        with _ALONE if self._task.locked else nullcontext():
            return self._rehearsed(block)

    def _rehearsed(self, block: bytes) -> tuple[str, ...]:
        for _ in range(_LOADED_MAX):
            said = self._answer(self._task.packed(block, rehearsal=True), _WORDS, end=None)
            if said == b"O":
                return self._imports[len(self._task.imports) :]
            words, module = _went_wrong(said)
            if module is None or module in self._imports:
                break
            self._imports += (module,)
            self._load(module)
        raise SpecError(
            f"On made-up rows the program fails: {words}",
            fix="It sees a dictionary of NumPy arrays, and no file, network, process or thread. "
            "Mend it, give it more seconds or memory, or rehearse=False.",
        )

    def _answer(self, task: bytes, most: int, *, end: float | None) -> bytes:
        """One child from start to end; without an ``end``, until it has answered or its time is up.

        If the clean process is gone, which no program can cause, a new one takes its place.
        """
        given, (answer, sent) = _held(task), os.pipe()
        os.set_blocking(answer, False)
        try:
            socket.send_fds(self._channel, [b"f"], [given, sent])
            self._echoed(b"f")
            os.close(sent)
            sent = -1
            if end is None:
                select([answer], [], [], self._task.seconds)
            else:
                _wait_until(end)
            self._channel.sendall(b"k")
            said = _read(answer, most + 1)
            self._echoed(b"k")
        except OSError:
            _wait_until(end or monotonic())
            self._restart()
            return b""
        finally:
            for descriptor in (given, answer, sent):
                if descriptor >= 0:
                    os.close(descriptor)
        return said

    def _echoed(self, order: bytes) -> None:
        if self._channel.recv(1) != order:
            raise BrokenPipeError

    def _start(self) -> None:
        self._channel, other = socket.socketpair()
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-I", "-m", "noisegate.isolated.zygote", str(other.fileno())],
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
                fix="Programs use what is installed here, and nothing beside their own file.",
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


def _memory_of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
        return "it does not end in time, or needs too much memory.", None
