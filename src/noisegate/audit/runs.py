"""Many independent runs on two neighbours: in batches, for a time, over processes, resumable."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike

from noisegate.audit.bounds import as_outputs
from noisegate.audit.confidence import Floats
from noisegate.errors import SpecError
from noisegate.frozen import dataclass

Draw: TypeAlias = Callable[[int], ArrayLike]  # so many independent runs on one neighbour
Progress: TypeAlias = Callable[[float, str], None]
Pair: TypeAlias = tuple[Floats, Floats]

_BATCH_SECONDS: Final = 3.0
_FIRST: Final = 32
_SAVE_SECONDS: Final = 10.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long to go on: so many runs on each neighbour, or for so many seconds, if that is less.

    With ``workers`` processes, draws must be picklable. ``resume`` is a file that keeps the runs so
    far; after a stop, the same audit goes on from it.
    """

    trials: int | None = None
    seconds: float | None = None
    workers: int = 1
    resume: Path | None = None


@final
class State:
    """Runs so far, kept in a file. No pickles: it holds numbers and a name."""

    def __init__(self, file: Path | None, name: str) -> None:
        self._file, self._name = file, name
        self.looks, self.pair = 0, (np.empty((0, 0)), np.empty((0, 0)))
        if file is not None and file.exists():
            self._load(file)

    def _load(self, file: Path) -> None:
        try:
            with np.load(file, allow_pickle=False) as kept:
                name, self.looks = str(kept["name"]), int(kept["looks"])
                self.pair = kept["ones"], kept["others"]
        except (OSError, ValueError, KeyError):
            raise SpecError(
                f"{file} does not hold the runs of an audit.",
                fix="Name a file written by an audit.",
                about="file",
            ) from None
        if name != self._name:
            raise SpecError(
                f"{file} holds the runs of another audit.",
                fix="Use one file for each audit.",
                about="other-audit",
            )

    def save(self) -> None:
        """Keep what there is; an interrupted write leaves the file as it was."""
        if self._file is None:
            return
        beside = self._file.with_name(f"{self._file.name}.part")
        with beside.open("wb") as out:
            np.savez_compressed(
                out, name=self._name, looks=self.looks, ones=self.pair[0], others=self.pair[1]
            )
        beside.replace(self._file)


def collect(
    draws: tuple[Draw, Draw], extent: Extent, state: State, progress: Progress | None
) -> Pair:
    """Runs on both neighbours, as many on each."""
    if extent.trials is None and extent.seconds is None:
        raise SpecError("The audit would never end.", fix="Give trials or seconds.")
    begun = saved = time.monotonic()
    parts = [[side] if side.size else [] for side in state.pair]
    done, batch = len(state.pair[0]), _FIRST
    with _mapped(draws, extent.workers) as mapped:
        while extent.trials is None or done < extent.trials:
            if extent.seconds is not None and time.monotonic() - begun >= extent.seconds:
                break
            size = batch if extent.trials is None else min(batch, extent.trials - done)
            started = time.monotonic()
            for side, outputs in enumerate(mapped(size)):
                parts[side] += outputs
            now = time.monotonic()
            done += size
            faster = _BATCH_SECONDS / max(now - started, 1e-6)
            batch = max(_FIRST, int(size * min(4.0, faster)))
            state.pair = np.concatenate(parts[0]), np.concatenate(parts[1])
            parts = [[side] for side in state.pair]
            if now - saved > _SAVE_SECONDS:
                state.save()
                saved = now
            if progress is not None:
                progress(_part(extent, done, now - begun), f"{done:,} runs on each neighbour")
    state.save()
    return state.pair


def _part(extent: Extent, done: int, spent: float) -> float:
    parts = [done / extent.trials if extent.trials else 0.0]
    parts.append(spent / extent.seconds if extent.seconds else 0.0)
    return min(1.0, max(parts))


@contextmanager
def _mapped(
    draws: tuple[Draw, Draw], workers: int
) -> Iterator[Callable[[int], list[list[Floats]]]]:
    """How a batch is drawn: here, or shared out over processes that are started afresh."""
    if workers <= 1:
        yield lambda size: [[as_outputs(draw(size))] for draw in draws]
        return
    count = min(workers, 4 * (os.cpu_count() or 1))
    with ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=_begin, initargs=(draws,)
    ) as pool:

        def shared(size: int) -> list[list[Floats]]:
            shares = [size // count + (place < size % count) for place in range(count)]
            waiting = [
                [pool.submit(_drawn, side, share) for share in shares if share] for side in (0, 1)
            ]
            return [[each.result() for each in side] for side in waiting]

        yield shared


_HERE: list[Draw] = []  # in a worker: what it draws from


def _begin(draws: tuple[Draw, Draw]) -> None:
    _HERE[:] = draws


def _drawn(side: int, count: int) -> Floats:
    return as_outputs(_HERE[side](count))
