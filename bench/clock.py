"""Medians of wall and CPU time, and peak memory.

Standard library only: the peers' environments use it too.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Call = Callable[[], Any]

PEER_LIMIT_S = 10.0
PEER_REPEATS = 5


@dataclass(frozen=True)
class Timing:
    """Medians over some runs. CPU time is what other jobs on the machine disturb least."""

    wall_ms: float
    cpu_ms: float

    @classmethod
    def of(cls, runs: list[Timing]) -> Timing:
        return cls(median(run.wall_ms for run in runs), median(run.cpu_ms for run in runs))


def peak_gib() -> float:
    """Of this program alone: the peak of `getrusage` begins with that of who started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / (1 << 20)


def once(call: Call) -> Timing:
    wall, cpu = perf_counter(), process_time()
    call()
    return Timing((perf_counter() - wall) * 1e3, (process_time() - cpu) * 1e3)


def side_by_side(calls: list[Call], *, repeats: int) -> list[Timing]:
    """Run all in turns, after one warm-up each, so that a busy minute hits all of them alike."""
    for call in calls:
        call()
    rounds = [[once(call) for call in calls] for _ in range(repeats)]
    return [Timing.of(list(runs)) for runs in zip(*rounds, strict=True)]


def until(call: Call, *, repeats: int, limit_s: float) -> Timing:
    """At least one run, no more than ``repeats``, and no new one once the time is used up."""
    runs: list[Timing] = []
    while not runs or (len(runs) < repeats and sum(run.wall_ms for run in runs) < limit_s * 1e3):
        runs.append(once(call))
    return Timing.of(runs)


def report(laws: Mapping[str, Call], *, release: str) -> None:
    """Print one JSON object: a peer's name and version, and a timing or a reason per law."""
    found: dict[str, Any] = {}
    for law, call in laws.items():
        try:
            found[law] = asdict(until(call, repeats=PEER_REPEATS, limit_s=PEER_LIMIT_S))
        except Exception as error:  # noqa: BLE001 - whatever a peer raises becomes its row
            found[law] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps({"release": release, "laws": found}))


def cells() -> int:
    """How many cells a peer noises: the script's only argument."""
    return int(sys.argv[1])
