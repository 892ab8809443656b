"""The free SQL of a question: tried on made-up numbers before paying, then on released ones.

So is told how far the numbers of an answer may be off, before it is paid for.
How many rows take part is said by the analyst, or was released. From that, and from all else that
was released, every number of a question is guessed (`reuse/guesses.py`), and the free SQL runs on
the guesses: their error bars follow by the same rules as those of the answer. No row is read, and
no price looks at it.

Counts and sums err by their noise alone, so their errors are known without any guess. What is not
known is tried twice. Where nobody knows how many rows there are, few and many must err alike. Where
that is known, a FILTER may leave none of them or all: the larger error is stated, and none at all
where an average or a divisor could be about no row.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from math import isclose
from typing import Any, Final, TypeAlias, final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from noisegate.curator.curator import Curator
from noisegate.errors import Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, replace
from noisegate.sql.bounds.limits import most_rows
from noisegate.sql.outer.engine import run_outer, shown_table
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.outer.margins import HalfWidths, Margins
from noisegate.sql.question import Question
from noisegate.sql.reuse.released import Guess, Widths, blank_table, released_block
from noisegate.sql.steps.asked import after_paying
from noisegate.sql.steps.ordered import BlockOrder, Parcel

_ROWS_MAX: Final = 200  # of a table on which the free SQL runs
_DIGITS: Final = 9  # of an error: what doubles leave
_CHOOSING: Final = ("where", "having", "qualify", "order", "limit", "offset")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The ± to expect of a column, in its best row and in its worst; None: not known beforehand.

    ``rows``: it is for about so many in all. ``at_best``: with fewer rows it is larger.
    ``guessed``: it is for a bound of one row, and the bound is still to be estimated.
    ``followed``: the free SQL says how the error follows from those of the released numbers.
    """

    least: float | None = None
    most: float | None = None
    rows: tuple[int, ...] = ()
    at_best: bool = False
    guessed: bool = False
    followed: bool = True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is known about the numbers of a question. ``rows_max`` are the policy's, by table."""

    question: Question
    guesses: tuple[Guess, ...] = ()
    public: Callable[[], Mapping[str, pa.Table]] = dict
    rows_max: Mapping[str, int]

    def columns(self, confidence: Number) -> dict[str, Foreseen]:
        """The errors of the noisy columns that the answer shows."""
        level = fraction(confidence, name="confidence")
        blind = [replace(guess, shelf=None, said=None) for guess in self.guesses]
        found = self._with(self._columns(blind, level), self.guesses, level)
        most = [most_rows(guess.draft.block.relation, self.rows_max) for guess in self.guesses]
        if None not in most and all(guess.rows is None for guess in self.guesses):
            pairs = zip(self.guesses, most, strict=True)
            said = [replace(each, said=rows) for each, rows in pairs]
            found = self._with(found, said, level, at_best=True)
        open_ = self._open(found)
        return {name: replace(each, guessed=name in open_) for name, each in found.items()}

    def _open(self, names: Collection[str]) -> Collection[str]:
        """The columns whose errors follow from a bound that is still to be estimated.

        Calculated ones are all taken to do so, where a released one does.
        """
        found = [guess.open for guess in self.guesses]
        if self.question.picked is None:
            return names if any(found) else ()
        pairs = zip(self.question.picked, self.question.columns, strict=True)
        return [shown for name, shown in pairs if name in found[0]]

    def _with(
        self,
        found: dict[str, Foreseen],
        guesses: Sequence[Guess],
        level: Fraction,
        *,
        at_best: bool = False,
    ) -> dict[str, Foreseen]:
        """The same with errors that follow from how many rows there are, where others miss."""
        missing = [name for name, each in found.items() if each.most is None and each.followed]
        if not missing:
            return found
        rows = tuple(guess.rows for guess in guesses if guess.rows is not None)
        tried = self._columns(guesses, level)
        return found | {
            name: replace(tried[name], rows=rows, at_best=at_best)
            for name in missing
            if tried[name].most is not None
        }

    def _columns(self, guesses: Sequence[Guess], level: Fraction) -> dict[str, Foreseen]:
        none, every = (self._tried(guesses, level, share) for share in (0.0, 1.0))
        is_known = all(guess.is_known for guess in guesses)
        return {
            name: _both(each, every.get(name, Foreseen()), is_known=is_known)
            for name, each in none.items()
        }

    def _tried(
        self, guesses: Sequence[Guess], level: Fraction, share: float
    ) -> dict[str, Foreseen]:
        """The errors, if conditions leave such a share of the rows."""
        question = self.question
        blocks = {guess.draft.block.name: guess.released(share) for guess in guesses}
        if question.picked is not None:
            (block,) = blocks.values()
            pairs = zip(question.picked, question.columns, strict=True)
            noisy = ((name, shown) for name, shown in pairs if name in block.noisy)
            return {shown: _range(block.half_widths(name, level)) for name, shown in noisy}
        outer, public = _plain(question.outer), self.public()
        blocks = {name: _cut(block) for name, block in blocks.items()}
        tables = {name: block.table for name, block in blocks.items()}
        try:
            margins = Margins(outer, blocks, public, run_outer(outer, tables, public))
        except Unsupported:  # refused on these numbers; the rehearsal says whether on others too
            return {}
        widths = dict(zip(margins.shown.column_names, margins.at(level), strict=True))
        unknown = dict.fromkeys(margins.unknown(), Foreseen(followed=False))
        shown = {name: margins.shown.column(name).to_pylist() for name in margins.noisy()}
        return {name: _range(widths[name], shown[name]) for name in shown} | unknown


def _range(widths: Widths, shown: Sequence[Any] | None = None) -> Foreseen:
    """The least and the largest error of a column; none where one of a number is not known."""
    given = [None] if widths is None else list(widths)
    if shown is not None and widths is not None:
        pairs = zip(given, shown, strict=True)
        given = [width for width, value in pairs if value is not None]
    known = [float(width) for width in given if width is not None]
    if not known or len(known) < len(given):
        return Foreseen()
    least, most = (float(f"{end:.{_DIGITS}g}") for end in (min(known), max(known)))
    return Foreseen(least=least, most=most)


def _both(one: Foreseen, other: Foreseen, *, is_known: bool) -> Foreseen:
    """What two tries say together."""
    if one.least is None or one.most is None or other.least is None or other.most is None:
        return replace(one, least=None, most=None)
    alike = isclose(one.most, other.most, rel_tol=1e-6)
    if not is_known and not alike:
        return Foreseen()
    return Foreseen(least=min(one.least, other.least), most=max(one.most, other.most))


def _cut(block: ReleasedBlock) -> ReleasedBlock:
    """Its first rows."""

    def half_widths(name: str, confidence: Fraction) -> HalfWidths | None:
        found = block.half_widths(name, confidence)
        return None if found is None else tuple(found[:_ROWS_MAX])

    return replace(block, table=block.table.slice(0, _ROWS_MAX), half_widths=half_widths)


def _plain(outer: str) -> str:
    """The free SQL without what chooses, orders or rounds: guessed numbers must not decide it."""
    tree = sqlglot.parse_one(outer, dialect="duckdb")
    for query in tree.find_all(exp.Query):
        for clause in _CHOOSING:
            query.set(clause, None)
    return tree.transform(
        lambda node: exp.paren(node.this) if isinstance(node, exp.Round) else node
    ).sql(dialect="duckdb")


Shown: TypeAlias = "tuple[pa.Table, Margins, Margins | None]"


def rehearsed(curator: Curator, question: Question, orders: Sequence[BlockOrder]) -> pa.Table:
    """Run the free SQL on made-up numbers: what it refuses is refused before it is paid."""
    drafts = [order.bought.draft for order in orders]
    blank = {draft.block.name: blank_table(draft) for draft in drafts}
    public = public_tables(curator, question)
    try:
        return shown_table(question, blank, public)
    except Unsupported as refusal:
        words = "Tried on made-up numbers, before paying: "
        refused = Unsupported(words + refusal.problem, fix=refusal.fix, about=refusal.about)
    raise refused


def shown_of(curator: Curator, question: Question, parcels: Sequence[Parcel]) -> Shown:
    """The table of an answer, its error bars, and those of the noise alone where they differ."""
    public, drafts = public_tables(curator, question), [each.bought.draft for each in parcels]

    def blocks(*, noise: bool) -> dict[str, ReleasedBlock]:
        pairs = zip(drafts, parcels, strict=True)
        return {d.block.name: released_block(d, each.estimates, noise=noise) for d, each in pairs}

    released = blocks(noise=False)
    try:
        tables = {name: block.table for name, block in released.items()}
        table = shown_table(question, tables, public)
    except Unsupported as refusal:
        raise after_paying(refusal) from None
    noise = None
    if any(each.estimates.is_raised or each.estimates.is_clipped for each in parcels):
        noise = Margins(question.outer, blocks(noise=True), public, table, question.picked)
    return table, Margins(question.outer, released, public, table, question.picked), noise


def public_tables(curator: Curator, question: Question) -> dict[str, pa.Table]:
    """The public tables that the free SQL names."""
    public = [name for name, table in curator.tables.items() if table.is_public]
    if not public:
        return {}
    tree = sqlglot.parse_one(question.outer, dialect="duckdb")
    named = {table.name.lower() for table in tree.find_all(exp.Table)}
    return {name: curator.public(name) for name in public if name.lower() in named}
