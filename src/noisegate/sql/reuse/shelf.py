"""What was released before, and which new questions it answers at no cost.

Every stored sum is a number for each cell of its groups, with known noise. A new sum over the same
rows can be read off it: with the same groups, or fewer (their cells are added up), or only some
keys (other cells are left out), also where the new question says so by WHERE. Showing what was
released is post-processing: it costs nothing, whoever paid for it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Expression, to_plain
from noisegate.algebra.known import remembered
from noisegate.algebra.tally import Sums
from noisegate.curator.measurement import Measurement, digest
from noisegate.frozen import dataclass, field, replace
from noisegate.ledger.ledger import Ledger, Settled
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism
from noisegate.mechanisms.catalogue import from_record
from noisegate.privacy.release import Release
from noisegate.sql.estimates.estimate import Released
from noisegate.sql.laws.known import Known, grains_of, listed, pooled, scaled
from noisegate.sql.laws.laws import Draws, Law, Noise, as_noise, combined
from noisegate.transforms.query import Query

Json: TypeAlias = Any
Axis: TypeAlias = tuple[str, tuple[Json, ...]]  # a grouping: its expression and its keys
REST: Final = MappingProxyType({"rest": True})  # the key of the rows that have no listed one
_NOISES: Final = frozenset({Geometric.name, DiscreteGaussian.name})  # others choose, or find keys
_LITTLE: Final = Fraction(1, 1 << 40)  # of what is asked for: less is not worth a draw


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One released sum: what was ``asked``, its numbers and its noise."""

    asked: "_Asked"
    values: NDArray[np.int64]
    noise: Noise
    release: Release
    seq: int  # of its entry in the ledger


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An answer at no cost: a whole number for each asked cell, made of ``cells`` stored ones."""

    values: NDArray[np.int64]
    cells: int
    noise: Noise
    release: Release
    seq: int
    words: str

    @property
    def law(self) -> Law:
        """The noise of each number, in multiples of the term's grain."""
        return Law((Draws(Fraction(1), self.cells, self.noise),))


@final
@dataclass(frozen=True, slots=True)
class _Known:
    """The sums of a ledger up to entry ``seen``, by rows and term. It never changes."""

    seen: int = -1
    sums: Mapping[tuple[str, str], tuple[Stored, ...]] = field(default_factory=dict)
    axes: frozenset[str] = frozenset()

    def and_then(self, settled: Sequence[Settled]) -> "_Known":
        """The same with the next entries."""
        sums, axes = dict(self.sums), set(self.axes)
        for each in settled:
            for stored in _stored_sums(each):
                name = stored.asked.rows, stored.asked.term
                sums[name] = (*sums.get(name, ()), stored)
                axes |= {axis for axis, _ in stored.asked.by}
        return _Known(settled[-1].seq, sums, frozenset(axes))


@final
@dataclass(slots=True)
class Shelf:
    """The released sums of a ledger, kept up to date by reading its new entries.

    Threads may share it without a lock, which a fork could leave locked: each goes on from a state
    that never changes, so no draw is on the shelf twice, and none is missing that was seen.
    """

    ledger: Ledger
    _known: _Known = field(default_factory=_Known)
    _is_still: bool = False

    def still(self) -> "Shelf":
        """The shelf as it is now, for one question: it reads the ledger once."""
        return Shelf(self.ledger, self._read(), _is_still=True)

    def needed(
        self, query: Query, mechanisms: Sequence[Mechanism[Any]], level: Fraction | None
    ) -> "Needed":
        """What of a question must be measured, and what the shelf has.

        A term is taken from the shelf if at least as much was paid for it as it would cost now:
        each released cell has no more noise than asked for. If less was paid for the very same
        cells, the difference is bought as one more draw, and all draws are combined.

        Where ``level`` is given an accuracy was asked for: what comes from the shelf must keep the
        half-width of the asked noise at that confidence, and else the whole is bought.

        All terms are looked up in one state of the ledger: were another process to settle the same
        question in between, half of it would be found and the other half bought again.
        """
        if not isinstance(query.tally, Sums):
            return Needed.all_of(query, mechanisms)
        known = self._read()
        lines = tuple(
            self._line(self._found(query, place, known), as_noise(mechanism), level)
            for place, mechanism in enumerate(mechanisms)
        )
        return Needed(query=query, lines=lines)

    def _line(self, offers: list[Offer], wanted: Noise, level: Fraction | None) -> "Line":
        same = [offer for offer in offers if offer.cells == 1 and type(offer.noise) is type(wanted)]
        rest = _strength(wanted) - sum(_strength(offer.noise) for offer in same)
        if level is not None:
            goal = wanted.interval(level)
            drawn = [Known(np.zeros(1, np.int64), offer.law) for offer in same]
            if same and pooled(drawn).law.half_width(level) <= goal:
                return Line(offers=tuple(same))
            good = [offer for offer in offers if offer.law.half_width(level) <= goal]
        else:
            if same and rest < max(_strength(wanted) * _LITTLE, 1 / type(wanted).MOST):
                return Line(offers=tuple(same))
            good = [
                offer
                for offer in offers
                if type(offer.noise) is type(wanted) and _strength(offer.noise) >= _strength(wanted)
            ]
        if good:
            return Line(offers=(min(good, key=lambda offer: offer.law.variance),))
        missing = _of_strength(wanted, rest) if same and level is None else wanted
        return Line(offers=tuple(same), noise=missing)

    def offers(self, query: Query, term: int, *, strictly: bool = True) -> list[Offer]:
        """Everything on the shelf that answers one term of a question.

        Without ``strictly``, units may have other weights in it: good enough for a guess.
        """
        return self._found(query, term, self._read(), strictly=strictly)

    def is_grouped_by(self, expression: Expression) -> bool:
        """Whether anything on the shelf is: if not, no question that is needs to be looked for."""
        return _text(to_plain(expression)) in self._read().axes

    def _found(
        self, query: Query, term: int, known: _Known, *, strictly: bool = True
    ) -> list[Offer]:
        asked = _asked(query, term) if strictly else replace(_asked(query, term), weights=None)
        found = known.sums.get((asked.rows, asked.term), ())
        offers = (_offer(stored, asked) for stored in found)
        return [offer for offer in offers if offer is not None]

    def _read(self) -> _Known:
        known = self._known
        if not self._is_still and (new := self.ledger.settled(known.seen, wanted=_is_sums)):
            known = self._known = known.and_then(new)
        return known


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One term: what the shelf offers for it, and the noise with which it is measured, if it is."""

    offers: tuple[Offer, ...] = ()
    noise: Mechanism[Any] | None = None

    @property
    def laws(self) -> list[Law]:
        """The laws of all its numbers: of the offers, then of the new draw."""
        found = [offer.law for offer in self.offers]
        if isinstance(self.noise, Geometric | DiscreteGaussian):
            found.append(Law((Draws(Fraction(1), 1, self.noise),)))
        return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A part of a question: each term's line, and the measurement of those that are missing."""

    query: Query
    lines: tuple[Line, ...]
    stored: Release | None = None  # the very same measurement, if it was made before

    @classmethod
    def all_of(cls, query: Query, mechanisms: Sequence[Mechanism[Any]]) -> "Needed":
        """Nothing comes from the shelf."""
        return cls(query=query, lines=tuple(Line(noise=mechanism) for mechanism in mechanisms))

    @property
    def measurement(self) -> Measurement | None:
        """What must be paid for: the terms that have no offer, or too weak ones."""
        return _missing(self)

    def known(self, release: Release | None) -> Released:
        """All that is known of each term: from the shelf, and from the release."""
        tally, release = self.query.tally, release or self.stored
        if not isinstance(tally, Sums):
            assert release is not None  # noqa: S101 - measured now or before
            return release.values
        fresh = iter(() if release is None else release.values)
        found = []
        for grain, line in zip(grains_of(self.query), self.lines, strict=True):
            rows = [(offer.values, law) for offer, law in zip(line.offers, line.laws, strict=False)]
            if line.noise is not None:
                rows.append((next(fresh), line.laws[-1]))
            found.append([
                Known(scaled(listed(row, tally.by), grain), combined([(grain, law)]))
                for row, law in rows
            ])  # fmt: skip
        return found

    def expected(self, guessed: NDArray[np.int64]) -> Released:
        """The same before anything is paid: guessed numbers with the laws they would have."""
        tally = self.query.tally
        if not isinstance(tally, Sums):
            return guessed
        return [
            [Known(scaled(row, grain), combined([(grain, law)])) for law in line.laws]
            for row, grain, line in zip(guessed, grains_of(self.query), self.lines, strict=True)
        ]

    @property
    def name(self) -> str | None:
        """A name for one more draw of cells that were drawn before; None for a first draw.

        It says what is drawn and which draws there were, so that the same step is paid once, and
        the next, or one about other terms of the same releases, is another.
        """
        earlier = {o.release.request_id for line in self.lines if line.noise for o in line.offers}
        if not earlier or (measured := self.measurement) is None:
            return None
        return f"after {digest(' '.join([*sorted(earlier), measured.question()]))}"

    @property
    def releases(self) -> tuple[Release, ...]:
        """The stored releases that are used."""
        offers = (offer for line in self.lines for offer in line.offers)
        if self.stored is not None:
            return (self.stored,)
        return tuple({offer.release.request_id: offer.release for offer in offers}.values())

    @property
    def words(self) -> str:
        """What comes from the shelf, in words; empty if nothing does."""
        if self.stored is not None:
            return "asked before"
        return "; ".join(dict.fromkeys(offer.words for line in self.lines for offer in line.offers))


@remembered
def _missing(needed: Needed) -> Measurement | None:
    noises = tuple(line.noise for line in needed.lines if line.noise is not None)
    query, tally = needed.query, needed.query.tally
    if not noises or needed.stored is not None:
        return None
    if isinstance(tally, Sums) and len(noises) < len(needed.lines):
        pairs = zip(tally.terms, needed.lines, strict=True)
        terms = tuple(term for term, line in pairs if line.noise is not None)
        query = Query(replace(tally, terms=terms))
    return Measurement(query=query, mechanisms=noises)


def _strength(noise: Noise) -> Fraction:
    """What the noise costs, up to a factor: ε for geometric noise, ρ for Gaussian."""
    return 1 / (noise.scale if isinstance(noise, Geometric) else noise.variance)


def _of_strength(noise: Noise, strength: Fraction) -> Noise:
    if isinstance(noise, Geometric):
        return Geometric(scale=1 / strength)
    return DiscreteGaussian(variance=1 / strength)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A sum: over which rows and groups, as the ledger writes it."""

    rows: str
    conditions: frozenset[str]
    by: tuple[Axis, ...]
    term: str
    tables: Mapping[str, Json]
    weights: Json


@remembered
def _asked(query: Query, term: int) -> _Asked:
    """One term of a question, as the ledger writes it."""
    return next(_sums(json.loads(json.dumps(query.to_record())), term, term + 1))


def _text(record: Json) -> str:
    return json.dumps(record, sort_keys=True)


def _is_sums(text: str) -> bool:
    """Whether a question's numbers can stand on the shelf: plain sums with independent noise."""
    try:
        question = json.loads(text)
        record = question["query"]
        is_plain = "sums" in record["tally"] and "strategy" not in record
        return is_plain and all(m["mechanism"] in _NOISES for m in question["mechanisms"])
    except (ValueError, TypeError, KeyError):
        return False  # a question of another kind, or of an earlier version


def _stored_sums(settled: Settled) -> Iterator[Stored]:
    if settled.answer is None:
        return
    question = json.loads(settled.question)
    record = question["query"]
    release = Release.from_bytes(
        settled.answer, question=settled.question, request_id=settled.request_id, free=True
    )
    sums = _sums(record, 0, len(record["tally"]["sums"]))
    for place, asked in enumerate(sums):
        noise = as_noise(from_record(question["mechanisms"][place]))
        yield Stored(asked=asked, values=release.values[place], noise=noise, release=release,
                     seq=settled.seq)  # fmt: skip


def _sums(record: Json, first: int, last: int) -> Iterator[_Asked]:
    """The terms of a question's record, each as a question of its own."""
    tally = record["tally"]
    rows, conditions = tally["rows"], set()
    while "where" in rows:
        conditions |= set(map(_text, _conjuncts(rows["where"])))
        rows = rows["of"]
    by = tuple(
        (_text(expression), (*keys, REST) if rest else tuple(keys))
        for expression, keys, rest in tally["by"]
    )
    bounds = tally["cap"], tally.get("squares")
    weights = None if bounds == (None, None) else [*bounds, tally.get("sized", tally["sums"])]
    base = _text([record["dataset"], rows, weights])
    for term in tally["sums"][first:last]:
        yield _Asked(
            rows=base, conditions=frozenset(conditions), by=by, term=_text(term),
            tables=record["tables"], weights=weights,
        )  # fmt: skip


def _conjuncts(condition: Json) -> Iterator[Json]:
    if isinstance(condition, list) and condition[0] == "and":
        for part in condition[1:]:
            yield from _conjuncts(part)
    else:
        yield condition


def _offer(stored: Stored, asked: _Asked) -> Offer | None:
    was = stored.asked
    extra = asked.conditions - was.conditions
    if not was.conditions <= asked.conditions or not _same_facts(was.tables, asked.tables):
        return None
    if asked.weights is not None and (extra or not _weigh_alike(was, asked)):
        return None  # a filter changes the weights too: they are those of what is left
    picked: dict[str, list[Json]] = {}
    for condition in extra:
        axis = _restriction(json.loads(condition), was.by)
        if axis is None or axis[0] in picked:
            return None
        picked[axis[0]] = axis[1]
    places = _places(was.by, dict(asked.by), picked)
    return None if places is None else _read_off(stored, asked, places, picked)


def _weigh_alike(stored: _Asked, asked: _Asked) -> bool:
    """Whether units have the same weights over the groups of both, by the same bounds.

    Why: a weight follows from a norm over all cells. Over the same cells it is the same; and so is
        an L1 norm of numbers of one sign over any cells that hold all rows: it is their sum.
    """
    _, squares, sized = asked.weights
    one, other = ({e: _places_of(keys).keys() for e, keys in each.by} for each in (stored, asked))
    whole = all(_name(REST) in keys for by in (one, other) for keys in by.values())
    signed = any(low < 0 < high for _, _, low, high in sized)
    return one == other or (whole and squares is None and not signed)


def _places(
    by: Sequence[Axis],
    wanted: Mapping[str, tuple[Json, ...]],
    picked: Mapping[str, list[Json]],
) -> list[list[int]] | None:
    """For each stored grouping the places of the keys that are read off, if all are there."""
    if not wanted.keys() <= dict(by).keys():
        return None
    places: list[list[int]] = []
    for expression, keys in by:
        place_of, asked = _places_of(keys), _places_of(wanted.get(expression, keys))
        chosen = {_name(key) for key in picked[expression]} if expression in picked else place_of
        shown = [name for name in asked if name in chosen]
        if not place_of.keys() >= asked.keys() or (expression in wanted and shown != [*asked]):
            return None
        if expression not in wanted and expression not in picked and _name(REST) not in place_of:
            return None  # rows without a listed key are in no cell, so cells are not the total
        places.append([place_of[name] for name in shown])
    return places


def _read_off(
    stored: Stored, asked: _Asked, places: Sequence[list[int]], picked: Mapping[str, object]
) -> Offer:
    by = stored.asked.by
    shape = tuple(len(keys) for _, keys in by)
    cells = stored.values.reshape(shape)[np.ix_(*places)] if shape else stored.values
    names = [expression for expression, _ in by]
    order = [names.index(expression) for expression, _ in asked.by]
    rest = [axis for axis in range(len(names)) if axis not in order]
    moved = np.transpose(cells, (*order, *rest)) if shape else cells
    kept = moved.shape[: len(order)] if shape else ()
    flat = moved.reshape((int(np.prod(kept)), -1)).astype(object)
    values = np.clip(flat.sum(axis=1), -(1 << 60), 1 << 60).astype(np.int64)
    added = [names[axis] for axis in rest if names[axis] not in picked and len(places[axis]) > 1]
    words = "asked before"
    if added:
        words = f"added up over {len(added)} released grouping{'s' if len(added) > 1 else ''}"
    elif picked:
        words = "picked from released groups"
    return Offer(
        values=values, cells=flat.shape[1], noise=stored.noise, release=stored.release,
        seq=stored.seq, words=words,
    )  # fmt: skip


@remembered
def _places_of(keys: tuple[Json, ...]) -> Mapping[tuple[type, str], int]:
    """Where in a list of keys each is, in their order."""
    return {_name(key): place for place, key in enumerate(keys)}


def _name(key: Json) -> tuple[type, str]:
    """A key as something to look up: 1, "1" and true are three."""
    return type(key), str(dict(key) if isinstance(key, Mapping) else key)


def _restriction(condition: Json, by: Sequence[Axis]) -> tuple[str, list[Json]] | None:
    """The grouping whose keys a condition chooses, and the keys."""
    if not isinstance(condition, list) or condition[0] not in ("eq", "in", "is_null"):
        return None
    subject, literals = condition[1], condition[2:]
    if condition[0] == "eq" and _is_literal(subject):
        subject, literals = literals[0], [subject]
    if not all(map(_is_literal, literals)):
        return None
    chosen = [value for literal in literals for value in literal.values()]
    if None in chosen:
        return None  # nothing equals NULL
    if condition[0] == "is_null":
        chosen = [None]
    for expression, keys in by:
        if expression == _text(subject):
            known = [any(k == key and type(k) is type(key) for k in keys) for key in chosen]
            return (expression, chosen) if all(known) else None
    return None


def _is_literal(record: Json) -> bool:
    return isinstance(record, dict) and "field" not in record


def _same_facts(stored: Mapping[str, Json], asked: Mapping[str, Json]) -> bool:
    """Whether both mean the same rows: tables, units, and how the columns of both are read."""
    if stored.keys() != asked.keys():
        return False
    for name, facts in stored.items():
        other = asked[name]
        if any(facts[fact] != other[fact] for fact in ("origin", "snapshot", "unit")):
            return False
        shared = facts["columns"].keys() & other["columns"].keys()
        if any(facts["columns"][column] != other["columns"][column] for column in shared):
            return False
    return True
