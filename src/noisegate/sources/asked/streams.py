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
_ENOUGH: Final = 1 << 20  # bytes that are awaited at once; a long part comes alone


def streamed(
    stream: AsyncIterable[Part],
    seconds: float,
    use: Callable[[Iterator[Part]], Made],
    length: Callable[[Part], int],
) -> Made:
    """What ``use`` makes of the parts of a stream, which are awaited when they are asked for.

    Short ones come together. It is cut after so many seconds, or when the question is to stop.
    """
    held = [aiter(stream)]
    del stream  # which ends when nobody has it
    works: list[Future[list[Part]]] = []  # an interrupt may come as soon as there is one

    def cut() -> None:
        for work in works:
            work.cancel()

    def parts() -> Iterator[Part]:
        while held:
            works[:] = [asyncio.run_coroutine_threadsafe(_next(held, length), _loop())]
            while not wait(works, _LOOK_S).done:  # a signal may have woken another thread
                pass
            yield from works[0].result()

    try:
        with cuttable(cut, seconds):
            return use(parts())
    finally:
        cut()
        held.clear()


async def _next(held: list[AsyncIterator[Part]], length: Callable[[Part], int]) -> list[Part]:
    """The next parts, or none at the end."""
    found, size = list[Part](), 0
    try:
        while size < _ENOUGH:
            found.append(await anext(held[0]))
            size += length(found[-1])
    except StopAsyncIteration:
        held.clear()
    return found


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Where this process waits for streams."""
    found = asyncio.new_event_loop()
    threading.Thread(target=found.run_forever, name="streams", daemon=True).start()
    return found
