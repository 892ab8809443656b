"""A question with its noise: what the door is asked to do, and all it needs to know."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from noisegate.algebra.known import remembered
from noisegate.algebra.relation import keyed
from noisegate.algebra.tally import Cells, Keys, Marginals, Rows, Sums, Values
from noisegate.curator.kept import Kept
from noisegate.errors import Bug, Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import Mechanism, OfCells, to_record
from noisegate.mechanisms.catalogue import capabilities_of
from noisegate.noise.bits import Bits
from noisegate.noise.chunks import Int64Array, Places
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, PoissonSampled, Sequential
from noisegate.sources.source import Source
from noisegate.transforms.query import Query, shape_of


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """An exact query and its mechanisms: one for each term, set or block of sums, else one.

    A choice reads the cells of one sum, as they are, and releases what it chose. A choice by score
    releases the place of a table whose guess is nearly the worst, or of a sum that is nearly the
    largest of all terms (or tables) and cells.
    """

    query: Query
    mechanisms: tuple[Mechanism[Any], ...]

    def __post_init__(self) -> None:
        if type(self.mechanisms) is not tuple:
            raise Unsupported("mechanisms is not a tuple.", fix="Give a tuple of mechanisms.")
        _ = self.capabilities  # refuses what is not on the closed list
        for place, mechanism in enumerate(self.mechanisms):
            mechanism.require(self.query, place)
        alone = self._is_whole or not isinstance(self.query.tally, Sums | Marginals | Rows)
        wanted = 1 if alone else len(self.query.l1s)
        if len(self.mechanisms) != wanted:
            raise Unsupported(
                f"There are {wanted} numbers and {len(self.mechanisms)} mechanisms.",
                fix="Give one for each.",
                about="mechanisms",
            )

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses; refuses mechanisms that the door does not know.

        Statistics of rows are one by themselves, whatever noise they have.
        """
        found = map(capabilities_of, self.mechanisms)
        return frozenset({"learning"} if self.query.asks == "statistic" else ()).union(*found)

    @property
    def _is_whole(self) -> bool:
        """Whether one of its mechanisms reads all numbers together: then it is the only one."""
        return any(mechanism.takes.is_whole for mechanism in self.mechanisms)

    @property
    def compares(self) -> bool:
        """Whether all that it says is which of many questions reach a threshold or stand out."""
        return self.query.asks == "combinations" and self._is_whole

    def event(self) -> Event:
        """What one use is, for accounting: each mechanism at the query's own sensitivity.

        Claim: releasing all terms with their noise is this event. Adjacency: add/remove one unit.
        Why: the query bounds each term's change over all cells, in both norms; terms compose
            sequentially. Of quantiles and keys, a unit holds at most `per_unit`; over several
            cells, its values are split among independent choices whose losses are proportional to
            the number of values, so together they are at most that of all values in one. Against
            a threshold, and for a choice by score, what counts is how far a unit moves any one
            (`Query.any_one`), and whether it moves all of them one way.
            About a sample, it is the event of those who are in it, amplified: the coins are fresh
            for each draw and never leave the door.
        """
        sample = self.query.sample
        if sample is not None:
            return PoissonSampled(event=self._inner_event(), probability=sample)
        return self._inner_event()

    def _inner_event(self) -> Event:
        """The same about those who take part: each mechanism names the sensitivity it takes."""
        events: list[Event] = []
        for place, mechanism in enumerate(self.mechanisms):
            mechanism.require(self.query, place)  # what has no rule has no price, however it came
            found = getattr(self.query, mechanism.takes.value)
            events.append(mechanism.event(found if mechanism.takes.is_whole else found[place]))
        return events[0] if len(events) == 1 else Sequential(events=tuple(events))

    @remembered
    def question(self) -> str:
        """Canonical text: two measurements with one text are one question, answered once."""
        record = {"query": self.query.to_record(), "mechanisms": [*map(to_record, self.mechanisms)]}
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def draw(
        self, source: Source, bits: Bits, kept: Kept | None = None
    ) -> tuple[Int64Array, tuple[tuple[Key, ...], ...] | Places | None]:
        """The noisy numbers, and the keys (or numbers of cells) if these were asked for.

        Reads rows, but for tables that are ``kept``; call it once paid.
        """
        tally, first = self.query.tally, self.mechanisms[0]
        if self.query.sample is not None:
            tally = replace(tally, relation=keyed(tally.relation, fresh_coins(bits)))
        if isinstance(tally, Cells):
            return _from_cells(source, tally, first, bits)
        if isinstance(tally, Keys):
            return _shown(source, tally, first, bits)
        if isinstance(tally, Values):
            cells = source.values(tally)
            return np.stack([first.sample(values, bits=bits) for values in cells]), None
        if isinstance(tally, Rows | Marginals):
            return self._joined(self._blocks(source if kept is None else kept, tally), bits), None
        exact = (kept or source).sums(tally) if isinstance(tally, Sums) else source.distinct(tally)
        if self.query.asks == "combinations":
            return self._joined(self.query.combinations.apply(exact[0]), bits), None
        if self._is_whole:
            exact = exact.reshape(1, -1)
        pairs = zip(self.mechanisms, exact, strict=True)
        return np.stack([noise.sample(row, bits=bits) for noise, row in pairs]), None

    def _blocks(self, source: "Source | Kept", tally: Rows | Marginals) -> Sequence[Int64Array]:
        """The exact tables, or how far guesses of them are off, or the exact statistics of rows."""
        query = self.query
        if isinstance(tally, Marginals):
            tables = source.marginals(tally)
            if query.asks == "distances":
                return [query.distances.apply(tables)]
            return [np.concatenate(tables)] if self._is_whole else tables
        if query.asks not in ("statistic", "rows"):
            raise Bug(
                "Rows can only be read through a statistic.", fix="Please report the question."
            )
        shape = shape_of(tally)
        found = source.rows(tally, lambda batches: query.statistic.total(batches, shape))
        return [block.reshape(-1) for block in found]

    def _joined(self, blocks: Sequence[Int64Array], bits: Bits) -> Int64Array:
        """Blocks of different sizes, one after the other in one row."""
        pairs = zip(self.mechanisms, blocks, strict=True)
        return np.hstack([noise.sample(block, bits=bits) for noise, block in pairs])[None]


def _from_cells(
    source: Source, tally: Cells, mechanism: Mechanism[Any], bits: Bits
) -> tuple[Int64Array, Places | None]:
    """Some of the cells with noise, or numbers of the graph whose edges they are."""
    if not isinstance(mechanism, OfCells):
        raise Bug("These cells go to their own noise.", fix="Please report the question.")
    held = source.cells(tally)
    shown, numbers = mechanism.summary(held.cells, held.counts, bits=bits)
    return numbers, shown


def fresh_coins(bits: Bits) -> str:
    """A key that decides the coins of one sample: 256 bits, drawn for it alone."""
    return f"{bits.integer(256):064x}"


def _shown(
    source: Source, tally: Keys, mechanism: Mechanism[Any], bits: Bits
) -> tuple[Int64Array, tuple[tuple[Key, ...], ...]]:
    """The keys that may be shown, in their own order: the engine's order is that of rows."""
    held = source.keys(tally)
    released = mechanism.sample(held.counts, bits=bits)
    places = np.flatnonzero(released)
    pairs = zip(held.take(places), released[places].tolist(), strict=True)
    rows = sorted(pairs, key=lambda pair: [(key is None, key) for key in pair[0]])
    return np.array([value for _, value in rows], np.int64), tuple(key for key, _ in rows)


def digest(text: str) -> str:
    """A short stable name for a question."""
    return hashlib.sha256(text.encode()).hexdigest()[:40]
