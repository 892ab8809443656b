"""A place to run one program on one block after another, each for the same time.

    task = Task(text="def f(rows): …", name="f", outputs=1, seconds=1.0, memory=1 << 28)
    with Cell(task) as cell:
        raw = cell.answers(blocks)      # bytes of doubles, or nothing, one for each block

Claim: the k-th answer is made of the k-th block, the task and chance alone, and of how busy those
    of its turn (`workers`) keep the machine; how many blocks there are and the task decide when
    each begins and ends, and when all is over. Why: every block has a process of its own, copied
    from one that no program can reach (`template.py`), and locked in before it looks at the program
    (`lockdown.py`); it is given its rows in its own time, its answer is taken when that is over,
    never before, and it is ended then, from here. The next turn begins at a time that was fixed
    beforehand, on another processor where there is one. By then all is cleared away: the pause is
    three times what the slowest program takes that was found; nobody waits longer, or whoever holds
    a watch could tell. Should the machine itself stand still, all that follows is put off by a
    whole turn.
    The first begins a 16th, an 8th, a 4th … of a second after blocks were asked for. So how long it
    took to read all of them shows in which of these moments it is, and in nothing else; programs
    have no clock to tell these apart. Programs of other questions, of whichever process, wait until
    this one has ended and its memory is free (`alone`).

Programs that run at once can feel how busy each other keep the machine, and the noise of a question
covers those of its own turn alone. So there is one lock for all processes: an abstract name of a
Unix socket, which one socket at a time can have. It is free again when the last process that holds
the socket is gone; the kernel closes descriptors of a process after it has freed its memory.

What has network namespaces of its own (a container) has a name of its own: run programs of one
machine in one of them.
"""

import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from select import POLLIN, POLLOUT, poll
from time import monotonic, sleep
from typing import Final, Self, final

from noisegate.errors import SourceError, SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.isolated.channel import LOCKED, SIZE, receive, send
from noisegate.isolated.lockdown import can_lock, can_run, end_first
from noisegate.isolated.modules import require_allowed

_NAME: Final = "\0noisegate: programs are running"
_AGAIN: Final = 0.02


def alone() -> socket.socket:
    """Wait until no program runs, and hold that until the socket and all its copies are closed."""
    held = socket.socket(socket.AF_UNIX)
    while True:
        try:
            held.bind(_NAME)
        except OSError as taken:
            if taken.errno != errno.EADDRINUSE:
                held.close()
                raise
        else:
            return held
        sleep(_AGAIN)


WORKERS_MAX: Final = 100  # one message carries all descriptors of a turn
_FIRST: Final = 1 / 16  # when blocks begin, if they are there by then
# Between turns, and more for the memory that has to be cleared away: three times what was measured
# on two cores of a Neoverse N1. The slowest to go are single pages, so far apart that each has two
# pages of tables to itself: 32 ms (64 MB), 75 ms (128 MB), 174 ms (240 MB, nearly as many as the
# kernel allows by default); memory in one piece 85 ms (1 GB); a process that did nothing 1 ms.
_PAUSE: Final = 0.1
_PAUSE_PER_BYTE: Final = 0.5 / (1 << 30)
_PAUSE_PER_BYTE_APART: Final = 1.5 / (1 << 30)
_TABLES: Final = 3  # pages of tables for a page that lies apart, on machines with five levels
_PIECES: Final = Path("/proc/sys/vm/max_map_count")
_LOADED_MAX: Final = 8  # modules that a rehearsal may find missing: it holds the machine's lock
_LOADING: Final = 60.0  # seconds for all modules
_REHEARSAL: Final = 10.0  # seconds, however many a block may take
_WORDS: Final = 4096
_MEMORY_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# One thread, and no page in which the kernel notes the processor: always the same surroundings.
_SURROUNDINGS: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.pthread.rseq=0",
}


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
        """The time between two turns, for clearing away: one after the other on each processor."""
        one = self.memory * _PAUSE_PER_BYTE + _apart(self.memory) * _PAUSE_PER_BYTE_APART
        return _PAUSE + one * -(-self.workers // len(_processors()))

    @property
    def turn(self) -> float:
        """The time from the beginning of one turn to that of the next."""
        return self.seconds + self.pause

    def order(self, *, processor: int, rehearsal: bool = False) -> bytes:
        """What a child is told before it is given rows."""
        order = {
            "text": self.text, "name": self.name, "outputs": self.outputs, "memory": self.memory,
            "seconds": self.seconds, "locked": self.locked, "rehearsal": rehearsal,
            "processor": processor,
        }  # fmt: skip
        text = json.dumps(order).encode()
        return SIZE.pack(len(text)) + text


@final
class Cell:
    """A clean process, and what is copied from it. Use it as a context."""

    def __init__(self, task: Task) -> None:
        if not can_run():
            raise Unsupported(
                "Programs cannot run on this machine.", fix="Use Linux on x86_64 or aarch64."
            )
        if task.locked and not can_lock():
            raise Unsupported(
                "This machine cannot isolate a program.",
                fix="Use Linux on x86_64, or 6.12 and later on aarch64; "
                "or trusted=True, if it is your own program.",
                about="isolation",
            )
        if task.workers > WORKERS_MAX:
            raise SpecError("There are too many workers.", fix=f"Use up to {WORKERS_MAX}.")
        if task.locked:
            _require_room(task)
        self._task, self._imports = task, task.imports
        self._processors = _processors()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def answers(self, blocks: Iterable[bytes]) -> list[bytes]:
        """What the program says about each block: raw bytes, none where it said nothing in time.

        Blocks are read whole before any runs.
        """
        asked = monotonic()
        listed = list(blocks)
        begin = _next_moment(asked)
        task, found = self._task, list[bytes]()
        for first in range(0, len(listed), task.workers):
            with ExitStack() as turn:
                here = listed[first : first + task.workers]
                children = self._children(len(here), turn)
                while monotonic() > begin + task.pause / 2:
                    begin += task.turn
                _wait_until(begin)
                end = monotonic() + task.seconds
                orders = [
                    task.order(processor=self._processor(first + n)) for n in range(len(here))
                ]
                children.start(zip(orders, here, strict=True), end)
                _wait_until(end)
                found += children.said(task.outputs * 8)
            begin += task.turn
        _wait_until(begin)
        return [said if len(said) == task.outputs * 8 else b"" for said in found]

    def rehearse(self, block: bytes, *, packages: Collection[str] = ()) -> tuple[str, ...]:
        """Run the program on made-up rows, and refuse it if it fails there.

        Returns the modules that it turned out to need beyond those that were named, and may import
        (`modules.py`). A program that works for longer than some seconds passes: what it would say
        is not known.
        """
        for _ in range(_LOADED_MAX):
            said = self._tried(block)
            if said in {b"O", None}:
                return self._imports[len(self._task.imports) :]
            words, module = _went_wrong(said or b"")
            if module is None or module in self._imports:
                break
            require_allowed([module], packages)
            self._stop()
            self._imports += (module,)
            self._start()
        raise SpecError(
            f"The program fails on made-up rows: {words}",
            fix="It sees a dictionary of NumPy arrays, and no file, network, thread or clock. "
            "Correct it, give it more seconds or memory, or set rehearse=False.",
            about="rehearsal",
        )

    def _tried(self, block: bytes) -> bytes | None:
        """What the program says of made-up rows; None where it would have had more time."""
        processor, seconds = self._processor(0), self._task.seconds
        with ExitStack() as turn:
            end = monotonic() + min(seconds, _REHEARSAL)
            children = self._children(1, turn)
            children.start([(self._task.order(processor=processor, rehearsal=True), block)], end)
            answered = _ready(children.answers, POLLIN, end)
            (said,) = children.said(_WORDS)
        return said if answered or seconds <= _REHEARSAL else None

    def _processor(self, place: int) -> int:
        """Each block has another than the one before, where there are several."""
        return self._processors[place % len(self._processors)]

    def _children(self, count: int, turn: ExitStack) -> "_Children":
        """So many processes, waiting for their tasks."""
        pipe = _Pipes(turn)
        taken, tasks = zip(*(pipe.new() for _ in range(count)), strict=True)
        answers, sent = zip(*(pipe.new() for _ in range(count)), strict=True)
        places = [each for pair in zip(taken, sent, strict=True) for each in pair]
        try:
            socket.send_fds(self._channel, [b"t"], places)
            order, processes, _, _ = socket.recv_fds(self._channel, 1, count)
        except OSError:
            order, processes = b"", []
        for process in processes:
            end_first(_number_of(pipe.keep(process)))
        if not order or len(processes) != count:
            raise SourceError(
                "The processes for programs ended unexpectedly; no program can cause this.",
                fix="Check whether the machine is short of memory, then ask the same question "
                "again.",
                about="ended",
            )
        pipe.close(*places)
        return _Children(tasks, answers, tuple(processes))

    def _start(self) -> None:
        self._channel, orders = socket.socketpair()
        self._leash, other = socket.socketpair()
        held = alone() if self._task.locked else None
        locked = [LOCKED] if self._task.locked else []
        with orders, other:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-I", "-m", "noisegate.isolated.template", *locked],
                stdin=orders.fileno(), stdout=other.fileno(),
                stderr=subprocess.DEVNULL if held is None else held.fileno(),
                env=_SURROUNDINGS, cwd="/", start_new_session=True,
            )  # fmt: skip
        if held is not None:
            held.close()  # the new process has it
        try:
            self._load()
        except BaseException:  # also when it is interrupted: else all others wait for the lock
            self._stop()
            raise

    def _load(self) -> None:
        """Let the clean process load modules, in time."""
        self._channel.settimeout(_LOADING)
        try:
            send(self._channel, self._imports)
            missing = receive(self._channel)
            self._channel.settimeout(None)
        except TimeoutError:
            raise SpecError(
                f"The modules did not load within {_LOADING:.0f} seconds.",
                fix="Use fewer of them.",
                about="slow-modules",
            ) from None
        except OSError:
            raise Unsupported(
                "The process for programs does not start.",
                fix="Install noisegate into the environment of this Python.",
            ) from None
        if missing:
            raise SpecError(
                f"The module {missing[0]!r} cannot be loaded.",
                fix="Import only what is installed beside noisegate, and nothing that shares "
                "memory, starts threads or opens sockets on import.",
                about="module",
            )

    def _stop(self) -> None:
        """End all: the root sees the end of its leash, and whoever is left ends with it."""
        self._channel.close()
        self._leash.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@final
class _Pipes:
    """Descriptors that are open until the end of a turn, or closed before."""

    def __init__(self, turn: ExitStack) -> None:
        self._open = set[int]()
        turn.callback(lambda: self.close(*self._open))

    def keep(self, descriptor: int) -> int:
        self._open.add(descriptor)
        return descriptor

    def new(self) -> tuple[int, int]:
        read, write = os.pipe()
        return self.keep(read), self.keep(write)

    def close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            self._open.remove(descriptor)
            os.close(descriptor)


@final
@dataclass(frozen=True, slots=True)
class _Children:
    """The processes of one turn: they wait for their tasks, and have to be ended."""

    tasks: tuple[int, ...]
    answers: tuple[int, ...]
    processes: tuple[int, ...]

    def start(self, given: Iterable[tuple[bytes, bytes]], end: float) -> None:
        """Give each its order and its rows; what is not taken by the end is not given.

        All that has to do with how large a block is happens in its own turn, and so moves no other.
        """
        left = {
            task: [memoryview(each) for each in (order, SIZE.pack(len(block)), block)]
            for task, (order, block) in zip(self.tasks, given, strict=True)
        }
        for task in left:
            os.set_blocking(task, False)
        while left and (ready := _ready(left, POLLOUT, end)):
            for task in ready:
                _give(task, left[task])
                if not left[task]:
                    del left[task]

    def said(self, most: int) -> list[bytes]:
        """End them all, and take what they have said by now."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        return [_read(answer, most + 1) for answer in self.answers]


def _require_room(task: Task) -> None:
    """Refuse programs for which memory, with that of those before, might not suffice.

    Tables of the kernel's for pages that lie far apart are not counted by the limit of a process.
    """
    room = _memory_of_machine() // (2 * task.workers)
    most = max(room // (1 + _TABLES), room - _TABLES * 2 * _apart(room))  # pieces of two pages
    if task.memory > most:
        raise SpecError(
            "The programs could use up the memory of the machine, which the next program would "
            "notice.",
            fix=f"Use memory up to {most >> 20:,} megabytes, or fewer workers.",
            about="memory",
        )


def _apart(memory: int) -> int:
    """How much of so much memory a program can spread, page by page."""
    pieces = int(_PIECES.read_text()) if _PIECES.exists() else 0
    return min(memory, pieces * mmap.PAGESIZE)


def _processors() -> list[int]:
    """Those that programs run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


def _memory_of_machine() -> int:
    """What there is, or what a container may have of it."""
    stated = (file.read_text().strip() for file in _MEMORY_LIMITS if file.exists())
    limits = (int(text) for text in stated if text.isdecimal())
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *limits])


def _next_moment(asked: float) -> float:
    """When blocks begin that were asked for then: a moment that hardly says when they were read."""
    after = _FIRST
    while asked + after < monotonic():
        after *= 2
    return asked + after


def _wait_until(end: float) -> None:
    while (left := end - monotonic()) > 0:
        sleep(left)


def _number_of(process: int) -> str:
    """The number of a process that a descriptor stands for, to be found by."""
    lines = Path(f"/proc/self/fdinfo/{process}").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Pid:"))


def _ready(descriptors: Iterable[int], event: int, end: float) -> list[int]:
    """Those that can be read or written, as soon as there are some; none when the time is over."""
    waits = poll()
    for each in descriptors:
        waits.register(each, event)
    return [each for each, _ in waits.poll(max(0.0, end - monotonic()) * 1000)]


def _give(task: int, parts: list[memoryview]) -> None:
    """Write what a pipe takes now; all is given where nobody is left to take it."""
    try:
        parts[0] = parts[0][os.write(task, parts[0]) :]
    except BrokenPipeError:
        parts.clear()
    while parts and not parts[0]:
        del parts[0]


def _read(answer: int, most: int) -> bytes:
    os.set_blocking(answer, False)
    try:
        return os.read(answer, most)
    except BlockingIOError:
        return b""


def _went_wrong(said: bytes) -> tuple[str, str | None]:
    """What a rehearsal says of itself: words for people, and a module that it needs."""
    try:
        found = json.loads(said.removeprefix(b"E"))
        module = found["module"]  # whatever the program wrote itself
        return str(found["words"]), module if isinstance(module, str) else None
    except (ValueError, TypeError, KeyError):
        return "it does not finish in time, needs too much memory, or measures time.", None
