"""Answers that an engine of this process gives as a stream, which ends where it is cancelled."""

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from concurrent.futures import Future, wait
from functools import cache
from typing import Final, TypeVar

from noisegate.sources.stopping import cuttable

Part = TypeVar("Part")
Made = TypeVar("Made")
_LOOK_S: Final = 0.1


def streamed(
    stream: AsyncIterable[Part], seconds: float, use: Callable[[Iterator[Part]], Made]
) -> Made:
    """What ``use`` makes of the parts of a stream, each of which is awaited when it is asked for.

    It is cut after so many seconds, or when the question is to stop.
    """
    held = [aiter(stream)]
    del stream  # which ends when nobody has it
    works: list[Future[list[Part]]] = []  # an interrupt may come as soon as there is one

    def cut() -> None:
        for work in works:
            work.cancel()

    def parts() -> Iterator[Part]:
        while held:
            works[:] = [asyncio.run_coroutine_threadsafe(_next(held), _loop())]
            while not wait(works, _LOOK_S).done:  # a signal may have woken another thread
                pass
            yield from works[0].result()

    try:
        with cuttable(cut, seconds):
            return use(parts())
    finally:
        cut()
        held.clear()


async def _next(held: list[AsyncIterator[Part]]) -> list[Part]:
    """The next part, or none at the end."""
    try:
        return [await anext(held[0])]
    except StopAsyncIteration:
        held.clear()
        return []


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Where this process waits for streams."""
    found = asyncio.new_event_loop()
    threading.Thread(target=found.run_forever, name="streams", daemon=True).start()
    return found
