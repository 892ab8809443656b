"""A question as read from SQL: private blocks to be measured, and free SQL over what they release.

A block is one aggregating SELECT over private rows. Its released table is public; everything the
SQL does above it (HAVING, ORDER BY, LIMIT, windows, ratios, joins of released tables) is the
``outer`` SQL, which runs on released and public tables only.
"""

from enum import Enum
from fractions import Fraction
from typing import final

from noisegate.algebra.expression import Expression
from noisegate.algebra.relation import Relation, Sampled
from noisegate.desk.terms.terms import Terms
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Domain


class Function(Enum):
    """The aggregate functions that can be asked. The value is how plans call them."""

    COUNT = "COUNT(*)"
    COUNT_VALUES = "COUNT"
    COUNT_UNITS = "COUNT DISTINCT units"
    COUNT_DISTINCT = "COUNT DISTINCT"
    SUM = "SUM"
    AVG = "AVG"
    VAR_SAMP = "VAR_SAMP"
    VAR_POP = "VAR_POP"
    STDDEV_SAMP = "STDDEV_SAMP"
    STDDEV_POP = "STDDEV_POP"
    COVAR_SAMP = "COVAR_SAMP"
    COVAR_POP = "COVAR_POP"
    CORR = "CORR"
    QUANTILE = "QUANTILE"
    MIN = "MIN"
    MAX = "MAX"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One aggregate: rows where an argument is NULL do not take part, as in SQL.

    ``args`` are none for COUNT and COUNT_UNITS, two for COVAR and CORR, else one. ``level`` is that
    of a QUANTILE. ``where`` is FILTER (WHERE ...), or None. ``name`` is its column in the block.
    """

    name: str
    function: Function
    args: tuple[Expression, ...] = ()
    level: Fraction | None = None
    where: Expression | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """A GROUP BY expression. ``domain.keys`` are its groups; None: keys must be found privately.

    ``closed`` says that WHERE leaves no row in any other group.
    """

    name: str
    expression: Expression
    domain: Domain
    closed: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One aggregating SELECT over private rows; its released table is called ``name``.

    The released table has a column for each key (by its name), for each aggregate (by its name),
    and, where there are several grouping sets, an INTEGER column ``grouping_id`` as in SQL's
    GROUPING(all keys). ``sets`` are the grouping sets as indexes into ``by``; an ordinary GROUP BY
    is the one set of all. ``path`` says in words how the rows were made. ``wide``: values have
    their declared bounds also where conditions leave less, as it was once. ``former``: caps are
    chosen as they were once; ``shared``: averages have that of counts and sums beside them;
    ``near``: sums and averages have that of counts, unless their bounds are far out. ``zeros`` are
    sums that are 0 whatever the rows are; with ``noisy_zeros`` they are measured, as once.
    ``by_rows``: distinct values are bounded by the rows of a unit, as once; ``all_values``: by
    nearly all that a unit has, however few there are.
    """

    name: str
    relation: Relation
    by: tuple[GroupKey, ...]
    sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[Aggregate, ...]
    path: tuple[str, ...] = ()
    wide: bool = False
    former: bool = False
    shared: bool = False
    near: bool = False
    zeros: tuple[Aggregate, ...] = ()
    noisy_zeros: bool = False
    by_rows: bool = False
    all_values: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Blocks, and the free SQL over their tables (and public ones) that makes the answer.

    ``columns`` are the names that the answer shows, in order; none where only the engine can say
    (such as SELECT COLUMNS(...)). ``picked`` are the columns of the block that they are, where the
    SQL does nothing else. ``explain`` says that only the plan is wanted: EXPLAIN SELECT.
    ``caveats`` are what the answer has to say about its meaning.
    """

    blocks: tuple[Block, ...]
    outer: str
    columns: tuple[str, ...]
    picked: tuple[str, ...] | None = None
    terms: Terms = field(default_factory=Terms)
    explain: bool = False
    caveats: tuple[str, ...] = ()


def sampled(question: Question, chance: Fraction | None) -> Question:
    """The question about a secret sample that holds each unit with this chance, if there is one."""
    if chance is None:
        return question
    blocks = (replace(each, relation=Sampled(each.relation, chance)) for each in question.blocks)
    return replace(question, blocks=tuple(blocks))
