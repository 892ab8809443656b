"""What requests write at the same time is written in one stroke, by one thread.

A request that only has to be written down takes no thread of its own: what comes while the disk is
being waited for is the next stroke.
"""

from asyncio import Future, Task, get_running_loop
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast, final

from anyio import CapacityLimiter, to_thread

from noisegate.server.store import Do, Store

T = TypeVar("T")
_Wished: TypeAlias = "tuple[Callable[[Do], Any], Future[Any]]"


@final
class Strokes:
    """Work in the store's transactions, for one event loop."""

    def __init__(self, store: Store, limiter: CapacityLimiter) -> None:
        self._store, self._limiter = store, limiter
        self._waiting: list[_Wished] = []
        self._writing: Task[None] | None = None

    async def do(self, work: Callable[[Do], T]) -> T:
        """Do it, and come back when it is on the disk."""
        loop = get_running_loop()
        made: Future[Any] = loop.create_future()
        self._waiting.append((work, made))
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        return cast("T", await made)

    async def _write(self) -> None:
        try:
            while self._waiting:
                stroke, self._waiting = self._waiting, []
                for (_, made), each in zip(stroke, await self._written(stroke), strict=True):
                    if made.done():  # nobody waits any more
                        continue
                    if isinstance(each, Exception):
                        made.set_exception(each)
                    else:
                        made.set_result(each)
        finally:
            self._writing = None

    async def _written(self, stroke: "list[_Wished]") -> list[Any]:
        works = [work for work, _ in stroke]
        try:
            return await to_thread.run_sync(self._store.do_all, works, limiter=self._limiter)
        except Exception as error:  # noqa: BLE001 - told to all of them
            return [error] * len(stroke)
