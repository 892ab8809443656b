"""An exact question with its sensitivity: what a measurement takes.

>>> from noisegate.algebra.expression import Literal
>>> from noisegate.algebra.relation import Table
>>> from noisegate.privacy.domain import TableDomain
>>> from noisegate.privacy.unit import PrivacyUnit
>>> people = TableDomain(dataset="d", name="people", unit=PrivacyUnit(column=None))
>>> one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
>>> Query(Sums(relation=Table(people), terms=(one,))).l1s
(L1(value=Fraction(1, 1)),)
"""

from fractions import Fraction
from importlib import import_module
from math import isqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final

from noisegate.algebra.expression import Field, Schema, domain_of
from noisegate.algebra.relation import sample_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import (
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Rows,
    Sums,
    Tally,
    Term,
    Values,
    fields_used,
)
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.domain import TableDomain
from noisegate.transforms.checks import (
    CAP_MAX,
    MOVED_MAX,
    ROOT_MAX,
    TALLIES,
    require_axes,
    require_exact,
    require_found,
    require_groupings,
    require_sets,
    require_terms,
)
from noisegate.transforms.records import table_record, tally_record
from noisegate.transforms.stability import Stability, stability_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noisegate.transforms.distances import Distances
    from noisegate.transforms.statistics.numbers import Shape
    from noisegate.transforms.statistics.statistic import Block, Statistic
    from noisegate.transforms.strategy import Strategy
    from noisegate.transforms.whole_rows import WholeRows

Asks: TypeAlias = Literal["cells", "combinations", "distances", "statistic", "rows"]
# What may be asked of a tally beside its cells: the only classes, each loaded when it is used.
_STRATEGIES: Final["Mapping[str, tuple[Asks, str]]"] = MappingProxyType({
    "Strategy": ("combinations", "strategy"),
    "Distances": ("distances", "distances"),
    "Statistic": ("statistic", "statistics.statistic"),
    "WholeRows": ("rows", "whole_rows"),
})  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Query:
    """A tally, checked: its sensitivity is computed from it, never stated by a caller.

    With a ``strategy``, what is asked are its whole-number questions about the cells of the one sum
    of the tally, instead of the cells themselves; of marginals, how far guesses of them are off; of
    rows, a statistic of them, or the rows themselves for what knows how much a unit weighs.
    """

    tally: Tally
    strategy: "Strategy | Distances | Statistic | WholeRows | None" = None

    def __post_init__(self) -> None:
        tally = self.tally
        require_exact(tally)
        if type(tally) not in TALLIES:
            raise Unsupported(
                "This is not a tally.",
                fix="Use Sums, Marginals, Values, Keys, Distinct, Cells, Rows.",
                about="tally",
            )
        schema, facts = schema_of(tally.relation), self.stability
        if not facts.is_private:
            raise Unsupported(
                "The rows are public.", fix="Ask without noise: it is free.", about="public"
            )
        per_unit = self.per_unit
        self._require_sample()
        if self.asks != "cells" and not isinstance(tally, Sums | Marginals | Rows):
            raise Unsupported("Only sums have a strategy.", fix="Ask for one sum.")
        if isinstance(tally, Keys):
            require_found(tally, schema, facts)
            return
        if isinstance(tally, Cells):
            require_axes(tally, schema)
            return
        if isinstance(tally, Marginals):
            require_sets(tally)
        require_groupings(tally.by, schema, tally.cells)
        if isinstance(tally, Sums | Marginals):
            require_terms(terms_of(tally), schema, per_unit)
            self._require_weights(tally, schema)
            self._require_strategy(tally)
            return
        if any(grouping.rest for grouping in tally.by):
            raise Unsupported("Only sums have a cell for the rest.", fix="Leave out rest.")
        if isinstance(tally, Distinct):
            domain_of(tally.expression, schema)
            return
        require_terms(terms_of(tally), schema, per_unit)
        self._require_statistic()

    def _require_weights(self, tally: Sums | Marginals, schema: Schema) -> None:
        """What sizes owners up are terms too, and there is a bound on what they add."""
        if isinstance(tally, Marginals):
            return
        if tally.sized != ():
            require_terms(tally.sized, schema, self.per_unit)
        if self.stability.is_row_level and tally.squares_per_unit is not None:
            raise Unsupported("Rows that are units are not weighted.", fix="Leave out the squares.")
        if not tally.is_weighed and tally.sized != ():
            raise Unsupported("There are no weights here.", fix="Leave out sized.")
        squared = tally.squares_per_unit is not None
        if squared and max(map(tally.bound, (*tally.terms, *tally.sized))) > ROOT_MAX:
            raise Unsupported(
                "The bounds of a term are too wide.",
                fix="Use a larger quantisation step.",
                about="bounds",
            )

    def _require_sample(self) -> None:
        """Of a sample is asked what reads it once; nobody has decided its coins yet."""
        found = sample_of(self.tally.relation)
        if found is None:
            return
        if isinstance(self.tally, Marginals):
            raise Unsupported(
                "Several marginal tables cannot have a sample of their own.",
                fix="Ask about all rows, or reserve a sample for a recipe.",
                about="sample",
            )
        if found.key is not None:
            raise Unsupported(
                "The random bits of a sample are drawn at the door.", fix="Leave out the key."
            )

    def _require_strategy(self, tally: Sums | Marginals) -> None:
        if self.asks == "cells":
            return
        if isinstance(tally, Marginals):
            if self.asks != "distances" or self.distances.cells != tally.sizes:
                raise Unsupported(
                    "The guesses are not about these tables.",
                    fix="Give one for each set.",
                    about="guesses",
                )
            return
        combined = self.asks == "combinations" and self.combinations.cells == tally.cells
        if not combined or len(tally.terms) != 1:
            raise Unsupported(
                "The strategy does not match the cells of a single sum.",
                fix="Ask for one sum at a time.",
            )

    def _require_statistic(self) -> None:
        """One statistic of rows on one grid, each row with at most one key."""
        tally = self.tally
        if not isinstance(tally, Rows):
            return
        if self.asks not in ("statistic", "rows"):
            raise Unsupported("Rows can only be read through a statistic.", fix="Give one.")
        if self.stability.is_row_level and tally.rows_per_unit is not None:
            raise Unsupported("Rows that are units are not weighted.", fix="Leave out the cap.")
        even = all(-term.low == term.high == tally.terms[0].high for term in tally.terms)
        if not even or len(tally.by) > 1:
            raise Unsupported(
                "The columns are not on one grid around 0.", fix="Use one reach, one key."
            )
        if self.asks == "rows":
            return
        longest = max(block.l1 for block in self.statistic_blocks)
        if longest * tally.whole * self.per_unit > MOVED_MAX:
            raise Unsupported("The sensitivity is too large.", fix="Use fewer steps.")
        self.statistic.rows_at_once(shape_of(tally))

    @property
    def asks(self) -> Asks:
        """What is asked of the tally. Refuses classes of others: their norms could be anything."""
        kind = type(self.strategy)
        if kind is type(None):
            return "cells"
        asks, module = _STRATEGIES.get(kind.__name__, ("cells", ""))
        if not module or kind is not _loaded(module, kind.__name__):
            raise Unsupported("There is no such strategy.", fix="Use one of noisegate itself.")
        return asks

    @property
    def combinations(self) -> "Strategy":
        """Whole-number combinations of cells, where `asks` says so."""
        return cast("Strategy", self.strategy)

    @property
    def distances(self) -> "Distances":
        """Guesses of tables, where `asks` says so."""
        return cast("Distances", self.strategy)

    @property
    def statistic(self) -> "Statistic":
        """A statistic of rows, where `asks` says so."""
        return cast("Statistic", self.strategy)

    @property
    def statistic_blocks(self) -> "tuple[Block, ...]":
        """The blocks of a statistic, for a row of weight 1."""
        if self.asks != "statistic" or not isinstance(self.tally, Rows):
            return ()
        return self.statistic.blocks(shape_of(self.tally))

    @property
    def stability(self) -> Stability:
        """Whose rows they are."""
        return stability_of(self.tally.relation)

    @property
    def sample(self) -> Fraction | None:
        """The chance of a unit to be in the secret sample that is asked about; None: all are."""
        found = sample_of(self.tally.relation)
        return None if found is None else found.probability

    @property
    def per_unit(self) -> int:
        """How many rows' worth (or values, or keys) of one unit take part at most.

        Claim: a unit moves no term of sums by more than so many rows at their reach, in L1; in L2
            where squares are bounded. Adjacency: add/remove one unit.
        Why: what an owner adds is scaled down to that (`duckdb/writing/weights.py`); or its n rows
            weigh min(1, cap / n) each, and n of them at most cap; or the relation holds at most so
            many rows of a unit by its structure; or at most so many values or keys of an owner are
            kept, by a rule that looks at that owner's alone.
        """
        tally, facts = self.tally, self.stability
        cap = tally.keys_per_unit if isinstance(tally, Keys | Distinct) else tally.rows_per_unit
        if isinstance(tally, Sums) and tally.squares_per_unit is not None:
            cap = self._root(tally, tally.squares_per_unit)
        if cap is not None and (type(cap) is not int or not 1 <= cap <= CAP_MAX):
            raise Unsupported(
                "A contribution bound per unit is out of range.",
                fix=f"Use a whole number from 1 to {CAP_MAX}.",
                about="cap",
            )
        if facts.is_row_level:
            if facts.rows is None or (cap is not None and cap != facts.rows):
                raise Unsupported(
                    "Every row is one unit, so a contribution bound has no meaning.",
                    fix="Leave the cap out.",
                    about="cap",
                )
            return facts.rows
        if cap is None and facts.rows is None:
            raise Unsupported(
                "One unit may have any number of rows here, so the sensitivity has no bound.",
                fix="Give rows_per_unit, the contribution bound: how many rows of one unit count.",
                about="no-cap",
            )
        return cap if cap is not None else facts.rows or 0

    def _root(self, tally: Sums, squares: int) -> int:
        """How many rows' worth squares are: their number, with one row of a unit per cell."""
        if tally.rows_per_unit is not None or type(squares) is not int or squares < 1:
            raise Unsupported(
                "A bound of squares is out of range.",
                fix="Give one bound, above 0.",
                about="squares",
            )
        return squares if self._one_row_per_cell(tally.by) else isqrt(squares)

    @property
    def moved(self) -> Fraction:
        """How far one unit moves the cells of the first sum (of marginals, of each), in L1."""
        if isinstance(self.tally, Sums):
            return Fraction(self._moved(self.tally, self.tally.terms[0]))
        reach = self.tally.term.reach if isinstance(self.tally, Marginals) else 1
        return Fraction(self.per_unit * reach)

    def _moved(self, tally: Sums, term: Term) -> int:
        """How far one unit moves the cells of a sum, in L1.

        Claim: cap · reach; where squares are bounded √(cells · squares) · reach. Why: an L1 norm is
            at most √cells times the L2 norm. Rounding: up.
        """
        if tally.squares_per_unit is None:
            return self.per_unit * term.reach
        return isqrt(tally.cells * tally.squares_per_unit * term.reach**2 - 1) + 1

    @property
    def single(self) -> Fraction:
        """How far one unit moves any one of the sums: one term in one cell.

        Claim: the largest reach where a unit has at most one row per cell, else cap times that.
        Adjacency: add/remove one unit. Why: a row weighs at most 1, and what a unit adds to one
            cell is at most one row, or at most its norm over all cells. Rounding: none.
        """
        tally = self.tally
        if not isinstance(tally, Sums | Marginals) or self.asks != "cells":
            raise Unsupported(
                "These are not plain sums.", fix="Ask for sums without a strategy.", about="sums"
            )
        sets = [tally.by]
        if isinstance(tally, Marginals):
            sets = [tuple(tally.by[place] for place in each) for each in tally.sets]
        terms = terms_of(tally)
        if all(map(self._one_row_per_cell, sets)):
            return Fraction(max(term.reach for term in terms))
        if isinstance(tally, Sums) and tally.is_weighed:
            return Fraction(max(map(tally.bound, terms)))
        return Fraction(self.per_unit * max(term.reach for term in terms))

    @property
    def any_one(self) -> Fraction:
        """How far one unit moves any one of the numbers that are asked for.

        Claim: that of the sums is `single`; one of a block of combinations, or a distance, moves by
            at most its reach times all that a unit moves. Adjacency: add/remove one unit.
        Why: a reach is the largest coefficient, or see `Distances`. Rounding: none.
        """
        if self.asks == "combinations" and len(self.combinations.blocks) == 1:
            return self.moved * self.combinations.reaches[0]
        return self.moved * self.distances.reach if self.asks == "distances" else self.single

    @property
    def is_monotone(self) -> bool:
        """Whether a unit that comes lets none of the numbers fall, or lets none of them rise.

        Why: its rows weigh what they weigh whoever else is there, and all numbers of rows have one
            sign; of combinations, no number is negative and all coefficients have one sign.
            Adjacency: add/remove.
        """
        tally = self.tally
        if not isinstance(tally, Sums | Marginals) or self.asks == "distances":
            return False
        terms = terms_of(tally)
        rises, falls = all(t.low >= 0 for t in terms), all(t.high <= 0 for t in terms)
        return rises and self.combinations.is_monotone if self.asks != "cells" else rises or falls

    @property
    def l1s(self) -> tuple[L1, ...]:
        """For each term (or set, or block of the strategy), the largest sum of absolute changes.

        Claim: cap · reach. Adjacency: add/remove one unit. Why: a row lies in one cell and moves
            the term by at most its reach; what an owner adds to all cells is scaled down to that of
            cap rows, or its rows weigh at most cap rows; rounding what is scaled towards zero only
            shortens it. Bounded squares: `_moved`. Distinct: each kept pair of cell and value can
            make one value appear. Cells: each kept row adds 1 to one cell. Marginals: each set is
            the sum over its own groupings. Distances: see there. Rows: see `Statistic`; the weights
            of a unit's rows add up to at most cap wholes. Whole rows: how many rows a unit weighs.
            Rounding: none.
        """
        if isinstance(self.tally, Rows) and self.asks != "rows":
            return tuple(L1(self.weight * block.l1) for block in self.statistic_blocks)
        if isinstance(self.tally, Marginals):
            if self.asks == "distances":
                return (L1(self.moved * self.distances.l1),)
            return (L1(self.moved),) * len(self.tally.sets)
        if not isinstance(self.tally, Sums):
            return (L1(self.per_unit),)
        cells = tuple(self._moved(self.tally, term) for term in self.tally.terms)
        if self.asks == "combinations":
            return tuple(L1(cells[0] * norm) for norm in self.combinations.l1s)
        return tuple(map(L1, cells))

    @property
    def l2s(self) -> tuple[L2, ...]:
        """For each term (or set, or block), the largest Euclidean change over all cells.

        Claim: squared, squares · reach² where these are bounded; else cap · reach² where a unit has
            at most one row per cell, and (cap · reach)² where it may have several.
        Why: bounded squares are what an owner is scaled to. With one row per cell no component
            exceeds reach, so ‖v‖₂² ≤ reach ‖v‖₁, of what is scaled too: ≤ reach · cap reach. The
            same holds of weights cap / n. Otherwise L2 is at most L1.
        """
        cap, tally = self.per_unit, self.tally
        if isinstance(tally, Rows) and self.asks != "rows":
            blocks = self.statistic_blocks
            return tuple(L2(squared=self.weight**2 * block.l2_squared) for block in blocks)
        if self.asks == "distances":
            return (L2(squared=self.moved**2 * self.distances.l2_squared),)
        if self.asks == "combinations":
            return tuple(L2(squared=self.moved**2 * n) for n in self.combinations.l2s_squared)
        if isinstance(tally, Marginals):
            sets = (tuple(tally.by[place] for place in each) for each in tally.sets)
            factors = [cap if self._one_row_per_cell(by) else cap**2 for by in sets]
            return tuple(L2(squared=factor * tally.term.reach**2) for factor in factors)
        if isinstance(tally, Sums):
            factor = cap if self._one_row_per_cell(tally.by) else cap**2
            factor = tally.squares_per_unit or factor
            return tuple(L2(squared=factor * term.reach**2) for term in tally.terms)
        return (L2(squared=cap**2),)

    @property
    def boxes(self) -> tuple[LInf1, ...]:
        """For each block of a statistic, the sum over cells of the largest change in the cell.

        Claim: see `Statistic.blocks`; the weights of a unit's rows add up to at most cap wholes.
        """
        return tuple(LInf1(self.weight * block.largest) for block in self.statistic_blocks)

    @property
    def weight(self) -> int:
        """What the rows of one unit weigh together at most, in parts of a row."""
        return self.per_unit * (self.tally.whole if isinstance(self.tally, Rows) else 1)

    @property
    def path(self) -> tuple[str, ...]:
        """In words, how the sensitivity comes about."""
        facts, cap = self.stability, self.per_unit
        noun = next(table.unit.noun for table in facts.tables if table.unit is not None)
        if facts.is_row_level:
            last = f"one {noun} adds at most {cap} row{'s' if cap > 1 else ''}"
        elif facts.rows == cap:
            last = f"one {noun} has at most {cap} row{'s' if cap > 1 else ''} here"
        else:
            last = f"one {noun} counts for at most {cap} row{'s' if cap > 1 else ''}"
        return (*facts.path, last)

    @property
    def tables(self) -> tuple[TableDomain, ...]:
        """The tables that are read."""
        return self.stability.tables

    def _one_row_per_cell(self, by: tuple[Grouping, ...]) -> bool:
        """Whether no two rows of a unit share a cell of these groupings."""
        groupings = (g for g in by if not g.rest)  # the rest holds several of a unit
        shown = {g.expression.name for g in groupings if type(g.expression) is Field}
        identity = self.stability.identity
        return identity is not None and identity <= shown

    def to_record(self) -> dict[str, Any]:
        """The question as plain values; equal for equal questions, so the ledger can compare."""
        record = self.whole_record()
        return record if self.strategy is None else record | {"strategy": self.strategy.to_record()}

    def whole_record(self) -> dict[str, Any]:
        """The same without the strategy: the tally itself."""
        names = fields_used(self.tally)
        tables = {table.name: table_record(table, names) for table in self.tables}
        return {
            "dataset": self.tables[0].dataset,
            "tables": tables,
            "tally": tally_record(self.tally),
        }


def _loaded(module: str, name: str) -> object:
    """A class of this room; where it is not loaded, nothing can be of it."""
    return getattr(import_module(f"noisegate.transforms.{module}"), name)


def shape_of(tally: Rows) -> "Shape":
    """What is public about the rows of a tally."""
    from noisegate.transforms.statistics.numbers import Shape  # noqa: PLC0415 - of statistics only

    keys = tally.cells if tally.by else 0
    return Shape(columns=len(tally.terms), reach=tally.terms[0].high, keys=keys)


def terms_of(tally: Sums | Rows | Marginals | Values) -> tuple[Term, ...]:
    """What is added up."""
    return tally.terms if isinstance(tally, Sums | Rows) else (tally.term,)
