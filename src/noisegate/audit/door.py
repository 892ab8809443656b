"""Runs through the door: the whole product on made-up rows, not a formula about it.

`DoorRuns` asks a gate again and again, each time as a new request that reserves, draws and settles;
`question_runs` is the same for SQL, where what was planned once need not be planned again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias, cast, final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from noisegate.audit.bounds import as_outputs
from noisegate.audit.confidence import Floats
from noisegate.curator.curator import Asked, Curator
from noisegate.frozen import dataclass
from noisegate.gate import Gate
from noisegate.privacy.release import Release
from noisegate.root import Rehearsal

Ask: TypeAlias = Callable[[Gate], ArrayLike]  # one run, as a row of numbers
Open: TypeAlias = Callable[[], Gate]

_PER_LEDGER: Final = 50  # runs; what a gate looks up in its ledger grows with it


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """Runs on made-up ``rows``; ``opened`` opens a gate for its declared facts."""

    opened: Open
    rows: Mapping[str, pa.Table]

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """The made-up rows behind a door, opened once in each process."""
        return Rehearsal(self.opened(), self.rows)

    def __getstate__(self) -> dict[str, Any]:  # what another process opens itself is left out
        state = self.__dict__.items()
        return {name: value for name, value in state if name not in ("rehearsal", "planned")}


@final
@dataclass(frozen=True, kw_only=True)
class DoorRuns(_Runs):
    """Independent runs of ``ask`` on the same made-up rows: a `Draw`.

    Attributes:
        opened: Opens a gate for its declared facts; it is never asked. Use a practice gate:
            ``partial(noisegate.open, "clinic.toml", practice=True)``.
        rows: The made-up rows of all tables.
        ask: One run, with ``fresh=True`` wherever that can be said: a row of numbers.
    """

    ask: Ask

    def __call__(self, count: int) -> Floats:
        """So many runs, a run a row."""
        gates = _gates(self.rehearsal, count)
        return as_outputs(np.stack([np.ravel(self.ask(gate)) for gate in gates]))


def _gates(rehearsal: Rehearsal, count: int) -> Iterator[Gate]:
    gate = rehearsal.gate()
    for run in range(count):
        if run and run % _PER_LEDGER == 0:
            gate = rehearsal.gate()
        yield gate


@final
class Transcript:
    """A curator that also keeps what it was asked and what it said."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self.asked: list[Asked] = []
        self.said: list[Release] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a curator has
        return getattr(self._curator, name)

    def measure(self, measurement: Asked, *, request_id: str | None = None) -> Release:
        """As the curator does."""
        said = self._curator.measure(measurement, request_id=request_id)
        self.asked.append(measurement)
        self.said.append(said)
        return said


def transcript(gate: Gate, ask: Callable[[Gate], object]) -> Transcript:
    """What one run asks the door for, and what the door says."""
    kept = Transcript(gate.door)
    ask(Gate(cast("Curator", kept), gate.rules))
    return kept


@final
@dataclass(frozen=True, kw_only=True)
class QuestionRuns(_Runs):
    """Independent answers of the door to one SQL question: a `Draw`.

    What is audited is all that left the door, not the table that is made of it; by post-processing
    a bound on the latter would be one on the former, and no better. Where the question asks the
    same of the door whatever the rows are, it is planned once and measured again and again;
    else (undeclared groups, ``choose``) all of it happens each time.
    """

    sql: str
    terms: Mapping[str, Any]
    columns: tuple[str, ...] = ()  # names of outputs, where they differ from run to run

    def __call__(self, count: int) -> Floats:
        """So many runs, a run a row."""
        if self.columns:
            return self._anew(count)
        rows = [
            flat(
                [gate.door.measure(each, request_id=gate.door.fresh_id()) for each in self.planned]
            )
            for gate in _gates(self.rehearsal, count)
        ]
        return np.stack(rows)

    @cached_property
    def planned(self) -> list[Asked]:
        """What the question asks of the door, read and planned once in each process."""
        return transcript(self.rehearsal.gate(), self.ask).asked

    def ask(self, gate: Gate) -> object:
        """The question itself, drawn anew."""
        return gate.sql(self.sql, fresh=True, **self.terms)

    def _anew(self, count: int) -> Floats:
        found = np.full((count, len(self.columns)), np.nan)
        for run, gate in enumerate(_gates(self.rehearsal, count)):
            said = named(transcript(gate, self.ask).said)
            found[run] = [said.get(column, np.nan) for column in self.columns]
        return found


def flat(said: Sequence[Release]) -> Floats:
    """All numbers of releases that have the same shape each time."""
    return np.concatenate([each.values.reshape(-1) for each in said]).astype(np.float64)


def named(said: Sequence[Release]) -> dict[str, float]:
    """All numbers of releases by name, where groups come and go."""
    found: dict[str, float] = {}
    keys: tuple[Any, ...] = ()
    for place, release in enumerate(said):
        values = release.values.reshape(-1)
        if release.keys is not None:
            keys = release.keys
        found[f"{place} size"] = values.size
        if keys and values.size and values.size % len(keys) == 0:
            for number, value in enumerate(values.tolist()):
                found[f"{place} {keys[number % len(keys)]} {number // len(keys)}"] = value
        elif release.keys is None:
            found |= {f"{place} {number}": value for number, value in enumerate(values.tolist())}
    return found
