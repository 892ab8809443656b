"""Frequent itemsets: which items are held together, and by how many.

    FrequentItemsets(epsilon=1, k=20, size=2).fit(gate.matrix("baskets"))
    FrequentItemsets(epsilon=1, support=0.1, size=3).fit(gate.matrix("purchases", ["item"]))

Items are columns of yes and no (or 0 and 1), and the declared keys of other columns.
"""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any, Final, final

import numpy as np

from noisegate.curator.allowance import Allowance
from noisegate.desk.job import Progress
from noisegate.desk.plan import Plan
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.learners.fitting import Carded, FitExpected, FitJob, fit_job
from noisegate.learners.items.baskets import (
    AT_ONCE,
    Baskets,
    BasketsAsk,
    DoorBaskets,
    Itemset,
    Supports,
    baskets_of,
    choice_query,
    require_room,
)
from noisegate.learners.matrix import Matrix
from noisegate.learners.parameters import require_one_of, require_whole
from noisegate.mechanisms.base import NoiseMechanism, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.privacy.event import Event, decode, encode
from noisegate.sql.laws.sampling import Sampling

_VERSION: Final = "itemsets/1"
_CANDIDATES_MAX: Final = 50_000
_LEVEL_MAX: Final = 500  # sets of one size that are measured
_HALF: Final = Fraction(1, 2)
_METHODS: Final = ("auto", "top-k", "apriori")


@final
@dataclass(frozen=True, slots=True)
class Frequent:
    """A set of items, about how many baskets hold it, and what share of them."""

    items: tuple[str, ...]
    count: float
    support: float


class FrequentItemsets(Carded):
    """Sets of up to ``size`` items that many baskets hold.

    With ``k``, about the k most frequent: "top-k" chooses them among all sets in one go, for half
    of the price, and counts them for the other half [BLST10]. With ``support``, those that at
    least this share of baskets hold: "apriori" counts single items first, then the sets whose
    parts are all frequent [AS94], an equal share of the price for each size.

    ``basket``: "row", or "unit" for all rows of a unit together; "auto" is by unit where a unit
    may have several rows. ``subsets``: count the parts of chosen sets too, for rules. ``least``:
    report no smaller sets.

    After `fit`: ``itemsets_``, most frequent first; ``rows_``, about how many baskets there are;
    ``within(confidence)``; ``cost_``, ``remaining_``, ``guarantee_``, ``free_``.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the analyst
        self,
        *,
        epsilon: Number | None = None,
        k: int | None = None,
        support: Number | None = None,
        size: int = 2,
        least: int = 1,
        method: str = "auto",
        basket: str = "auto",
        subsets: bool = False,
    ) -> None:
        self.epsilon, self.k, self.support, self.size, self.least = epsilon, k, support, size, least
        self.method, self.basket, self.subsets = method, basket, subsets

    def fit(self, matrix: Matrix, *, fresh: bool = False) -> "FrequentItemsets":
        """Search through the door; what was found before at this price is found again, free."""
        baskets, plan = self._asked(matrix)
        self._rounds, receipt = matrix.desk.run(self._job(matrix, baskets, plan), fresh=fresh)
        self._paid(receipt, matrix)
        self.free_ = receipt.free
        self._names, self._plan_of = baskets.names, plan
        self.request_id_, self.rows_ = receipt.request_id, self._rounds[0].rows
        self.itemsets_ = self._reported()
        return self

    def plan(self, matrix: Matrix, *, fresh: bool = False) -> Plan[FitExpected]:
        """The price of a search. Free: spends nothing, reads no row."""
        return matrix.desk.plan(self._job(matrix, *self._asked(matrix)), fresh=fresh)

    def _asked(self, matrix: Matrix) -> "tuple[Baskets, Search]":
        baskets = baskets_of(matrix, self.basket)
        return baskets, self._plan(len(baskets.names))

    def _job(self, matrix: Matrix, baskets: Baskets, plan: "Search") -> FitJob[list[Supports]]:
        price = matrix.desk.price(self.epsilon)
        require_room(baskets, price, min(_HALF, Fraction(1, plan.size)))

        def draw(allowed: Allowance, progress: Progress) -> bytes:  # noqa: ARG001 - quick
            rounds = search(DoorBaskets(allowed.whole, baskets, price), plan)
            return _pack(rounds, encode(allowed.used()))

        return fit_job(
            matrix,
            type(self).__name__,
            {"learner": _VERSION, "plan": plan.to_record()},
            choice_query(baskets, [(place,) for place in range(len(baskets.items))]),
            epsilon=self.epsilon,
            draw=draw,
            read=_unpack,
            words="these itemsets of",
        )

    def within(self, confidence: Number = USUAL) -> float:
        """The error bar of each count, each by itself; with several sizes, the largest."""
        return max(each.within(confidence) for each in self._rounds)

    def rows_within(self, confidence: Number = USUAL) -> float:
        """The error bar of the number of baskets."""
        return self._rounds[0].rows_within(confidence)

    @property
    def counts(self) -> dict[Itemset, float]:
        """All sets that were counted, by the places of their items."""
        return _counts(self._rounds)

    def named(self, each: Sequence[int]) -> tuple[str, ...]:
        """The names of items."""
        return tuple(self._names[place] for place in each)

    def _reported(self) -> list[Frequent]:
        plan, counts = self._plan_of, self.counts
        rows = max(1.0, self.rows_)
        chosen = [each for each in counts if len(each) >= plan.least]
        if plan.support is not None:
            chosen = [each for each in chosen if counts[each] >= float(plan.support) * rows]
        chosen.sort(key=lambda each: (-counts[each], each))
        if plan.k is not None:
            kept = self._rounds[-1].sets[: plan.k] if plan.method == "top-k" else chosen[: plan.k]
            chosen = [each for each in chosen if each in set(kept)]
        return [
            Frequent(self.named(each), counts[each], float(np.clip(counts[each] / rows, 0, 1)))
            for each in chosen
        ]

    def _plan(self, items: int) -> "Search":
        """What is to be done, checked before anything is paid."""
        if (self.k is None) == (self.support is None):
            raise SpecError("Give k or support.", fix="Say how many sets, or how frequent ones.")
        method = require_one_of(self.method, "method", _METHODS)
        size = require_whole(self.size, "size", 1, items)
        least = require_whole(self.least, "least", 1, size)
        support = None if self.support is None else fraction(self.support, name="support")
        if support is not None and not 0 < support <= 1:
            raise SpecError(
                "support is not a share.", fix="Use a share of the baskets, such as 0.1."
            )
        candidates = sum(comb(items, count) for count in range(least, size + 1))
        few = candidates <= _CANDIDATES_MAX
        if method == "auto":
            method = "top-k" if self.k is not None and few else "apriori"
        if method == "top-k" and (self.k is None or not few):
            raise SpecError(
                "The best k are chosen among at most 50,000 sets.",
                fix='Give k, fewer items or a smaller size; or use method="apriori".',
            )
        k = None if self.k is None else require_whole(self.k, "k", 1, min(candidates, _LEVEL_MAX))
        if method == "top-k" and self.subsets and k is not None:
            parts = sum(comb(items, count) for count in range(1, size + 1))
            if min(k * (2**size - 1), parts) > AT_ONCE:
                raise SpecError(
                    f"{k:,} sets could have more than {AT_ONCE:,} parts.",
                    fix="Use a smaller k or size, or leave out subsets.",
                )
        return Search(
            method=method, k=k, support=support, size=size, least=least, subsets=bool(self.subsets)
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search: how many sets, or how frequent ones, of which sizes."""

    method: str
    k: int | None
    support: Fraction | None
    size: int
    least: int
    subsets: bool

    def to_record(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "method": self.method, "k": self.k, "size": self.size, "least": self.least,
            "support": None if self.support is None else str(self.support),
            "subsets": self.subsets,
        }  # fmt: skip


def search(ask: BasketsAsk, plan: Search) -> list[Supports]:
    """The rounds of a search: the sets that were counted, size by size, or all at once."""
    return _top(ask, plan) if plan.method == "top-k" else _apriori(ask, plan)


def _top(ask: BasketsAsk, plan: Search) -> list[Supports]:
    """Choose k of all sets, then count them, and with ``subsets`` their parts, in one round."""
    assert plan.k is not None  # noqa: S101 - as planned
    sizes = range(plan.least, plan.size + 1)
    every = [each for size in sizes for each in combinations(range(ask.items), size)]
    if plan.k == len(every):
        return [ask.supports(_with_parts(every, plan), Fraction(1))]
    chosen = ask.choose(every, plan.k, _HALF)
    return [ask.supports(_with_parts(chosen, plan), _HALF)]


def _with_parts(sets: Sequence[Itemset], plan: Search) -> list[Itemset]:
    """The sets first, in their order."""
    if not plan.subsets:
        return list(sets)
    parts = [p for each in sets for n in range(1, len(each)) for p in combinations(each, n)]
    return list(dict.fromkeys([*sets, *parts]))


def _apriori(ask: BasketsAsk, plan: Search) -> list[Supports]:
    """Single items first, then sets whose parts were all frequent, as far as there are any."""
    share = Fraction(1, plan.size)
    found = [ask.supports([(place,) for place in range(ask.items)], share)]
    for size in range(2, plan.size + 1):
        counts = _counts(found)
        sets = _joined(counts, size, _bar(counts, plan, found[0].rows))
        if not sets:
            break
        found.append(ask.supports(sets, share))
    return found


def _counts(rounds: Sequence[Supports]) -> dict[Itemset, float]:
    pairs = (pair for part in rounds for pair in zip(part.sets, part.counts, strict=True))
    return {each: float(count) for each, count in pairs}


def _bar(counts: Mapping[Itemset, float], plan: Search, rows: float) -> float:
    """What a set must reach to be frequent: a share of the baskets, or the k-th so far."""
    if plan.support is not None:
        return float(plan.support) * max(1.0, rows)
    best = sorted(counts.values(), reverse=True)
    assert plan.k is not None  # noqa: S101 - as planned
    return best[min(plan.k, len(best)) - 1]


def _joined(counts: Mapping[Itemset, float], size: int, bar: float) -> list[Itemset]:
    """Sets of this size whose parts of one less are all frequent; of too many, the likeliest."""
    before = {each for each, count in counts.items() if len(each) == size - 1 and count >= bar}
    items = sorted({item for each in before for item in each})
    joined = {
        (*each, item)
        for each in before
        for item in items
        if item > each[-1] and all(p in before for p in combinations((*each, item), size - 1))
    }
    worth = {each: min(counts[p] for p in combinations(each, size - 1)) for each in joined}
    return sorted(sorted(joined, key=lambda each: (-worth[each], each))[:_LEVEL_MAX])


# the ledger


def _pack(rounds: Sequence[Supports], event: Any) -> bytes:  # noqa: ANN401 - JSON
    held = [
        {
            "sets": each.sets,
            "counts": each.counts.tolist(),
            "rows": each.rows,
            "noise": to_record(each.noise),
            "count_noise": to_record(each.count_noise),
            "reach": each.reach,
            "whole": each.whole,
            "sampling": None if each.sampling is None else each.sampling.to_record(),
        }
        for each in rounds
    ]
    return json.dumps({"rounds": held, "event": event}).encode()


def _unpack(stored: bytes) -> tuple[list[Supports], Event]:
    held = json.loads(stored)
    rounds = [
        Supports(
            sets=tuple(map(tuple, each["sets"])),
            counts=np.array(each["counts"]),
            rows=each["rows"],
            noise=_noise(each["noise"]),
            count_noise=_noise(each["count_noise"]),
            reach=each["reach"],
            whole=each["whole"],
            sampling=Sampling.from_record(each.get("sampling")),
        )
        for each in held["rounds"]
    ]
    return rounds, decode(held["event"])


def _noise(record: Mapping[str, Any]) -> NoiseMechanism[Any]:
    found = from_record(record)
    if not isinstance(found, NoiseMechanism):
        raise Unsupported(
            "The stored noise is of an unknown kind.", fix="Use the model as it was stored."
        )
    return found
