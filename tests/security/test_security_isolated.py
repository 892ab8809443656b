"""Programs that try to leak: what a locked-in process can do, and what comes back from it."""

import os
import platform
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from noisegate.errors import SourceError, SpecError
from noisegate.isolated import cell as cells
from noisegate.isolated import lockdown, template
from noisegate.isolated.cell import Cell, Task, alone
from noisegate.isolated.channel import packed
from noisegate.isolated.lockdown import can_lock
from refusals import about

pytestmark = pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")

TARGET = 77  # the one whose row the programs look for
WITHOUT, WITH = [1, 2, 3], [1, 2, 3, TARGET]


def block(values):
    return packed({"id": np.array(values, np.int64)})


def task(body, **more):
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    terms = {"outputs": 1, "seconds": 0.2, "memory": 1 << 26, "name": "f"} | more
    return Task(text=f"def f(rows):\n{lines}", **terms)


def said(body, *blocks, **more):
    """What a program says about each block: numbers, or None."""
    with Cell(task(body, **more)) as cell:
        raw = cell.answers([block(values) for values in blocks])
    return [struct.unpack(f"{len(each) // 8}d", each) if each else None for each in raw]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_sees_its_block_and_nothing_else(workers):
    """However many run at once: and then they take as many turns less."""
    start = time.monotonic()
    found = said("return rows['id'].sum()", WITHOUT, WITH, [], workers=workers)
    assert found == [(6.0,), (6.0 + TARGET,), (0.0,)]
    assert time.monotonic() - start >= -(-3 // workers) * task("").turn


# Numbers of calls, where the C library has no name for them or looks first.
CALLS = {
    "x86_64": {"futex": 202, "add_key": 248, "clock_gettime": 228, "clock_nanosleep": 230},
    "aarch64": {"futex": 98, "add_key": 217, "clock_gettime": 113, "clock_nanosleep": 115},
}.get(platform.machine())


def by_number(name, given):
    return f"checked(libc.syscall({CALLS and CALLS[name]}, {given}))"


# What a program cannot do, each told by the program itself: 1 where it could, 2 where it was refused.
ATTEMPTS = {
    "read a file": "os.open('/etc/hostname', os.O_RDONLY)",
    "read itself": "os.open('/proc/self/maps', os.O_RDONLY)",
    "look into a folder": "os.listdir('/')",
    "ask whether a file is there": "os.stat('/')",
    "write a file": "os.open('leak', os.O_CREAT | os.O_WRONLY)",
    "make a folder": "os.mkdir('leak')",
    "keep a file in memory": "os.memfd_create('leak')",
    "read what is open": "os.read(0, 1)",
    "open a pipe": "os.pipe()",
    "copy a descriptor": "os.dup(3)",
    "map what is open": "checked(libc.mmap(None, 4096, 1, 2, 0, 0))",
    "share memory that has no name": "checked(libc.mmap(None, 4096, 3, 0x21, -1, 0))",
    "take a huge page": "checked(libc.mmap(None, 1 << 21, 3, 0x40022, -1, 0))",
    "hold memory in place": "checked(libc.mmap(None, 4096, 3, 0x2022, -1, 0))",
    "wait": "time.sleep(0.001)",
    "wait for a moment": by_number("clock_nanosleep", "1, 1, ctypes.create_string_buffer(16), 0"),
    "wait for a lock": by_number("futex", "ctypes.byref(ctypes.c_int(1)), 9, 1, 0, 0, -1"),
    "set an alarm": "checked(libc.setitimer(0, ctypes.create_string_buffer(32), None))",
    "open a socket": "socket.socket()",
    "open a socket of its own kind": "socket.socketpair()",
    "start a process": "os.fork()",
    "become another program": "os.execv('/bin/true', ['true'])",
    "start a thread": "_thread.start_new_thread(print, ())",
    "signal another process": "os.kill(1, 0)",
    "signal itself": "os.kill(os.getpid(), 0)",
    "trace a process": "checked(libc.ptrace(16, 1, 0, 0))",
    "read another's memory": "checked(libc.process_vm_readv(1, 0, 0, 0, 0, 0))",
    "share memory": "checked(libc.shmget(7, 4096, 0o1777))",
    "share a queue": "checked(libc.msgget(7, 0o1777))",
    "share a semaphore": "checked(libc.semget(7, 1, 0o1777))",
    "keep a key": by_number("add_key", "b'user', b'leak', b'x', 1, -3"),
    "take off the lock": "checked(libc.prctl(22, 0, 0, 0, 0))",
    "mount": "checked(libc.mount(b'/', b'/', b'none', 0, 0))",
    "use a ring": "checked(libc.syscall(425, 1, 0))",
    "see how busy the machine is": "os.getloadavg()",
    "see how much memory is free": "checked(libc.sysinfo(ctypes.create_string_buffer(200)))",
    "change its priority": "os.nice(1)",
    "choose its processor": "os.sched_setaffinity(0, {0})",
    "merge its memory with others'": "checked(libc.madvise(ctypes.c_void_p(1 << 12), 0, 12))",
    "write it elsewhere": "os.write(4, b'x')",
    "see how long another process worked": "time.clock_gettime(~1 << 3 | 2)",
    "see whether a process is there": "os.sched_getaffinity(1)",
    "try a lock that a process holds": by_number(
        "futex", "ctypes.byref(ctypes.c_int(1)), 8, 0, 0, 0, 0"
    ),
}
TRIAL = """
import _thread, ctypes, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result == -1 and ctypes.get_errno() == 1:
        raise PermissionError
    return result
try:
    {attempt}
except (OSError, _thread.error):
    return 2
return 1
"""


def test_what_a_program_cannot_do():
    """All attempts in one process: each result is a number of the answer."""
    tries = "\n".join(
        f"def try{place}():{TRIAL.format(attempt=attempt)}".replace("\n", "\n    ")
        for place, attempt in enumerate(ATTEMPTS.values())
    )
    every = ", ".join(f"try{place}()" for place in range(len(ATTEMPTS)))
    (numbers,) = said(
        f"{tries}\nreturn [{every}]",
        WITHOUT,
        outputs=len(ATTEMPTS),
        seconds=0.5,
        imports=("ctypes", "socket"),
    )
    done = dict(zip(ATTEMPTS, numbers, strict=True))
    assert {name for name, result in done.items() if result != 2} == set()


PASSED = {"x86_64": {335, 336}}  # Linux 6.14 and later let them past any filter, see THREATS.md


def test_no_other_call_reaches_the_kernel():
    """By number: all but those that are listed."""
    machine = platform.machine()
    listed = {*lockdown._CALLS[machine].values(), *lockdown._NUMBERS[machine].values()}
    call = "libc.syscall(number, -1, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno()"
    head = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    numbers = sorted({*range(1024)} - listed - PASSED.get(machine, set()))
    body = f"{head}return sum(not ({call} == 1) for number in {numbers})"
    assert said(body, WITHOUT, seconds=0.5, imports=("ctypes",)) == [(0.0,)]
    for number in PASSED.get(machine, ()):  # it fails there, or ends who calls it
        body = f"{head}number = {number}\nreturn ({call}) > 0"
        assert said(body, WITHOUT, imports=("ctypes",)) in ([(1.0,)], [None])


def test_the_same_attempts_succeed_without_the_lock():
    """The trials above would notice a broken lock."""
    attempt = "os.open('/etc/hostname', os.O_RDONLY)\n    socket.socket()\n    os.getloadavg()"
    body = TRIAL.format(attempt=attempt)
    assert said(body, WITHOUT, locked=False) == [(1.0,)]
    assert said(body, WITHOUT, imports=("ctypes", "socket")) == [(2.0,)]


CLOCKS = """
import ctypes, datetime, logging, time, timeit
libc, seen = ctypes.CDLL(None), (ctypes.c_int64 * 2)()
def told(call, *given):
    seen[:] = 0, 0
    call(*given)
    return any(seen)
record = logging.LogRecord("", 0, "", 0, "", None, None)
legacy = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(0xFFFFFFFFFF600400)  # where it is mapped
return [
    any(told(libc.clock_gettime, number, seen) for number in range(12)),
    any(told(libc.syscall, CLOCK_GETTIME, number, seen) for number in range(12)),
    told(libc.gettimeofday, seen, None),
    libc.time(None) > 0,
    rows["id"][0] > 1 and legacy(None) > 0,
    datetime.datetime.now() > datetime.datetime(2020, 1, 1),
    time.time() + time.monotonic_ns() + timeit.default_timer() + record.created > 0,
]
""".replace("CLOCK_GETTIME", str(CALLS and CALLS["clock_gettime"]))


def test_a_program_has_no_clock():
    """Each answer is whether a clock shows anything; without the lock all do."""
    mapped = "[vsyscall]" in Path("/proc/self/maps").read_text() and platform.machine() == "x86_64"
    asked = [2 if mapped else 1]
    modules = {"imports": ("ctypes", "datetime", "logging", "timeit"), "outputs": 7}
    assert said(CLOCKS, asked, **modules) == [(0.0,) * 7]
    assert said(CLOCKS, asked, locked=False, **modules) == [(*(1.0,) * 4, mapped, 1.0, 1.0)]


# Machine code that reads the counter, and that does not.
COUNTS, RESTS = {
    "x86_64": ("0f31c3", "31c0c3"),  # rdtsc; ret: xor eax, eax; ret
    "aarch64": ("40e03bd5c0035fd6", "00008052c0035fd6"),  # mrs x0, cntvct_el0; ret: mov w0, 0; ret
}.get(platform.machine(), ("", ""))
COUNTER = """
import ctypes, mmap
held = mmap.mmap(-1, 4096, 0x22, 7)
held.write(bytes.fromhex("CODE"))
return ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(ctypes.c_char.from_buffer(held)))()
"""


def test_the_counter_of_the_processor_ends_a_program_that_reads_it():
    modules, reads = {"imports": ("ctypes", "mmap")}, COUNTER.replace("CODE", COUNTS)
    assert said(reads, WITHOUT, **modules) == [None]
    ((counted,),) = said(reads, WITHOUT, locked=False, **modules)
    assert counted > 0
    assert said(COUNTER.replace("CODE", RESTS), WITHOUT, **modules) == [(0.0,)]


class Clock:
    """Time that passes when somebody waits or works."""

    def __init__(self):
        self.now = 100.0

    def sleep(self, seconds):
        self.now += seconds


class Children:
    """What takes so long to be ended, at a time that is noted."""

    def __init__(self, clock, seen, count, clearing):
        self.clock, self.seen, self.count, self.clearing = clock, seen, count, clearing

    def start(self, _given, _end):
        self.seen.append(self.clock.now)

    def said(self, _most):
        self.seen.append(self.clock.now)
        self.clock.now += self.clearing
        return [b""] * self.count


def schedule(monkeypatch, clearing, workers=1, reading=0.001):
    """When turns begin and end, and all is over, where clearing away takes so long after each."""
    clock, seen, takes = Clock(), [], iter(clearing)
    monkeypatch.setattr(cells, "monotonic", lambda: clock.now)
    monkeypatch.setattr(cells, "sleep", clock.sleep)
    monkeypatch.setattr(
        Cell, "_children", lambda _, count, __: Children(clock, seen, count, next(takes))
    )

    def read():
        clock.now += reading
        yield from [b""] * len(clearing) * workers

    Cell(task("return 1", workers=workers)).answers(read())
    return [*zip(seen[::2], seen[1::2], strict=True), clock.now]


def test_when_blocks_begin_and_end_does_not_depend_on_what_they_did(monkeypatch):
    quick, slow = (schedule(monkeypatch, [t, t, t]) for t in (0.001, 0.04))
    turn = task("return 1").turn
    assert quick == slow == schedule(monkeypatch, [0.001] * 3, workers=2)
    assert quick[-1] == pytest.approx(100 + 1 / 16 + 3 * turn)
    assert all(end - begin == pytest.approx(0.2) for begin, end in quick[:-1])
    stalled = schedule(
        monkeypatch, [0.001, 2 * (turn - 0.2), 0.001]
    )  # a machine that stands still for a while
    assert stalled[:2] == quick[:2]
    assert stalled[-1] == pytest.approx(quick[-1] + turn)


def begins(monkeypatch, reading):
    return schedule(monkeypatch, [0.001] * 2, reading=reading)[0][0] - 100


def test_when_blocks_begin_says_of_reading_only_its_power_of_two(monkeypatch):
    quick, slow = 0.51, 0.99  # one unit of long rows
    assert begins(monkeypatch, quick) == begins(monkeypatch, slow) == 1
    assert [begins(monkeypatch, 2.0**power - 0.01) for power in range(-6, 4)] == [
        *[1 / 16] * 3, *(2.0**power for power in range(-3, 4))
    ]  # fmt: skip
    monkeypatch.setattr(cells, "_next_moment", lambda _: cells.monotonic())  # a broken copy
    assert begins(monkeypatch, slow) - begins(monkeypatch, quick) == pytest.approx(0.48)


def test_programs_of_two_questions_do_not_run_at_once():
    """Each takes two turns; together they take four, one after the other."""
    ended = []

    def ask():
        with Cell(task("return 1")) as cell:
            cell.answers([block(WITHOUT)] * 2)
            ended.append(time.monotonic())

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = sorted(ended)
    assert second - first >= 2 * task("return 1").turn - 0.05


def test_a_rehearsal_does_not_run_beside_a_program_that_sees_rows():
    """Its words leave without noise, and could tell how slow it was."""
    done = []

    def rehearse():
        with Cell(task("return 1")) as cell:
            done.append(cell.rehearse(block(WITHOUT)))

    thread = threading.Thread(target=rehearse)
    with alone():  # as while another question is answered
        thread.start()
        thread.join(0.5)
        assert not done
    thread.join()
    assert done == [()]


LATE = f"while {TARGET} in rows['id']: pass\nreturn 1"


@pytest.mark.parametrize("blocks", [[WITHOUT, WITHOUT], [WITHOUT, WITH]])
def test_a_program_cannot_end_its_turn_early_or_late(blocks):
    with Cell(task(LATE)) as cell:
        start = time.monotonic()
        cell.answers([block(values) for values in blocks])
        spent = time.monotonic() - start
    assert 2 * task(LATE).turn <= spent < 2 * task(LATE).turn + 3


def test_a_program_that_is_late_gives_nothing_and_the_next_is_not_late():
    assert said(LATE, WITH, WITHOUT) == [None, (1.0,)]


def test_nothing_is_left_for_the_next_block():
    """Globals, modules, attributes of libraries: each block begins with the same process."""
    body = (
        "import numpy, builtins, sys\n"
        "seen = getattr(numpy, 'seen', 0) + getattr(builtins, 'seen', 0) + ('seen' in sys.modules)\n"
        "numpy.seen = builtins.seen = 1\nsys.modules['seen'] = numpy\n"
        "globals()['seen'] = 1\nreturn seen"
    )
    assert said(body, WITH, WITHOUT, WITHOUT) == [(0.0,)] * 3


WRONG = (
    "raise ValueError(str(rows))",
    "raise SystemExit(7)",
    "import os; os._exit(3)",
    "answer = rows['id'].repeat(2)",
    "answer = 'text'",
    "pass",
    "answer = len(bytearray(1 << 30))",
    "while True: pass",
    "run(rows)",
    "import sys; sys.setrecursionlimit(1 << 30); run(rows)",
    "import ctypes; ctypes.string_at(0)",
    "import os; os.write(3, b'12345678' * 2); answer = 1",
    "import os; os.write(3, b'x'); answer = 1",
    "import os; os.write(3, b'x' * 60000); answer = 1",
)


def test_whatever_goes_wrong_is_nothing_and_the_next_is_not_touched():
    """The block says which program is run: all that go wrong at once, then one that does not."""
    body = f"""
scope = {{"rows": rows, "run": f}}
exec((*{WRONG!r}, "answer = 5")[rows["id"][0]], scope)
return scope["answer"]
"""
    blocks = [*([wrong] for wrong in range(len(WRONG))), [len(WRONG)]]
    found = said(body, *blocks, imports=("ctypes",), workers=len(WRONG))
    assert found == [*[None] * len(WRONG), (5.0,)]


def test_an_answer_is_numbers_and_is_never_unpacked_as_anything_else():
    body = "class Trap:\n    def __reduce__(self): return print, ('leak',)\n    def __float__(self): return 4.5\nreturn Trap()"
    assert said(body, WITH) == [(4.5,)]


def test_what_a_program_prints_goes_nowhere(capfd):
    body = (
        f"import sys\nprint({TARGET})\nsys.stderr.write('{TARGET}')\nsys.stdout.flush()\nreturn 1"
    )
    assert said(body, WITH) == [(1.0,)]
    assert capfd.readouterr() == ("", "")


def test_nothing_outlives_the_cell():
    with Cell(task("while True: pass")) as cell:
        cell.answers([block(WITH)])
        process = cell._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_question_whose_processes_are_gone_is_refused():
    """No program can cause it; answers of some blocks alone would be another number."""
    with Cell(task("return 5")) as cell:
        cell.answers([block(WITH)])  # who waits for the second turn has long been asleep
        root = cell._process.pid
        made = Path(f"/proc/{root}/task/{root}/children").read_text().split()
        cell._process.kill()
        cell._process.wait()
        end = time.monotonic() + 10
        while any(Path("/proc", child).exists() for child in made) and time.monotonic() < end:
            time.sleep(0.01)  # it ends with the root, a moment later
        with pytest.raises(SourceError, check=about("ended")):
            cell.answers([block(WITH)] * 3)


def test_a_rehearsal_says_what_went_wrong_and_loads_what_is_missing():
    with Cell(task("import colorsys\nreturn colorsys.ONE_THIRD")) as cell:
        assert cell.rehearse(block(WITHOUT)) == ("colorsys",)
        assert cell.answers([block(WITHOUT)]) == [struct.pack("d", 1 / 3)]
    with Cell(task("return rows['age'].mean()")) as cell, pytest.raises(SpecError, match="'age'"):
        cell.rehearse(block(WITHOUT))


def test_what_a_rehearsal_writes_itself_is_words_and_names_or_nothing():
    forged = """
import json, os
os.write(3, b"E" + json.dumps({"words": [1], "module": {"math": 1}}).encode())
os._exit(0)
"""
    with Cell(task(forged)) as cell, pytest.raises(SpecError, check=about("rehearsal")):
        cell.rehearse(block(WITHOUT))


def test_scikit_learn_fits_models_locked_in():
    pytest.importorskip("sklearn")
    body = """
import numpy as np
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
x = rows["id"].reshape(-1, 1)
centres = KMeans(2, n_init=1).fit(x).cluster_centers_
slope = LogisticRegression().fit(x, x.ravel() > 5).coef_[0, 0]
return [*np.sort(centres.ravel()), slope > 0]
"""
    modules = ("sklearn.cluster", "sklearn.linear_model")
    found = said(body, [1, 3, 9, 11], outputs=3, seconds=1, memory=1 << 28, imports=modules)
    assert found == [(2.0, 10.0, 1.0)]


def test_a_module_that_is_not_installed_is_refused():
    with (
        pytest.raises(SpecError, match="no_such_module"),
        Cell(task("return 1", imports=("no_such_module",))),
    ):
        pass


def test_every_mapped_library_is_read_before_the_first_block():
    """So that no block can tell which parts of a library another one used."""
    template._read_libraries()
    mapped = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()
    }
    libraries = {name for name in mapped if ".so" in name}
    assert len(libraries) > 10
    assert libraries <= template._READ


GIVEN = """
import os, resource
held = {int(name) for name in os.listdir("/proc/self/fd")}
here = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GLIBC_TUNABLES", "LC_CTYPE"}
files = [os.readlink(f"/proc/self/fd/{place}") for place in range(4)]
return [
    len(held - set(range(5))) - 1,  # but the lock that is held, and the folder that is listed
    sum(file == "/dev/null" for file in files),
    sum(file.startswith("pipe:") for file in files),
    len(os.environ.keys() - here),
    max(resource.getrlimit(resource.RLIMIT_CORE)),
    max(resource.getrlimit(resource.RLIMIT_FSIZE)),
    os.getcwd() != "/",
]
"""


def test_a_process_is_given_nothing_of_the_door_s(monkeypatch):
    """No open file, no word of its surroundings, no place for what is left of it."""
    monkeypatch.setenv("PASSWORD", "secret")
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    assert (
        said(GIVEN, WITHOUT, WITHOUT, outputs=7, locked=False, workers=2)
        == [(0.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0)] * 2
    )
    os.close(held)


def test_memory_that_children_would_share_is_noticed():
    """One block could leave a sign in it for the next; Python's own way to map memory shares it."""
    known = "from noisegate.isolated.template import _shares_memory as shared; import mmap; "
    trial = "print(shared()); held = mmap.mmap(-1, 4096); print(shared())"
    found = subprocess.run([sys.executable, "-c", known + trial], capture_output=True, check=True)
    assert found.stdout.split() == [b"False", b"True"]


def test_no_socket_of_ours_is_left_open():
    """Once before: what a process opens for all its programs stays open."""
    places = []
    for _ in range(3):
        with Cell(task("return 1")) as cell:
            cell.answers([block(WITHOUT)])
        with socket.socket() as after:
            places.append(after.fileno())
    assert places[1] == places[2]
