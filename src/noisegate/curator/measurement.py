"""A question with its noise: what the door is asked to do, and all it needs to know."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, final

import numpy as np

from noisegate.algebra.relation import keyed
from noisegate.algebra.tally import Cells, Distinct, Keys, Marginals, Rows, Sums, Values
from noisegate.curator.kept import Kept
from noisegate.errors import Bug, Unsupported
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.base import Mechanism, to_record
from noisegate.mechanisms.keys.key_selection import (
    KeySelection,
    ThresholdedGaussian,
    ThresholdedGeometric,
)
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric, Summarised
from noisegate.mechanisms.keys.sparse_priority import SparsePriority
from noisegate.mechanisms.objective.perturbed_logistic import PerturbedLogistic
from noisegate.mechanisms.partitions.dawa_partition import DawaPartition
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.mechanisms.partitions.furthest import Furthest
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.partitions.small_database import SmallDatabase
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.mechanisms.quantiles.local_quantile import LocalQuantile
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.mechanisms.smooth.graph_numbers import GraphNumber, LocalGraph, OfGraph
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.noise.bits import Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.subset import Places
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, PoissonSampled, Sequential
from noisegate.sources.source import HeldCells, Source
from noisegate.transforms.distances import Distances
from noisegate.transforms.query import Query, shape_of, terms_of
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.strategy import Strategy
from noisegate.transforms.whole_rows import WholeRows

# What the door hands out for each kind of tally. Others are refused, subclasses too: they could
# sample something else than their event says.
_NOISE: Final[set[type]] = {Geometric, DiscreteGaussian}
_ALLOWED: Final[dict[type, set[type]]] = {
    Sums: _NOISE,
    Marginals: _NOISE,
    Rows: _NOISE | {BoxNoise, PerturbedLogistic},
    Distinct: _NOISE,
    Values: {Quantile, Quantiles, Brackets, LocalQuantile},
    Keys: {KeySelection, ThresholdedGeometric, ThresholdedGaussian},
    Cells: {SparseGeometric, SparsePriority, GraphNumber, LocalGraph},
}
# What knows how far one step can move it, and the noise that it may have.
_BY_REACHES: Final = (LocalQuantile, LocalGraph)
_LOCAL: Final[set[type]] = {SmoothStudent, SmoothLaplace, SmoothLognormal, ProposeTestRelease}
# What may read a sum's cells and choose by them.
_CHOICES: Final[set[type]] = {PrivTree, Splits, DawaPartition, FourierCut, Unevenness}
# What says of one block of questions only which of them stand out.
_COMPARISONS: Final[set[type]] = {AboveThreshold, Furthest, SmallDatabase}
# What chooses among candidates by their scores, or says how low the least is.
_SELECTIONS: Final = (Exponential, PermuteAndFlip, TopK, NoisyMax, LeastSum)


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
        tally = self.query.tally
        if type(self.mechanisms) is not tuple:
            raise Unsupported("mechanisms is not a tuple.", fix="Give a tuple of mechanisms.")
        kinds = {type(mechanism) for mechanism in self.mechanisms}
        if kinds & _COMPARISONS:
            self._require_comparison()
        elif kinds & set(_SELECTIONS):
            self._require_scores()
        elif CrowdCounts in kinds:
            self._require_people()
        elif kinds & _CHOICES and isinstance(tally, Sums):
            self._require_choice(tally)
        elif kinds - _ALLOWED[type(tally)]:
            raise Unsupported(
                f"The door has no rule for this noise on {type(tally).__name__.lower()}.",
                fix="Use geometric or discrete Gaussian noise for sums.",
                about="noise",
            )
        if isinstance(tally, Cells):
            self._require_cells(tally)
        if {type(each.noise) for each in self.mechanisms if isinstance(each, _BY_REACHES)} - _LOCAL:
            raise Unsupported(
                "The door has no rule for this noise.", fix="Use SmoothStudent.", about="noise"
            )
        several = isinstance(tally, Sums | Marginals | Rows) and not kinds & set(_SELECTIONS)
        wanted = len(self.query.l1s) if several else 1
        if len(self.mechanisms) != wanted:
            raise Unsupported(
                f"There are {wanted} numbers and {len(self.mechanisms)} mechanisms.",
                fix="Give one for each.",
                about="mechanisms",
            )
        self._require_boxes()
        self._require_minimiser()

    def _require_cells(self, tally: Cells) -> None:
        """Noise for these cells; of a graph, cells of two vertices and perhaps a weight."""
        graphs = [each for each in self.mechanisms if isinstance(each, OfGraph)]
        if any(each.shape != tuple(axis.size for axis in tally.by) for each in graphs):
            raise Unsupported("The graph has other vertices.", fix="Use the sizes of the axes.")
        if not graphs and {m.domain for m in self._summaries} != {tally.cells}:
            raise Unsupported(
                "The noise was made for another number of cells.",
                fix="Use the number of cells of the table.",
                about="cells",
            )

    def _require_boxes(self) -> None:
        """Noise for cells is as wide as the cells of its block."""
        for mechanism, block in zip(self.mechanisms, self.query.statistic_blocks, strict=False):
            if isinstance(mechanism, BoxNoise) and mechanism.width != block.width:
                raise Unsupported(
                    "The noise was made for other cells.", fix="Use the block's width."
                )

    def _require_minimiser(self) -> None:
        """Rows as they are go to a minimiser for rows of their shape, and nowhere else."""
        tally, whole = self.query.tally, type(self.query.strategy) is WholeRows
        if whole != (PerturbedLogistic in map(type, self.mechanisms)):
            raise Unsupported(
                "Unaggregated rows can only be read by a minimiser.", fix="Ask for a statistic."
            )
        if whole and isinstance(tally, Rows):
            shape = shape_of(tally)
            known = shape.columns, shape.keys, shape.reach, tally.whole
            if {getattr(each, "shape", None) for each in self.mechanisms} != {known}:
                raise Unsupported(
                    "The minimiser was made for rows of another shape.", fix="Use their shape."
                )

    @property
    def compares(self) -> bool:
        """Whether all that it says is which of many questions reach a threshold or stand out."""
        return any(type(mechanism) in _COMPARISONS for mechanism in self.mechanisms)

    def _require_comparison(self) -> None:
        """One block of questions about the cells of one sum, in the block's order.

        Monotone: no coefficient and no row's number is negative, so a unit that comes lets no
        answer fall; its rows weigh what they weigh whoever else is there.
        """
        query, tally = self.query, self.query.tally
        (first, *others) = self.mechanisms
        strategy = query.strategy if type(query.strategy) is Strategy else None
        single = strategy is not None and len(strategy.blocks) == 1
        if not isinstance(tally, Sums) or strategy is None or not single or others:
            raise Unsupported(
                "A threshold test needs one block of questions about one sum.",
                fix="Give a strategy.",
            )
        if isinstance(first, Furthest) and len(first.guesses) != strategy.blocks[0].size:
            raise Unsupported(
                "There must be one guess per question.", fix="Give one for each.", about="guesses"
            )
        if isinstance(first, SmallDatabase) and first.width != strategy.blocks[0].size:
            raise Unsupported(
                "The questions differ from those of the mechanism.",
                fix="Ask the questions that the databases were made for.",
            )
        rises = strategy.is_positive and tally.terms[0].low >= 0
        if isinstance(first, AboveThreshold) and first.monotone and not rises:
            raise Unsupported(
                "These sums are not monotone.", fix="Use monotone=False.", about="monotone"
            )

    def _require_scores(self) -> None:
        """One choice among sums, or guesses of tables: a unit may bring some of these nearer."""
        query, (first, *others) = self.query, self.mechanisms
        plain = isinstance(query.tally, Sums | Marginals) and query.strategy is None
        known = isinstance(first, _SELECTIONS) if plain else type(first) is Exponential
        if others or not known or not (plain or type(query.strategy) is Distances):
            raise Unsupported(
                "A choice by score needs sums, or distances from guessed tables.",
                fix="Give plain sums, or distances of marginals.",
                about="scores",
            )
        assert isinstance(first, _SELECTIONS)  # noqa: S101 - known
        if first.monotone and not (plain and self._monotone()):
            raise Unsupported(
                "These scores are not monotone.", fix="Use monotone=False.", about="monotone"
            )
        chosen = first.k if isinstance(first, TopK | NoisyMax) else 1
        if plain and chosen + (type(first) is NoisyMax) > self._candidates:
            raise Unsupported(
                "There are too few candidates.", fix="Choose fewer of them.", about="candidates"
            )

    @property
    def _candidates(self) -> int:
        tally = self.query.tally
        terms = len(tally.terms) if isinstance(tally, Sums) else 1
        return terms * tally.cells if isinstance(tally, Sums | Marginals) else 0

    def _monotone(self) -> bool:
        """Whether a unit that comes lets no sum fall, or lets none rise.

        Why: its rows weigh what they weigh whoever else is there, and all numbers of rows have one
            sign. Adjacency: add/remove.
        """
        tally = self.query.tally
        terms = terms_of(tally) if isinstance(tally, Sums | Marginals) else ()
        return all(term.low >= 0 for term in terms) or all(term.high <= 0 for term in terms)

    def _require_choice(self, tally: Sums) -> None:
        """One choice by the cells of one sum, for a table of their shape."""
        plain = self.query.strategy is None and len(tally.terms) == 1
        if not plain or len(self.mechanisms) != 1:
            raise Unsupported("A choice needs the cells of a single sum.", fix="Ask for one.")
        (mechanism,) = self.mechanisms
        if isinstance(mechanism, FourierCut | Unevenness):
            mechanism.require_cells((tally.cells,))
        shape = getattr(mechanism, "shape", (tally.cells,))
        if prod(shape) != tally.cells:
            raise Unsupported(
                "The choice was made for a table of another shape.",
                fix="Give it this shape.",
                about="shape",
            )

    def _require_people(self) -> None:
        """Cells that count people: a unit has one row, and a row counts 1 or nothing."""
        query, tally = self.query, self.query.tally
        single = isinstance(tally, Sums) and query.strategy is None and len(tally.terms) == 1
        if not isinstance(tally, Sums) or not single or len(self.mechanisms) != 1:
            raise Unsupported("A crowd needs counts in cells.", fix="Ask for one count by groups.")
        term = tally.terms[0]
        if query.stability.rows != 1 or term.grain != 1 or (term.low, term.high) != (0, 1):
            raise Unsupported(
                "One unit may have several rows here, so the cells do not count people.",
                fix="Count one row per unit, for example COUNT(DISTINCT unit).",
            )

    def event(self) -> Event:
        """What one use is, for accounting: each mechanism at the query's own sensitivity.

        Claim: releasing all terms with their noise is this event. Adjacency: add/remove one unit.
        Why: the query bounds each term's change over all cells, in both norms; terms compose
            sequentially. Of quantiles and keys, a unit holds at most `per_unit`; over several
            cells, its values are split among independent choices whose losses are proportional to
            the number of values, so together they are at most that of all values in one. Against
            a threshold, and for a choice by score, what counts is how far a unit moves any one
            (`Query.single`), and whether it moves all of them one way.
            About a sample, it is the event of those who are in it, amplified: the coins are fresh
            for each draw and never leave the door.
        """
        sample = self.query.sample
        if sample is not None:
            return PoissonSampled(event=self._inner_event(), probability=sample)
        return self._inner_event()

    def _inner_event(self) -> Event:
        """The same about those who take part."""
        query, first = self.query, self.mechanisms[0]
        if type(query.strategy) is Strategy and self.compares:
            return first.event(query.moved * query.strategy.reaches[0])
        if type(query.strategy) is Distances and type(first) is Exponential:
            return first.event(query.moved * query.strategy.reach)
        if isinstance(first, _SELECTIONS):
            return first.event(query.single)
        if isinstance(query.tally, Values | Keys) or isinstance(first, OfGraph):
            return first.event(query.per_unit)
        boxes = query.boxes or (None,) * len(query.l1s)
        pairs = zip(self.mechanisms, query.l1s, query.l2s, boxes, strict=True)
        events = tuple(
            mechanism.event({DiscreteGaussian: l2, BoxNoise: box}.get(type(mechanism), l1))
            for mechanism, l1, l2, box in pairs
        )
        return events[0] if len(events) == 1 else Sequential(events=events)

    def question(self) -> str:
        """Canonical text: two measurements with one text are one question, answered once."""
        mechanisms = [to_record(mechanism) for mechanism in self.mechanisms]
        record = {"query": self.query.to_record(), "mechanisms": mechanisms}
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def _summaries(self) -> list[Summarised]:
        return [each for each in self.mechanisms if isinstance(each, Summarised)]

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
            return self._from_cells(source.cells(tally), bits)
        if isinstance(tally, Keys):
            return _shown(source, tally, first, bits)
        if isinstance(tally, Values):
            cells = source.values(tally)
            return np.stack([first.sample(values, bits=bits) for values in cells]), None
        if isinstance(tally, Rows | Marginals):
            return self._joined(self._blocks(source if kept is None else kept, tally), bits), None
        exact = source.sums(tally) if isinstance(tally, Sums) else source.distinct(tally)
        if type(self.query.strategy) is Strategy:
            return self._joined(self.query.strategy.apply(exact[0]), bits), None
        if isinstance(first, _SELECTIONS):
            exact = exact.reshape(1, -1)
        pairs = zip(self.mechanisms, exact, strict=True)
        return np.stack([noise.sample(row, bits=bits) for noise, row in pairs]), None

    def _blocks(self, source: "Source | Kept", tally: Rows | Marginals) -> Sequence[Int64Array]:
        """The exact tables, or how far guesses of them are off, or the exact statistics of rows."""
        asked = self.query.strategy
        if isinstance(tally, Marginals):
            tables = source.marginals(tally)
            if isinstance(self.mechanisms[0], _SELECTIONS) and asked is None:
                return [np.concatenate(tables)]
            return [asked.apply(tables)] if type(asked) is Distances else tables
        if type(asked) is not Statistic and type(asked) is not WholeRows:
            raise Bug(
                "Rows can only be read through a statistic.", fix="Please report the question."
            )
        shape = shape_of(tally)
        found = source.rows(tally, lambda batches: asked.total(batches, shape))
        return [block.reshape(-1) for block in found]

    def _from_cells(self, held: HeldCells, bits: Bits) -> tuple[Int64Array, Places | None]:
        """Some of the cells with noise, or numbers of the graph whose edges they are."""
        first = self.mechanisms[0]
        if isinstance(first, OfGraph):
            return first.sample(held.cells.astype(np.int64), bits=bits)[None], None
        shown, numbers = self._summaries[0].summary(held.cells, held.counts, bits=bits)
        return numbers, shown

    def _joined(self, blocks: Sequence[Int64Array], bits: Bits) -> Int64Array:
        """Blocks of different sizes, one after the other in one row."""
        pairs = zip(self.mechanisms, blocks, strict=True)
        return np.hstack([noise.sample(block, bits=bits) for noise, block in pairs])[None]


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
