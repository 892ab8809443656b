"""Scores of a public list of candidates: what each row adds is public SQL over public cells.

The score of candidate c is the sum of s(c, x) over all rows, where x are columns with listed
values. So it is a whole-number combination of the counts of the cells of x, and the coefficients
s(c, x) are public: they are worked out from the list and the declared values alone. The engine
counts cells once, however many candidates there are, and the sensitivity is that of the
combinations, computed where they are kept (`transforms/strategy.py`), whatever the SQL says.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Sums, Tally
from noisegate.desk.desk import Desk
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.exact import fraction
from noisegate.frozen import dataclass, replace
from noisegate.sql.choices.candidates import Candidates, candidates_of
from noisegate.sql.choices.on_interval import Listed
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.question import Question, sampled
from noisegate.sql.reading.reader import read
from noisegate.sql.reading.statement import statement_of, take_hints
from noisegate.sql.reading.words import fold
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Matrix, Strategy

PAIRS_MAX: Final = 1 << 22  # of candidates and cells
_AT_ONCE: Final = 500_000  # pairs whose scores are worked out together
_STEPS: Final = 1 << 20  # of scores that are not decimals
_PARTS: Final = 256  # of a row, where rows of a unit are weighted
_ROOM: Final = 1 << 30  # of scores times cells, so that 2**24 rows of a cell add up in 62 bits
_FORM: Final = (
    "For example: SELECT SUM(CASE WHEN bid >= price THEN price ELSE 0 END) FROM bids, with "
    'candidates={"price": [5, 10, 15]}.'
)
Floats: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True)
class Score:
    """What a row adds, as SQL over candidates and ``keys``: SQL of rows by the names they have."""

    select: exp.Select  # the cells of the keys, counted
    added: exp.Expr
    keys: Mapping[str, exp.Expr]


def score_of(sql: str, names: Sequence[str]) -> tuple[Score, Terms]:
    """The score that one SELECT of a sum states, and what it says about paying.

    The largest parts that name no candidate's column are the keys: their values are all that is
    read of rows.
    """
    plain, terms, _ = take_hints(sql)
    tree = statement_of(plain)
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or tree.args.get("group"):
        raise Unsupported("A score for listed candidates is one sum.", fix=_FORM, about="score")
    keys: dict[str, exp.Expr] = {}
    known = frozenset(map(fold, names))
    added = _keyed(_added(tree.expressions[0].unalias()), known, keys)
    if not any(_is_of(each, known) for each in added.find_all(exp.Column)) or not keys:
        raise Unsupported(
            "The score must depend on the rows and on the candidate.", fix=_FORM, about="score"
        )
    select = tree.copy()
    listed = [exp.alias_(key.copy(), name) for name, key in keys.items()]
    select.set("expressions", [*listed, exp.Count(this=exp.Star())])
    select = select.group_by(*(str(place + 1) for place in range(len(keys))), copy=False)
    return Score(select, added, keys), terms


def _added(node: exp.Expr) -> exp.Expr:
    """What a row adds to a SUM or a COUNT with FILTER."""
    where = None
    if isinstance(node, exp.Filter):
        where, node = node.expression.this, node.this
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        value: exp.Expr = exp.Literal.number(1)
    elif isinstance(node, exp.Sum) and not isinstance(node.this, exp.Distinct):
        value = node.this
    else:
        raise Unsupported(
            "A score for listed candidates is a SUM, or a COUNT(*) with FILTER.",
            fix=_FORM,
            about="score",
        )
    if where is None:
        return value.copy()
    return exp.Case(ifs=[exp.If(this=where.copy(), true=value.copy())])


def _is_of(column: exp.Expr, known: frozenset[str]) -> bool:
    return isinstance(column, exp.Column) and not column.table and fold(column.name) in known


def _keyed(node: exp.Expr, known: frozenset[str], keys: dict[str, exp.Expr]) -> exp.Expr:
    """The expression with its largest parts of rows alone replaced by names of keys."""
    columns = [node] if isinstance(node, exp.Column) else list(node.find_all(exp.Column))
    mixed = any(_is_of(each, known) for each in columns)
    if not columns or (isinstance(node, exp.Column) and mixed):
        return node
    if not mixed and isinstance(node, exp.Condition) and not isinstance(node, exp.If):
        return _named(node, keys)
    for child in list(node.iter_expressions()):
        made = _keyed(child, known, keys)
        if made is not child:
            child.replace(made)
    return node


def _named(node: exp.Expr, keys: dict[str, exp.Expr]) -> exp.Expr:
    """The name of a key. Bins of a width p / q are whole bins of x · q, divided by q again."""
    key, parts = node.copy(), 1
    if isinstance(key, exp.Anonymous) and fold(key.name) == "bin" and len(key.expressions) == 2:
        x, width = key.expressions
        exact = fraction(width.name) if isinstance(width, exp.Literal) else Fraction(1)
        parts = exact.denominator
        scaled = exp.Mul(this=exp.paren(x.copy()), expression=exp.Literal.number(parts))
        if parts > 1:
            whole = exp.Literal.number(exact.numerator)
            key = exp.Anonymous(this="BIN", expressions=[scaled, whole])
    text = key.sql(dialect="duckdb")
    name = next((n for n, each in keys.items() if each.sql(dialect="duckdb") == text), None)
    if name is None:
        name = f"noisegate_key_{len(keys)}"
        keys[name] = key
    found: exp.Expr = exp.column(name, table="cells")
    over = exp.Literal.number(parts)
    return found if parts == 1 else exp.paren(exp.Div(this=found, expression=over))


def scored_candidates(
    desk: Desk, score: Score, given: Listed, terms: Terms, *, least: bool
) -> Candidates:
    """The listed candidates with their scores, as combinations of the cells of the keys."""
    text = score.select.sql(dialect="duckdb")
    question = sampled(read(text, desk.curator.tables), desk.rules.sample)
    listed = given.table
    _require_apart(question, listed.column_names)
    # Combinations of cells move by what a unit adds to all of them, so that sum is what is bounded.
    found = candidates_of(question, terms, accountant="pure", nulls=True)
    tally = _coarse(found.query.tally)
    if listed.num_rows * tally.cells > PAIRS_MAX:
        raise Unsupported(
            f"{listed.num_rows:,} candidates and {tally.cells:,} cells are too many pairs.",
            fix=f"Use fewer candidates, or wider bins: up to {PAIRS_MAX:,} pairs.",
            about="size",
        )
    cells = _cells(tally)
    grain, whole = _whole(np.vstack(list(_scores(score.added, listed, cells))))
    grain *= tally.terms[0].grain
    if not whole.any():
        raise Unsupported(
            "No row adds anything to any candidate.", fix="Correct the score.", about="score"
        )
    query = combined(tally, -whole if least else whole)
    rows = zip(*(listed.column(name).to_pylist() for name in given.shown), strict=True)
    names = tuple(row[0] if len(row) == 1 else row for row in rows)
    return Candidates.of(names, query, grain, found.caveats)


def _require_apart(question: Question, names: Sequence[str]) -> None:
    """Candidates' columns have names of their own."""
    taken = {fold(name) for block in question.blocks for name in schema_of(block.relation)}
    if both := sorted(taken & set(map(fold, names))):
        raise SpecError(
            f"The table has a column {both[0]!r} too.",
            fix="Give the candidates' column another name.",
            about="column",
        )


def _cells(tally: Sums) -> pa.Table:
    """The values of each cell, by the names of the keys."""
    rows = list(product(*((*each.keys, *((None,) * each.rest)) for each in tally.by)))
    names = [f"noisegate_key_{place}" for place in range(len(tally.by))]
    columns = [
        [float(key) if isinstance(key, Fraction) else key for key in (row[place] for row in rows)]
        for place in range(len(names))
    ]
    return pa.table({name: pa.array(column) for name, column in zip(names, columns, strict=True)})


def _scores(added: exp.Expr, listed: pa.Table, cells: pa.Table) -> Iterator[Floats]:
    """What a row of each cell adds to each candidate; NULL adds nothing."""
    places = pa.array(range(cells.num_rows))
    held = cells.append_column("noisegate_place", places)
    sql = (
        f"SELECT CAST({added.sql(dialect='duckdb')} AS DOUBLE) AS score "  # noqa: S608 - read, locked in
        "FROM listed, cells ORDER BY listed.noisegate_line, cells.noisegate_place"
    )
    step = max(1, _AT_ONCE // cells.num_rows)
    for start in range(0, listed.num_rows, step):
        part = listed.slice(start, step)
        lines = pa.array(range(part.num_rows))
        given = {"listed": part.append_column("noisegate_line", lines), "cells": held}
        score = run_outer(sql, given, {}).column("score")
        values = np.array(score.fill_null(0.0).to_numpy(), np.float64)
        yield values.reshape(part.num_rows, cells.num_rows)


def _coarse(tally: Tally) -> Sums:
    """The counts in parts of a row that leave room for scores."""
    if not isinstance(tally, Sums):
        raise Bug("The cells of a score are counted.", fix="Please report the question.")
    (term,) = tally.terms
    grain = max(term.grain, Fraction(1, _PARTS))
    return replace(tally, terms=(replace(term, grain=grain, low=0, high=int(1 / grain)),))


def _whole(scores: Floats) -> tuple[Fraction, NDArray[np.int64]]:
    """The scores as whole multiples of a grain: exact for decimals of up to six digits."""
    size, most = float(np.abs(scores).max(initial=0.0)), max(1, _ROOM // scores.shape[1])
    for digits in range(7):
        scaled = scores * 10.0**digits
        near = np.rint(scaled)
        if size * 10.0**digits < most and np.allclose(scaled, near, rtol=0, atol=1e-9 * (1 + size)):
            return Fraction(1, 10**digits), near.astype(np.int64)
    grain = Fraction(size) / min(_STEPS, most)
    return grain, np.rint(scores / float(grain)).astype(np.int64)


def combined(tally: Tally, whole: NDArray[np.int64]) -> Query:
    """The question for combinations of counted cells, one for each line of coefficients."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - as the strategies

    return Query(tally, Strategy(whole.shape[1], (Matrix(csr_array(whole)),)))
