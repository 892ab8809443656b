"""What a process can still do after it has locked itself in: compute and answer.

Claim: after `lock` a process cannot open, read or change a file, make a process or a thread, send
    a signal, reach the network or any other process, or leave anything behind; what it has left is
    its own memory, and writing to descriptors 0 to 3; nor can it see which processes there are, its
    own number, on which processor it was put, how long others have worked, or what time it is.
    Why: the kernel refuses every call not listed here [seccomp], but two that do nothing for others
    (`THREATS.md`): the filter cannot be taken off, whatever the process becomes. Descriptors 0 to 2
    are the null device, 3 is the pipe of the answer. A clock needs no call where the kernel shows
    the time in pages of the process: empty ones are put in their place. The counter of the
    processor ends a process that reads it [PR_SET_TSC]. The processor is fixed by the turn.
    What is not claimed: that a program cannot feel how busy the machine is, by whether it is done
    in time. So those that run at once may feel each other (`transforms/blocks.py` counts them).
    `THREATS.md` beside this file lists all ways that were thought of.
"""

import ctypes
import mmap
import os
import platform
import signal
import struct
import sys
from contextlib import suppress
from functools import cache
from typing import Final, TypeAlias

ANSWER: Final = 3  # the descriptor of the pipe that answers go through
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _SET_DUMPABLE, _DIE_WITH_PARENT, _SET_COUNTER = 38, 22, 4, 1, 26
_SMALL_PAGES: Final = 41
_ENDS_READERS: Final = 2
_FILTER_MODE: Final = 2
_KILL: Final = 9
_NOBODY: Final = 65534
_PAGE: Final = mmap.PAGESIZE
_ENDS_FIRST: Final = "/proc/{}/oom_score_adj"
_MAPS: Final = "/proc/self/maps"
_TIME_IS_SHOWN: Final = b"[vvar"  # what such pages are called
_PRIVATE_EMPTY_THERE: Final = 0x02 | 0x20 | 0x10  # what to map, in the place of what is there

# Memory and signals of the process itself, system entropy, and its end. No call that reads a
# descriptor or a clock is here, nor one that waits: the rows are in memory by then.
_CALLS: Final = {
    "x86_64": {
        "write": 1, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
        "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25, "madvise": 28,
        "exit": 60, "sigaltstack": 131, "futex": 202, "sched_getaffinity": 204, "exit_group": 231,
        "getrandom": 318,
    },
    "aarch64": {
        "write": 64, "exit": 93, "exit_group": 94, "futex": 98, "sched_getaffinity": 123,
        "sched_yield": 124, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226,
        "madvise": 233, "getrandom": 278,
    },
}  # fmt: skip
# The number of a process depends on which others there are; every program is told that it is 0.
_NUMBERS: Final = {
    "x86_64": {"getpid": 39, "gettid": 186},
    "aarch64": {"getpid": 172, "gettid": 178},
}
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Which values one argument (its place) of a call may have, in which of its bits. Memory is private
# and of no file, where and how it is reserved being free: shared memory would stay when it is no
# longer mapped, and so count for no limit. Only itself; locks that are opened, never waited for, as
# until when is a clock; advice that frees memory, as other advice could be seen by others.
_ALL_BITS: Final = 0xFFFFFFFF
_Bounds: TypeAlias = tuple[int, int, tuple[int, ...]]
_ONLY: Final[dict[str, _Bounds]] = {
    "mmap": (3, _ALL_BITS & ~(0x10 | 0x4000 | 0x20000 | 0x100000), (0x02 | 0x20,)),
    "sched_getaffinity": (0, _ALL_BITS, (0,)),
    "futex": (1, _ALL_BITS, (1 | 128,)),  # of its own: others may wait at the same page of a file
    "madvise": (2, _ALL_BITS, (4, 8)),
}
# What is refused while modules are loaded, and ever after: all that reaches another process or
# machine, or stays behind. Only templates and children are made, by the flags that they are.
CLONE: Final = {"x86_64": 56, "aarch64": 220}
PIDFD, SAME_PARENT = 0x1000, 0x8000  # flags of clone
_COPIES: Final[_Bounds] = (
    0, _ALL_BITS, (signal.SIGCHLD | PIDFD, signal.SIGCHLD | PIDFD | SAME_PARENT),
)  # fmt: skip
_REACHING: Final = {
    "x86_64": {
        "socket": 41, "socketpair": 53, "io_uring_setup": 425, "fork": 57, "vfork": 58,
        "clone3": 435, "execve": 59, "execveat": 322, "kill": 62, "tkill": 200, "tgkill": 234,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "pidfd_send_signal": 424,
        "pidfd_getfd": 438, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
        "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "add_key": 248,
        "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    },
    "aarch64": {
        "socket": 198, "socketpair": 199, "io_uring_setup": 425, "clone3": 435, "execve": 221,
        "execveat": 281, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "pidfd_send_signal": 424, "pidfd_getfd": 438, "ptrace": 117,
        "process_vm_readv": 270, "process_vm_writev": 271, "shmget": 194, "semget": 190,
        "msgget": 186, "mq_open": 180, "add_key": 217, "request_key": 218, "keyctl": 219,
        "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
    },
}  # fmt: skip
_OTHER_NUMBERS: Final = 512  # from here on x86_64 has those of another kind (x32), once more
_ALLOW, _KILL_PROCESS, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 1  # refused: EPERM
_ZERO: Final = 0x00050000  # not done, and no error either: the call returns 0
_LOAD, _AND, _EQUAL, _ABOVE, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # on every kind of machine
# Since which version of Landlock it can deny what, in three words: running, writing, making and
# removing files (reading them and listing folders are bits 2 and 3), moving and cutting them; TCP;
# abstract sockets and signals.
_LANDLOCK_DENIES: Final = (
    ((1, 0x1FFF & ~0b1100), (2, 1 << 13), (3, 1 << 14)), ((4, 0b11),), ((6, 0b11),),
)  # fmt: skip
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # places in what the kernel shows to a filter


def can_run() -> bool:
    """Whether programs run on machines of this kind at all."""
    return sys.platform == "linux" and platform.machine() in _CALLS and sys.byteorder == "little"


@cache
def can_lock() -> bool:
    """Whether this machine can lock a process in: tried once, by one that does nothing else."""
    import subprocess  # noqa: PLC0415 - not in every child

    if not can_run():
        return False
    trial = [sys.executable, "-I", "-m", "noisegate.isolated.lockdown"]
    return subprocess.run(trial, env={}, capture_output=True, check=False).returncode == 0  # noqa: S603 - ourselves


def end_with_parent() -> None:
    """Let the kernel end this process when its parent is gone."""
    _control(_DIE_WITH_PARENT, _KILL)


def end_first(process: int | str = "self", *, above_all: bool = True) -> None:
    """Let a process end before any other, should memory run out: and its copies.

    Else a program that takes all it may, for one row's sake, could end the door itself, for all to
    see. Those that children are made of come after all children (``above_all``): how much a child
    seems to hold is up to its program.
    """
    with suppress(OSError), open(_ENDS_FIRST.format(process), "wb", buffering=0) as order:  # noqa: PTH123 - nothing else to load
        order.write(b"1000" if above_all else b"500")


def use_small_pages() -> None:
    """Hold memory in pages of one size alone, here and in all copies.

    Whether the machine finds a huge page depends on what others left; and of one, all is held for
    as long as any part of it is mapped, which no limit counts.
    """
    _control(_SMALL_PAGES, 1)


def only_read() -> None:
    """Change no file [Landlock], and reach no other process and no network [seccomp] from here on.

    For the loading of modules, whose code is trusted but chosen by name. Where the kernel has no
    Landlock (before Linux 5.13), of files only the size is bounded: by 0.
    """
    import resource  # noqa: PLC0415 - not in every child

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    lines, _held = _handed_over(_loading_program(platform.machine()))
    _control(_NO_NEW_PRIVILEGES, 1)
    _control(_SET_SECCOMP, _FILTER_MODE, lines)
    call = ctypes.CDLL(None, use_errno=True).syscall
    version = call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    words = [sum(bits for since, bits in word if version >= since) for word in _LANDLOCK_DENIES]
    if not any(words):
        return
    rules = struct.pack(f"={sum(map(bool, words))}Q", *filter(None, words))
    held = call(_LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0)
    if held < 0 or call(_LANDLOCK_RESTRICT, held, 0):
        raise OSError(ctypes.get_errno(), "The kernel does not restrict the loading of modules.")
    os.close(held)


def limit(*, seconds: float, memory: int, processor: int) -> None:
    """Bound memory (bytes more than now), time of the processor, and files: none, of no size.

    The process runs on one processor.
    """
    import resource  # noqa: PLC0415 - not in every child

    os.sched_setaffinity(0, {processor})
    bounds = {
        resource.RLIMIT_CPU: int(seconds) + 2,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_AS: _size() + memory,
    }
    for which, most in bounds.items():
        with suppress(ValueError, OSError):  # lower already, or unknown to the machine
            resource.setrlimit(which, (most, most))


def lock() -> None:
    """Give up everything but computing and answering. There is no way back."""
    with suppress(PermissionError):  # a process that is not root is nobody in particular already
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    lines, _held = _handed_over(_program(platform.machine()))
    _take_the_time_away()
    _control(_SET_COUNTER, _ENDS_READERS)
    end_with_parent()  # once more: a change of user undoes it
    _control(_SET_DUMPABLE, 0)
    _control(_NO_NEW_PRIVILEGES, 1)
    _control(_SET_SECCOMP, _FILTER_MODE, lines)


def _handed_over(program: bytes) -> tuple[bytes, object]:
    """What the kernel is told of a filter, and the memory that it then reads it from."""
    held = ctypes.create_string_buffer(program, len(program))
    return struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held)), held


def _take_the_time_away() -> None:
    """Put empty pages in the place of those in which the kernel shows the time."""
    with open(_MAPS, "rb", buffering=0) as maps:  # noqa: PTH123 - nothing else to load
        lines = maps.readall().splitlines()
    put = ctypes.CDLL(None, use_errno=True).mmap
    put.restype = ctypes.c_void_p
    put.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    for line in lines:
        if _TIME_IS_SHOWN in line:
            start, end = (int(place, 16) for place in line.split()[0].split(b"-"))
            if put(start, end - start, mmap.PROT_READ, _PRIVATE_EMPTY_THERE, -1, 0) != start:
                raise OSError(ctypes.get_errno(), "The kernel does not take its clock away.")


def _control(what: int, one: int, other: bytes | None = None) -> None:
    done = ctypes.CDLL(None, use_errno=True).prctl
    pointer = ctypes.c_char_p(other) if other is not None else ctypes.c_ulong(0)
    if done(ctypes.c_int(what), ctypes.c_ulong(one), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "The kernel does not lock processes in.")


def _program(machine: str) -> bytes:
    """The filter, as the kernel's small machine reads it: a list of jumps, refusing at the end."""
    calls = dict(_CALLS[machine])
    write, limited = calls.pop("write"), {name: calls.pop(name) for name in _ONLY}
    lines = _number_on(machine)
    for number in sorted(calls.values()):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _ALLOW)]
    for number in _NUMBERS[machine].values():
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _ZERO)]
    lines += [  # write: to descriptors 0 to 3 alone
        _line(_EQUAL, write, 0, 6),
        _line(_LOAD, _ARGUMENTS + 4),
        _line(_EQUAL, 0, 0, 3),
        _line(_LOAD, _ARGUMENTS),
        _line(_ABOVE, ANSWER, 1, 0),
        _line(_RETURN, _ALLOW),
        _line(_RETURN, _REFUSE),
    ]
    for name, number in limited.items():
        lines += _bounded(number, _ONLY[name])
    return b"".join([*lines, _line(_RETURN, _REFUSE)])


def _loading_program(machine: str) -> bytes:
    """The filter for the loading of modules: allowing at the end."""
    lines = _number_on(machine)
    lines += [_line(_ABOVE, _OTHER_NUMBERS - 1, 0, 1), _line(_RETURN, _REFUSE)]
    for number in sorted(_REACHING[machine].values()):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _REFUSE)]
    return b"".join([*lines, *_bounded(CLONE[machine], _COPIES), _line(_RETURN, _ALLOW)])


def _number_on(machine: str) -> list[bytes]:
    """Load the number of the call, which must be one of this machine's own."""
    return [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _line(_RETURN, _KILL_PROCESS),
        _line(_LOAD, _NUMBER),
    ]


def _bounded(number: int, bounds: _Bounds) -> list[bytes]:
    """Allow a call with these values of one argument, and refuse it with all others."""
    place, bits, values = bounds
    return [
        _line(_EQUAL, number, 0, len(values) + 4),
        _line(_LOAD, _ARGUMENTS + 8 * place),
        _line(_AND, bits),
        *(_line(_EQUAL, value, len(values) - at) for at, value in enumerate(values)),
        _line(_RETURN, _REFUSE),
        _line(_RETURN, _ALLOW),
    ]


def _line(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _size() -> int:
    """How many bytes of addresses the process has now."""
    with open("/proc/self/statm", "rb", buffering=0) as pages:  # noqa: PTH123 - nothing else to load
        return int(pages.read(64).split()[0]) * _PAGE


if __name__ == "__main__":
    lock()
    os._exit(ctypes.CDLL(None).time(None) > 0)
