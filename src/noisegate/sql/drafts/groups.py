"""Which groups a block has, and how much of a unit counts in them.

Groups are declared, found or to be found; tables over several grouping sets are made consistent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Final, TypeAlias, final

import numpy as np

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.algebra.relation import Filter, Relation
from noisegate.algebra.tally import Keys
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Key
from noisegate.sql.laws.known import Known
from noisegate.sql.laws.laws import Floats, Law, combined
from noisegate.sql.question import Block, GroupKey
from noisegate.transforms.stability import stability_of

Columns: TypeAlias = tuple[int, ...]  # indexes of key columns, rising


@final
class Marginals:
    """Measured tables of one quantity and what follows for all tables below them.

    They are made consistent: children add up to their parents, with least variance.

    Let the groups be all combinations of keys, n_j keys of column j, and let table s (a set of
    columns) be measured with independent noise of variance v_s per cell. A table over columns
    splits into orthogonal parts, one for each subset u of its columns: sum over all other columns,
    then take away the average along each column of u. All measured s ⊇ u see the same part u, with
    independent errors whose variances stand as v_s / m_s, m_s being the number of cells of the full
    table per cell of s; and different parts of one table have uncorrelated errors. So the
    least-squares estimate (the best linear unbiased one, for any noise) takes each part by itself,
    as the average of what the s ⊇ u say with weights m_s / v_s, and a table is the sum of its
    parts. This is exact for ROLLUP, CUBE and every other family of sets, and takes time in
    proportion to the cells.

    A cell's error is a known sum of draws: the factor of a draw depends only on which columns of
    its cell agree with ours. So error bars come from the exact law.
    """

    def __init__(self, measured: Mapping[Columns, Known], sizes: Sequence[int]) -> None:
        self._measured, self._sizes = measured, sizes
        self._laws = {columns: known.law for columns, known in measured.items()}
        self._parts: dict[Columns, Floats] = {}

    def known(self, asked: Columns) -> Known:
        """The table over the asked columns, flat; some measured set must contain them."""
        if len(self._measured) == 1:
            return self._added(asked)
        sizes = self._sizes
        total = np.zeros(tuple(sizes[j] for j in asked))
        for part in subsets(asked):
            if part not in self._parts:
                self._parts[part] = self._part(part)
            shape = tuple(sizes[j] if j in part else 1 for j in asked)
            share = prod(sizes[j] for j in asked if j not in part)
            total = total + self._parts[part].reshape(shape) / share
        return Known(total.reshape(-1), law_of(self._laws, sizes, asked))

    def _added(self, asked: Columns) -> Known:
        """Where one table was measured, sums of it; whole numbers stay whole."""
        ((columns, finest),) = self._measured.items()
        table = finest.values.reshape([self._sizes[j] for j in columns])
        gone = tuple(at for at, j in enumerate(columns) if j not in asked)
        count = prod(table.shape[at] for at in gone)
        draws = tuple(replace(d, count=d.count * count) for d in finest.law.draws)
        return Known(table.sum(axis=gone).reshape(-1), Law(draws))

    def _part(self, part: Columns) -> Floats:
        """What all measured tables together say about one orthogonal part."""
        found = np.zeros(tuple(self._sizes[j] for j in part))
        for columns, weight in _weights(self._laws, self._sizes, part).items():
            table = self._measured[columns].values.reshape([self._sizes[j] for j in columns])
            found += float(weight) * table.sum(
                axis=tuple(at for at, j in enumerate(columns) if j not in part)
            )
        for axis in range(found.ndim):
            found -= found.mean(axis=axis, keepdims=True)
        return found


def law_of(laws: Mapping[Columns, Law], sizes: Sequence[int], asked: Columns) -> Law:
    """The law of one cell of a consistent table; it is the same for all cells of a table."""
    weights = {part: _weights(laws, sizes, part) for part in subsets(asked)}
    terms: list[tuple[Fraction, Law]] = []
    for columns, law in laws.items():
        common = tuple(j for j in columns if j in asked)
        for same in subsets(common):
            others = prod(sizes[j] - 1 for j in common if j not in same)
            others *= prod(sizes[j] for j in columns if j not in asked)
            factor = sum(
                (
                    weights[part].get(columns, Fraction(0))
                    / prod(sizes[j] for j in asked if j not in part)
                    * prod((Fraction(int(j in same)) - Fraction(1, sizes[j]) for j in part))
                    for part in subsets(common)
                ),
                Fraction(0),
            )
            if others and factor:
                many = Law(tuple(replace(d, count=d.count * others) for d in law.draws))
                terms.append((factor, many))
    return combined(terms)


def to_measure(
    sets: Sequence[Columns], sizes: Sequence[int], *, gaussian: bool
) -> tuple[Columns, ...]:
    """All sets, or only the finest and add up: whichever has the smaller worst variance.

    k sets share the price, so each has k² (geometric) or k (Gaussian) times the variance of one.
    Decided by the number of keys, which is public.
    """
    finest = tuple(sorted({j for columns in sets for j in columns}))
    each = tuple(dict.fromkeys(sets))
    noise = len(each) if gaussian else len(each) ** 2
    every = max(_variance(dict.fromkeys(each, Fraction(noise)), sizes, s) for s in each)
    alone = max(_variance({finest: Fraction(1)}, sizes, columns) for columns in each)
    return (finest,) if alone <= every else each


def grouping_id(columns: Columns, count: int) -> int:
    """SQL's GROUPING(all columns): a bit for each column that is not in the set, the first highest.

    >>> grouping_id((0,), 3)
    3
    """
    return sum(1 << (count - 1 - j) for j in range(count) if j not in columns)


def subsets(columns: Columns) -> Iterator[Columns]:
    """All subsets, the empty one first."""
    for size in range(len(columns) + 1):
        yield from combinations(columns, size)


def _weights(
    laws: Mapping[Columns, Law], sizes: Sequence[int], part: Columns
) -> dict[Columns, Fraction]:
    variances = {s: Fraction(law.variance) for s, law in laws.items()}
    return _shares(variances, sizes, part)


def _shares(
    variances: Mapping[Columns, Fraction], sizes: Sequence[int], part: Columns
) -> dict[Columns, Fraction]:
    found = {
        s: _outside(sizes, s) / variance for s, variance in variances.items() if set(part) <= set(s)
    }
    total = sum(found.values(), Fraction(0))
    return {s: weight / total for s, weight in found.items()}


def _variance(
    variances: Mapping[Columns, Fraction], sizes: Sequence[int], asked: Columns
) -> Fraction:
    """The variance of one cell of the asked table."""
    total = Fraction(0)
    for part in subsets(asked):
        held = [s for s in variances if set(part) <= set(s)]
        known = 1 / _sum(_outside(sizes, s) / (variances[s] * _outside(sizes, part)) for s in held)
        share = prod(sizes[j] for j in asked if j not in part)
        total += known / share**2 * prod(1 - Fraction(1, sizes[j]) for j in part)
    return total


def _outside(sizes: Sequence[int], columns: Columns) -> Fraction:
    return Fraction(prod(size for j, size in enumerate(sizes) if j not in columns))


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


Found: TypeAlias = Sequence[Sequence[tuple[Key, ...]]]  # for each of `key_questions`
Shown: TypeAlias = tuple[Columns, frozenset[tuple[Key, ...]]]
LISTED_MAX: Final = 1_000_000  # groups of one answer


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How much of one unit counts: rows, groups (of people), distinct keys or values.

    With ``sums_per_unit`` direct sums are weighed apart from all else, by what a unit adds to them:
    so many times what a row adds at most, or such a part of it. ``divided``: an average is such a
    sum over a count, where its values lie far below their bounds. ``averages_per_unit``: the rows
    of a unit that count in averages and the like, where these are weighed for themselves;
    ``values_per_unit``: its different values that count, where that is another number.
    """

    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    keys_per_unit: int | None = None
    sums_per_unit: Fraction | None = None
    divided: bool = False
    averages_per_unit: int | None = None
    values_per_unit: int | None = None


def key_questions(block: Block, caps: Caps) -> tuple[Keys, ...]:
    """What to ask before the block itself: the groups of columns without declared keys.

    One question finds the combinations that exist, also with declared keys. With several grouping
    sets each column is looked for by itself, because only full combinations can add up to their
    parents.
    """
    hidden = [key for key in block.by if key.domain.keys is None]
    if not hidden:
        _require_few(block)
        return ()
    rows = stability_of(block.relation).rows
    cap = rows or caps.keys_per_unit or caps.groups_per_unit or caps.rows_per_unit
    if cap is None:
        raise no_cap("The groups of one unit have", "groups_per_unit")
    together = [list(block.by)] if is_single(block) else [[key] for key in hidden]
    return tuple(
        Keys(
            relation=block.relation,
            by=tuple((key.name, key.expression) for key in keys),
            keys_per_unit=cap,
        )
        for keys in together
    )


def groups_of(
    block: Block, asked: Sequence[Keys], found: Found | None
) -> tuple[tuple[tuple[Key, ...], ...], Shown | None]:
    """The keys of each column: declared, found, or unknown so far (the group of no value)."""
    known: dict[str, tuple[Key, ...]] = {}
    shown: Shown | None = None
    for tally, keys in zip(asked, found or (), strict=False):
        names = [name for name, _ in tally.by]
        for place, name in enumerate(names):
            values = {key[place] for key in keys}
            known[name] = tuple(sorted(values, key=lambda value: (value is None, value)))
        if len(names) > 1:
            columns = tuple(j for j, key in enumerate(block.by) if key.name in names)
            shown = columns, frozenset(keys)
    return tuple(_keys(key, known) for key in block.by), shown


def _keys(key: GroupKey, known: dict[str, tuple[Key, ...]]) -> tuple[Key, ...]:
    listed = key.domain.keys
    if listed is None:
        return known.get(key.name, (None,))
    return (*listed, None) if key.domain.nullable and None not in listed else listed


def _require_few(block: Block) -> None:
    """Refuse a list that would be noise: nearly all of so many groups are empty."""
    cells = prod(len(key.domain.keys or ()) + key.domain.nullable for key in block.by)
    if cells > LISTED_MAX:
        raise Unsupported(
            f"There would be {cells:,} groups, nearly all without a row, so the answer would be "
            "mostly noise.",
            fix="Group by fewer or coarser columns, or release only the large groups: "
            'gate.release("sparse", …).',
            about="groups",
        )


def closed(block: Block, groups: Sequence[tuple[Key, ...]]) -> Relation:
    """Only rows that are in a group of every grouping set, so that children add up to parents."""
    relation = block.relation
    for j, key in enumerate(block.by):
        if all(j in columns for columns in block.sets):
            continue
        listed = tuple(Literal(value) for value in groups[j] if value is not None)
        inside: Expression = Call("in", (key.expression, *listed))
        missing: Expression = Call("is_null", (key.expression,))
        if None in groups[j]:
            inside = Call("or", (missing, inside)) if listed else missing
        relation = Filter(relation, inside)
    return relation


def is_single(block: Block) -> bool:
    """Whether it has one grouping set."""
    return len(set(block.sets)) == 1


def no_cap(what: str, cap: str) -> Unsupported:
    """The refusal of what one unit could move without end."""
    return Unsupported(
        f"{what} no bound, so no amount of noise would hide one unit.",
        fix=f"Give {cap}=..., or declare it in the policy; gate.caps (noisegate caps) shows what "
        'it would lose. In SQL, epsilon and choose="caps" have it estimated; beside an accuracy, '
        "epsilon is the most that it may cost.",
        about="cap",
    )
