"""What the modules that programs may import do while they are loaded, and what they could not do.

Loading is restricted, but happens before programs are locked in, and before anything is paid.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noisegate.errors import Unsupported
from noisegate.isolated.cell import _SURROUNDINGS
from noisegate.isolated.lockdown import can_lock
from noisegate.isolated.modules import PACKAGES, require_allowed
from refusals import about

pytestmark = pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")

LOADING = Path(__file__).with_name("loading.py")
# The only traces: threadpoolctl, joblib and scikit-learn tell Intel's OpenMP how to behave.
SETTINGS = {"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}


def test_no_module_that_programs_may_import_does_more_than_define_things():
    """Nothing is written, run, sent or started, nor even tried; nothing is left behind."""
    told = subprocess.run(
        [sys.executable, "-IB", str(LOADING), *PACKAGES],
        env=_SURROUNDINGS, cwd="/", capture_output=True, check=True, timeout=1500,
    )  # fmt: skip
    *found, end = map(json.loads, told.stdout.splitlines())
    assert len(found) > 1000
    assert end == {"shared": False}
    assert sum(each["failed"] is None for each in found) >= 0.95 * len(found)  # some need others
    for each in found:
        assert all(what.startswith("os.putenv (b'KMP_") for what in each["did"]), each
        kept = dict(each["left"].pop("environment", ())).items() - _SURROUNDINGS.items()
        assert {name for name, _ in kept} - {"LC_CTYPE"} <= SETTINGS.keys(), each
        assert not each["left"], each


@pytest.mark.parametrize(
    "name",
    [
        "numpy.conftest",  # makes files for tests
        "scipy.stats.tests.test_stats",  # starts threads
        "numpy.distutils.cpuinfo",  # runs a shell
        "numpy.f2py._backends._distutils",
        "sklearn.__main__",
    ],
)
def test_modules_for_building_and_testing_are_not_for_programs(name):
    with pytest.raises(Unsupported, check=about("import")):
        require_allowed([name], PACKAGES)


REACHING = {
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "TCP": "socket.socket(socket.AF_INET6)",
    "a Unix socket": "socket.socket(socket.AF_UNIX)",
    "the kernel": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "a pair": "socket.socketpair()",
    "a thread": "threading.Thread(target=print).start()",
    "a fork": "os.fork()",
    "a program": "subprocess.run(['/bin/true'])",
    "a signal": "os.kill(os.getppid(), 0)",
    "shared memory": "checked(libc.shmget(0, 4096, 0o1600))",
    "a queue": "checked(libc.msgget(0, 0o1600))",
    "memory of others": "checked(libc.ptrace(16, os.getppid(), 0, 0))",
    "a file": "open('/tmp/noisegate-was-here', 'w')",
}
TRIED = """
import ctypes, os, socket, subprocess, sys, threading
from noisegate.isolated.lockdown import only_read
libc = ctypes.CDLL(None, use_errno=True)
def checked(found):
    if found < 0:
        raise OSError(ctypes.get_errno(), "refused")
if {restricted}:
    only_read()
try:
    {attempt}
except (OSError, RuntimeError) as error:
    sys.exit(3)
"""


@pytest.mark.parametrize("what", REACHING)
def test_a_module_that_is_loaded_reaches_nobody(what):
    text = TRIED.format(restricted=True, attempt=REACHING[what])
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 3


@pytest.mark.parametrize("what", ["UDP", "a Unix socket", "a thread", "a fork", "a signal"])
def test_the_same_attempts_succeed_where_nothing_is_restricted(what):
    text = TRIED.format(restricted=False, attempt=REACHING[what])
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
