"""Questions that count units, ``SELECT COUNT(DISTINCT patient) FROM visits WHERE …``, as cells.

Where a unit has rows in several cells, a number of units is not a sum over cells of rows. It is one
over cells of units, if a unit's cell says which of the listed conditions any of its rows meets.

Claim: each question is the sum over half of 2**k cells, k how many conditions are listed, and one
    unit adds 1 to one cell and nothing to the others: L1 and L∞ of the cells are 1, and so is what
    a unit adds to any question. Adjacency: add/remove one unit.
Why: let b(u) in {0, 1}**k say for each condition whether some row of unit u meets it: a fold over
    u's own rows, whatever their number, so a unit has one such row and no cap is needed. It is in
    the cell b(u). COUNT(DISTINCT u) under condition i counts the units with b_i(u) = 1, which are
    those in cells with a 1 at place i. When u comes or goes, so does the one row with b(u).
Rounding: none. NULL is what WHERE makes of it: not met.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.relation import Relation
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import TableDomain
from noisegate.releases.cells.grid import Grid, grid_of
from noisegate.sql.question import Function
from noisegate.sql.reading.reader import read
from noisegate.sql.reading.statement import statement_of, take_hints
from noisegate.sql.reading.words import fold
from noisegate.sql.spelling import quoted
from noisegate.transforms.stability import stability_of

CONDITIONS_MAX: Final = 12
_FORM: Final = "For example: SELECT COUNT(DISTINCT patient) FROM visits WHERE ward = 'north'."
_DIALECT: Final = "duckdb"


@final
@dataclass(frozen=True, slots=True)
class UnitQuestion:
    """A question that counts units: its rows, and its parts as SQL."""

    rows: Relation
    unit: str
    source: str
    condition: str | None


def units_in(sql: str, tables: Mapping[str, TableDomain]) -> UnitQuestion | None:
    """The question, where it counts units that may have several rows; None where it does not."""
    if "distinct" not in sql.lower():
        return None
    question = read(sql, tables)
    blocks = question.blocks
    if len(blocks) != 1 or blocks[0].by or len(blocks[0].aggregates) != 1:
        return None
    (found,) = blocks[0].aggregates
    if found.function is not Function.COUNT_UNITS or stability_of(blocks[0].relation).rows == 1:
        return None
    tree = statement_of(take_hints(sql)[0])
    count = next(tree.find_all(exp.Count), None)
    plain = (
        isinstance(tree, exp.Select) and not tree.args.get("with_") and not tree.args.get("with")
    )
    if not plain or count is None or found.where is not None:
        raise _not_plain()
    (unit,) = count.this.expressions
    source = tree.args.get("from_") or tree.args.get("from")
    joined = [each.sql(dialect=_DIALECT) for each in tree.args.get("joins") or ()]
    where = tree.args.get("where")
    made = UnitQuestion(
        blocks[0].relation, unit.sql(dialect=_DIALECT),
        " ".join([source.this.sql(dialect=_DIALECT), *joined]) if source is not None else "",
        None if where is None else where.this.sql(dialect=_DIALECT),
    )  # fmt: skip
    again = f"SELECT COUNT(DISTINCT {made.unit}) FROM {made.source}"  # noqa: S608 - read, never run
    again += "" if made.condition is None else f" WHERE {made.condition}"
    same = read(again, tables).blocks
    if question.picked is None or len(same) != 1 or same[0].relation != made.rows:
        raise _not_plain()
    return made


def units_grid(
    tables: Mapping[str, TableDomain], questions: Sequence[str]
) -> tuple[Grid, tuple[Relation, ...]] | None:
    """The cells of units for a list of questions, and the rows that each axis is about.

    None where no question counts units of several rows; a list of both kinds is refused.
    """
    found = [units_in(sql, tables) for sql in questions]
    asked = [each for each in found if each is not None]
    if not asked:
        return None
    if len(asked) < len(found):
        raise Unsupported(
            "Some of the questions count units and others count rows, which have cells of their "
            "own.",
            fix="Ask for them in two lists.",
            about="units",
        )
    if len({(each.unit, each.source) for each in asked}) > 1:
        raise SpecError(
            "The questions are about several tables, or spell one in several ways.",
            fix="Use one FROM, and one name of the unit, in all of them.",
            about="units",
        )
    named = {each.condition: each.rows for each in asked if each.condition is not None}
    if not 0 < len(named) <= CONDITIONS_MAX:
        raise Unsupported(
            f"Questions that count units have 1 to {CONDITIONS_MAX} different conditions, and "
            f"these have {len(named)}.",
            fix="Ask for COUNT(*), or for COUNT(DISTINCT …) in plain SQL, at its own price.",
            about="units",
        )
    sql = _sql(asked[0], list(named))
    return grid_of(read(sql, tables), sql, Terms(), by_groups=False), tuple(named.values())


def _sql(asked: UnitQuestion, conditions: Sequence[str]) -> str:
    """One row for each unit, and in which cell it is."""
    folds = ", ".join(
        f"MAX(CASE WHEN ({each}) THEN 1 ELSE 0 END) AS met_{place}"
        for place, each in enumerate(conditions)
    )
    axes = ", ".join(
        f"CASE WHEN met_{place} = 1 THEN 1 ELSE 0 END AS {quoted(each)}"
        for place, each in enumerate(_names(conditions))
    )
    places = ", ".join(str(place + 1) for place in range(len(conditions)))
    return (
        f"SELECT {axes}, COUNT(*) AS n FROM (SELECT {folds} FROM {asked.source} "  # noqa: S608 - read, never run
        f"GROUP BY {asked.unit}) AS units GROUP BY {places}"
    )


def _names(conditions: Sequence[str]) -> list[str]:
    """Each condition; with a number where one before it differs in upper and lower case alone."""
    alike = [fold(each) for each in conditions]
    counts = [alike[: place + 1].count(each) for place, each in enumerate(alike)]
    pairs = zip(conditions, counts, strict=True)
    return [each if count == 1 else f"{each} ({count})" for each, count in pairs]


def _not_plain() -> Unsupported:
    return Unsupported("This is not a plain count of units.", fix=_FORM, about="units")
