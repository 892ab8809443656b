"""A program on blocks of rows, with the noise on what it says: sample and aggregate.

Units are dealt to blocks by a secret, a program that nobody trusts makes numbers of each block in a
cell of its own, and what leaves the door is one noisy number for each output: the sum over all
blocks, their median, or the centre of most of them. The numbers of single blocks never leave.
"""

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from noisegate.algebra.blocks import STEPS, Blocks
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import fresh_coins
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.isolated.cell import Cell, Task
from noisegate.isolated.channel import packed
from noisegate.isolated.modules import PACKAGES, require_allowed
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism, to_record
from noisegate.mechanisms.catalogue import capabilities_of
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.winsorised import Winsorised
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.noise.bits import Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, PoissonSampled, Sequential
from noisegate.sources.source import Source
from noisegate.transforms.attention import attention
from noisegate.transforms.blocks import BlockQuery

if TYPE_CHECKING:
    import pyarrow as pa

_SMOOTH: Final = (SmoothStudent, SmoothLaplace, SmoothLognormal)
_CHANGED: Final = (Quantile, Winsorised)
_ALLOWED: Final[set[type]] = {Geometric, DiscreteGaussian, Exponential, *_CHANGED, *_SMOOTH}
_MEGABYTE: Final = 1 << 20
_MADE_UP: Final = 200  # rows of a rehearsal


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMeasurement:
    """A program on blocks and one mechanism for each of its outputs; or one choice among them."""

    query: BlockQuery
    mechanisms: tuple[Mechanism[Any], ...]

    def __post_init__(self) -> None:
        if type(self.mechanisms) is not tuple or {type(m) for m in self.mechanisms} - _ALLOWED:
            raise Unsupported(
                "The door has no rule for this noise on blocks.",
                fix="Use geometric, discrete Gaussian or smooth noise, a quantile or a choice.",
            )
        if self._chooses:
            return
        smooth = {(m.low, m.high) for m in self.mechanisms if isinstance(m, _SMOOTH)}
        if smooth - {(0, 2 * STEPS)}:
            raise Unsupported("The noise was made for another range.", fix=f"Use 0 to {2 * STEPS}.")
        if len(self.mechanisms) != len(self.query.tally.ranges) or self._choices:
            raise Unsupported("There must be one mechanism per output.", fix="Give one for each.")
        if len({type(each) is Winsorised for each in self.mechanisms}) > 1:
            raise Unsupported(
                "Only some outputs are narrowed.",
                fix="Narrow all of them, or none.",
                about="narrow",
            )

    @property
    def _choices(self) -> int:
        return sum(type(each) is Exponential for each in self.mechanisms)

    @property
    def _chooses(self) -> bool:
        """Whether it is one choice among all outputs, which have one range and no order."""
        if len(self.mechanisms) != 1 or type(self.mechanisms[0]) is not Exponential:
            return False
        return not self.mechanisms[0].monotone and len(set(self.query.tally.ranges)) == 1

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses."""
        return frozenset({"programs"}).union(*map(capabilities_of, self.mechanisms))

    def event(self) -> Event:
        """What one use is, for accounting.

        Claim: releasing all outputs with their noise is this event. Adjacency: add/remove one unit.
        Why: a unit changes at most `changed` numbers of an output, whose sum moves by at most `l1s`
            and `l2s`, and whose centre takes that many steps (`attention`); the outputs compose
            sequentially. A choice among outputs reads their sums, each of which moves by at most
            `l1s` up or down [MT07, Thm 6]. All that holds for every outcome of the deal, and so on
            average [MTSSC12].
            About a sample, it is the event of those who are in it, amplified [BBG18]: all deals are
            of the same sample, so a unit is in every one of them with the sample's chance, and else
            in none; how units are dealt is decided by other keys than who is in it, and how many
            blocks there are is public.
        """
        sample = self.query.tally.sample
        if sample is not None:
            return PoissonSampled(event=self._inner_event(), probability=sample)
        return self._inner_event()

    def _inner_event(self) -> Event:
        """The same about those who take part."""
        query = self.query
        if self._chooses:
            return self.mechanisms[0].event(query.l1s[0].value)
        events: list[Event] = []
        for mechanism, l1, l2 in zip(self.mechanisms, query.l1s, query.l2s, strict=True):
            if isinstance(mechanism, Quantile):
                events.append(mechanism.changed(query.changed))
            elif isinstance(mechanism, (Winsorised, *_SMOOTH)):
                events.append(mechanism.event(query.changed))
            else:
                events.append(mechanism.event(l2 if type(mechanism) is DiscreteGaussian else l1))
        return events[0] if len(events) == 1 else Sequential(events=tuple(events))

    def question(self) -> str:
        """Canonical text: two measurements with one text are one question, answered once."""
        mechanisms = [to_record(mechanism) for mechanism in self.mechanisms]
        record = {"query": self.query.to_record(), "mechanisms": mechanisms}
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def draw(
        self, source: Source, bits: Bits, _kept: Kept | None = None
    ) -> tuple[Int64Array, None]:
        """What is released of each output, a row of numbers. Reads rows; call it once paid."""
        said = said_of_blocks(self.query.tally, source, bits)
        if self._chooses:
            return self.mechanisms[0].sample(said.sum(axis=1), bits=bits)[None], None
        pairs = zip(self.mechanisms, said, strict=True)
        return np.stack([m.sample(_exact(m, numbers), bits=bits) for m, numbers in pairs]), None


def _exact(mechanism: Mechanism[Any], numbers: Int64Array) -> Int64Array:
    """What a mechanism reads of the numbers of one output."""
    if isinstance(mechanism, _SMOOTH):
        return attention(numbers, range_end=STEPS)
    return numbers if isinstance(mechanism, _CHANGED) else numbers.sum(keepdims=True)


def require_place(tally: object, packages: Collection[str] | None) -> None:
    """Refuse what this machine cannot run, not apart from all else, or not with these packages.

    Before any charge. Without a list of ``packages``, the usual ones. A trusted program is the
    steward's own, and imports what it likes. Sums have no program.
    """
    if not isinstance(tally, Blocks):
        return
    if not tally.trusted:
        require_allowed(tally.program.imports, PACKAGES if packages is None else packages)
    Cell(_task(tally))


def said_of_blocks(tally: Blocks, source: Source, bits: Bits) -> Int64Array:
    """What the program says of each block, on the grid, of shape (outputs, answers). Exact."""
    said: list[Sequence[int]] = []
    with Cell(_task(tally)) as cell, _taking_part(tally, source, bits) as rows:
        for _ in range(tally.resample):
            said += [_on_grid(raw, tally) for raw in cell.answers(_dealt(tally, rows, bits))]
    return np.array(said, np.int64).T


def _taking_part(tally: Blocks, source: Source, bits: Bits) -> AbstractContextManager[Source]:
    """All rows, or those of one sample with coins that were never used and are kept nowhere."""
    if tally.sample is None:
        return nullcontext(source)
    return source.sample(tally.sample, fresh_coins(bits))


def _dealt(tally: Blocks, source: Source, bits: Bits) -> Iterator[bytes]:
    yield from source.blocks(tally, fresh_coins(bits), lambda blocks: [*map(packed, blocks)])


def rehearsed(
    asked: BlockMeasurement,
    tables: Mapping[str, TableDomain],
    public: "Callable[[str], pa.Table]",
    packages: Collection[str] | None,
) -> BlockMeasurement:
    """The same question, with the modules that its program turns out to need.

    The program runs on rows that are made up from the tables' declared facts alone, so that what
    goes wrong there may be said. Refuses a program that fails.
    """
    from noisegate.sources.duckdb.source import DuckDBSource  # noqa: PLC0415 - for programs only
    from noisegate.steward.practice import practice_rows  # noqa: PLC0415

    tally = asked.query.tally
    require_place(tally, packages)
    known = {name: public(name) for name, table in tables.items() if table.is_public}
    twin = DuckDBSource(practice_rows(tables, known, rows=_MADE_UP), tables)
    (rows,) = twin.blocks(
        replace(tally, blocks=1), "made up", lambda blocks: [*map(packed, blocks)]
    )
    with Cell(_task(tally)) as cell:
        more = cell.rehearse(rows, packages=PACKAGES if packages is None else packages)
    program = replace(tally.program, imports=(*tally.program.imports, *more))
    return replace(asked, query=BlockQuery(replace(tally, program=program)))


def _task(tally: Blocks) -> Task:
    program = tally.program
    return Task(
        text=program.text,
        name=program.name,
        outputs=len(tally.ranges),
        seconds=float(tally.seconds),
        memory=tally.memory * _MEGABYTE,
        imports=program.imports,
        locked=not tally.trusted,
        workers=tally.workers,
    )


def turns_of(tally: Blocks) -> float:
    """How many seconds all blocks take together: public, and the same whatever the rows are."""
    return -(-tally.blocks // tally.workers) * tally.resample * _task(tally).turn


def _on_grid(raw: bytes, tally: Blocks) -> Sequence[int]:
    """A block's numbers as steps of their ranges, the defaults where there are none.

    Claim: whole numbers in 0, …, STEPS, made of the raw bytes alone. Rounding: to the nearest.
    """
    count = len(tally.ranges)
    values = struct.unpack(f"{count}d", raw) if len(raw) == 8 * count else (float("nan"),) * count
    found = []
    for value, (low, high), default in zip(values, tally.ranges, tally.defaults, strict=True):
        known = Fraction(value) if isfinite(value) else default
        inside = max(low, min(known, high))
        found.append(round((inside - low) * STEPS / (high - low)))
    return found
