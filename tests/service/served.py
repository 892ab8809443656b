"""A real server in a thread of this process, on a free port."""

import threading
import time
from contextlib import contextmanager

import uvicorn

from noisegate.server.http import http_app
from noisegate.server.service import Service
from noisegate.server.settings import Settings

QUICK = Settings(quantum=0)
PEOPLE = {"sam": "steward", "ana": "analyst", "ben": "analyst", "aud": "auditor"}


class Served:
    """A service with its address, and a token for each of its people."""

    def __init__(self, service: Service, url: str):
        self.service, self.url = service, url
        people = service.people
        self.tokens = {each.name: people.new_token(each.name) for each in people.everybody()}


@contextmanager
def serving(service: Service, more=()):
    """Serve until the block ends."""
    config = uvicorn.Config(
        http_app(service, more), port=0, log_config=None, access_log=False, server_header=False,
        lifespan="off",
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Served(service, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(10)
