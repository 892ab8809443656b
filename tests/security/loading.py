"""Loads modules as it is done for programs, and prints what each did besides: one JSON line each.

`python -I loading.py PACKAGE...` takes all modules of these packages that programs may import.
"""

import importlib.util
import json
import os
import pkgutil
import resource
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from noisegate.errors import Unsupported
from noisegate.isolated.lockdown import only_read
from noisegate.isolated.modules import PACKAGES, require_allowed
from noisegate.isolated.template import _shares_memory

WATCHED = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.mkdir",
    "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.ch",
    "os.utime", "os.putenv", "os.unsetenv", "os.kill", "shutil.", "tempfile.", "urllib.", "http.",
    "ftplib.", "smtplib.", "webbrowser.", "sys.set", "mmap.", "syslog.", "resource.", "pty.",
)  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def modules(package, folders):
    """The names of a package and of all below it; nothing is loaded to find them."""
    yield package
    for each in pkgutil.iter_modules(folders):
        name = f"{package}.{each.name}"
        inside = [str(Path(each.module_finder.path) / each.name)]
        yield from modules(name, inside) if each.ispkg else [name]


def admitted(name):
    with suppress(Unsupported):
        require_allowed([name], PACKAGES)
        return True
    return False


def state():
    """What modules could leave in the process that all children are copied from."""
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "files": sorted(each.name for each in Path("/proc/self/fd").iterdir()),
        "environment": sorted(os.environ.items()),
        "folder": str(Path.cwd()),
        "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "limits": [resource.getrlimit(which) for which in range(16)],
        "processors": sorted(os.sched_getaffinity(0)),
        "tracing": [repr(sys.gettrace()), repr(sys.getprofile())],
    }


def main(packages):
    told = os.fdopen(os.dup(1), "w", buffering=1)  # a pipe: no file can be written from here on
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    warnings.simplefilter("ignore")
    found = [
        name
        for package in packages
        for name in modules(package, importlib.util.find_spec(package).submodule_search_locations)
        if admitted(name)
    ]
    did = []

    def watch(event, terms):
        if event == "open":
            if isinstance(terms[2], int) and terms[2] & WRITING:
                did.append(f"open {terms[0]}")
        elif event.startswith(WATCHED):
            did.append(f"{event} {terms}")

    only_read()
    before = state()
    sys.addaudithook(watch)
    for name in found:
        did.clear()
        failed = None
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - a module may do anything
            failed = f"{type(error).__name__}: {error}"
        here, after = list(did), state()
        left = {part: after[part] for part in after if after[part] != before[part]}
        before = after
        told.write(json.dumps({"name": name, "did": here, "left": left, "failed": failed}) + "\n")
    told.write(json.dumps({"shared": _shares_memory()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
