"""Answers that an engine of this process gives as a stream, which ends where it is cancelled."""

import asyncio
import threading
from collections.abc import AsyncIterable
from concurrent.futures import Future, wait
from functools import cache
from typing import Final, TypeVar

from noisegate.sources.stopping import cuttable

Part = TypeVar("Part")
_LOOK_S: Final = 0.1


def collected(stream: AsyncIterable[Part], seconds: float) -> list[Part]:
    """All parts of a stream. It is cut after so many seconds, or when the question is to stop."""
    held = [stream]
    del stream  # which ends when nobody has it
    works: list[Future[list[Part]]] = []  # an interrupt may come as soon as there is one

    def cut() -> None:
        for work in works:
            work.cancel()

    try:
        works.append(asyncio.run_coroutine_threadsafe(_parts(held), _loop()))
        with cuttable(cut, seconds):
            while not wait(works, _LOOK_S).done:  # a signal may have woken another thread
                pass
            return works[0].result()
    finally:
        cut()


async def _parts(held: list[AsyncIterable[Part]]) -> list[Part]:
    try:
        return [part async for part in held[0]]
    finally:
        held.clear()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Where this process waits for streams."""
    found = asyncio.new_event_loop()
    threading.Thread(target=found.run_forever, name="streams", daemon=True).start()
    return found
