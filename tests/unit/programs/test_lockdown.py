"""The filter of a locked-in process, run by hand for both kinds of machine."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from noisegate.isolated.lockdown import (
    _ARCHITECTURES,
    _CALLS,
    _ENDS_FIRST,
    _NUMBERS,
    _ONLY,
    _REACHING,
    ANSWER,
    CLONE,
    _loading_program,
    _program,
    can_lock,
)

ALLOW, KILL, REFUSE, ZERO = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050000
# Typed again from the kernel's own tables: name, number on x86_64, number on aarch64.
_TABLE = """
write 1 64      mmap 9 222        mprotect 10 226     munmap 11 215      brk 12 214
rt_sigaction 13 134   rt_sigprocmask 14 135   rt_sigreturn 15 139   sched_yield 24 124
mremap 25 216   madvise 28 233    getpid 39 172       exit 60 93         sigaltstack 131 132
gettid 186 178  futex 202 98      sched_getaffinity 204 123   exit_group 231 94   getrandom 318 278
"""
KERNEL = _TABLE.split()
_REFUSED_TABLE = """
socket 41 198   socketpair 53 199   io_uring_setup 425 425   clone3 435 435   execve 59 221
execveat 322 281   kill 62 129   tkill 200 130   tgkill 234 131   rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240   pidfd_send_signal 424 424   pidfd_getfd 438 438   ptrace 101 117
process_vm_readv 310 270   process_vm_writev 311 271   shmget 29 194   semget 64 190
msgget 68 186   mq_open 240 180   add_key 248 217   request_key 249 218   keyctl 250 219
bpf 321 280   perf_event_open 298 241   userfaultfd 323 282
"""
REFUSED = _REFUSED_TABLE.split()
OLDER = {"x86_64": {"fork": 57, "vfork": 58}, "aarch64": {}}  # calls that not all have
X32 = 1 << 30
NUMBERS = [number | bit for bit in (0, X32, 1 << 31) for number in range(1101)]
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
MACHINES = pytest.mark.parametrize("machine", sorted(_CALLS))


def verdict(program, number, arguments=(), architecture=None):
    """What the kernel's small machine says of a call."""
    shown = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    at = held = 0
    while True:
        code, if_true, if_false, operand = lines[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", shown, operand)
        elif code == 0x54:
            held &= operand
        elif code == 0x06:
            return operand
        else:
            held_true = {0x15: held == operand, 0x25: held > operand}[code]
            at += if_true if held_true else if_false


def numbers_in(table, machine):
    place = 1 + ["x86_64", "aarch64"].index(machine)
    return dict(zip(table[::3], map(int, table[place::3]), strict=True))


@MACHINES
def test_only_what_is_listed_is_allowed(machine):
    program, calls = _program(machine), numbers_in(KERNEL, machine)
    here = {"architecture": _ARCHITECTURES[machine]}
    special = {calls.pop(name) for name in ("write", *_ONLY)}
    zero = {calls.pop("getpid"), calls.pop("gettid")}
    for number in (*NUMBERS, 0xFFFFFFFF):
        if number not in special:
            expected = ALLOW if number in calls.values() else ZERO if number in zero else REFUSE
            assert verdict(program, number, **here) == expected, number


@MACHINES
def test_modules_that_are_loaded_reach_nobody(machine):
    """All numbers of both kinds: those above 511 are x32's, with its bit or without."""
    program, refused = _loading_program(machine), numbers_in(REFUSED, machine) | OLDER[machine]
    here = {"architecture": _ARCHITECTURES[machine]}
    for number in (*NUMBERS, 0xFFFFFFFF):
        if number != CLONE[machine]:
            expected = REFUSE if number > 511 or number in refused.values() else ALLOW
            assert verdict(program, number, **here) == expected, number
    clone = {
        "fork": 0x1200011,
        "thread": 0x3D0F00,
        "shared memory": 0x1111,
        "namespace": 0x10001011,
    }
    for flags in (*clone.values(), 0x11, *range(64), *(0x1011 | 1 << bit for bit in range(32))):
        expected = ALLOW if flags in (0x1011, 0x9011) else REFUSE
        assert verdict(program, CLONE[machine], (flags,), **here) == expected, hex(flags)


@MACHINES
def test_writing_goes_to_the_answer_and_to_nowhere(machine):
    program, write = _program(machine), _CALLS[machine]["write"]
    for descriptor in (*range(10), 1 << 31, (1 << 32) + ANSWER, (1 << 64) - 1):
        found = verdict(program, write, (descriptor,), _ARCHITECTURES[machine])
        assert found == (ALLOW if descriptor <= ANSWER else REFUSE), descriptor


@MACHINES
@pytest.mark.parametrize(
    ("call", "place", "allowed"),
    [
        ("madvise", 2, {4, 8}),  # to give memory back
        ("mmap", 3, {0x22, 0x32, 0x4022, 0x20022, 0x100022}),  # private memory of no file
        ("sched_getaffinity", 0, {0}),
        ("futex", 1, {129}),  # to wake its own, never to wait
    ],
)
def test_one_argument_has_the_values_that_touch_nobody_else(machine, call, place, allowed):
    program, number = _program(machine), _CALLS[machine][call]
    kinds = [kind | 1 << bit for kind in (0x01, 0x02, 0x03, 0x21, 0x22, 0x23) for bit in range(32)]
    for value in (*range(600), *kinds, (1 << 32) - 1, ~1 << 3 & 0xFFFFFFFF | 2):
        arguments = [77, 77, 77, 77, 77]
        arguments[place] = value
        found = verdict(program, number, arguments, _ARCHITECTURES[machine])
        assert found == (ALLOW if value in allowed else REFUSE), value


@MACHINES
def test_calls_in_another_machine_s_numbers_end_the_process(machine):
    for other in (0x40000003, 0x40000028, *_ARCHITECTURES.values()):
        if other != _ARCHITECTURES[machine]:
            for program in (_program(machine), _loading_program(machine)):
                assert {verdict(program, n, (), other) for n in NUMBERS} == {KILL}


@MACHINES
def test_the_numbers_are_those_of_the_kernel(machine):
    known = numbers_in(KERNEL, machine)
    assert _CALLS[machine] | _NUMBERS[machine] == known
    refused = numbers_in(REFUSED, machine) | OLDER[machine]
    assert _REACHING[machine] == refused
    assert CLONE == {"x86_64": 56, "aarch64": 220}
    if Path(HEADERS[machine]).exists():
        text = Path(HEADERS[machine]).read_text()
        headers = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", text))
        known |= refused | {"clone": CLONE[machine]}
        assert {name: int(headers[name]) for name in known} == known


@pytest.mark.skipif(
    not Path(_ENDS_FIRST.format("self")).exists(), reason="this machine has no such order"
)
def test_a_program_ends_before_the_door_where_memory_runs_out():
    asked = "from noisegate.isolated.lockdown import *; end_first(); "
    shown = f"print(open({_ENDS_FIRST.format('self')!r}).read())"
    found = subprocess.run([sys.executable, "-c", asked + shown], capture_output=True, check=True)
    assert int(found.stdout) == 1000


TIME = "import os, ctypes; from noisegate.isolated import lockdown; "
PAGES = "lockdown._take_the_time_away = lambda: None; "
TOLD = "os._exit(7 * (ctypes.CDLL(None).time(None) > 0))"


@pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
@pytest.mark.parametrize(("broken", "tells"), [("", 0), (PAGES, 7)])
def test_the_time_is_not_left_in_memory(broken, tells):
    """Where pages of the kernel's stay, they tell it without any call: a broken copy is noticed."""
    asked = f"{TIME}{broken}lockdown.lock(); {TOLD}"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == tells


def test_pages_that_show_the_time_are_empty_afterwards():
    """Read as they lie in memory: no call, and no counter, is needed for that."""
    shown = (
        "places = [line.split('-')[0] for line in open('/proc/self/maps') if '[vvar' in line]\n"
        "read = lambda: [any(ctypes.string_at(int(place, 16), 64)) for place in places[:1]]\n"
        "print(read()); lockdown._take_the_time_away(); print(read())\n"
        "print([line for line in open('/proc/self/maps') if '[vvar' in line])"
    )
    if "[vvar" not in Path("/proc/self/maps").read_text():
        pytest.skip("this kernel shows the time in no page")
    told = subprocess.run([sys.executable, "-c", TIME + shown], capture_output=True, check=True)
    assert told.stdout.split() == [b"[True]", b"[False]", b"[]"]
