"""One question at a time runs programs on this machine, whichever process asks.

Programs that run at once can feel how busy each other keep the machine, and the noise of a question
covers those of its own turn alone. So there is one lock for all processes: an abstract name of a
Unix socket, which one socket at a time can have. It is free again when the last process that holds
the socket is gone; the kernel closes descriptors of a process after it has freed its memory.

What has network namespaces of its own (a container) has a name of its own: run programs of one
machine in one of them.
"""

import errno
import socket
from time import sleep
from typing import Final

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
