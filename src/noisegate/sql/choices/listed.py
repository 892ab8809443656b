"""Public candidates: a list, a public table or an interval; and a prior over them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Final, TypeAlias, final

import pyarrow as pa

from noisegate.desk.desk import Desk
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.mechanisms.selection.prior import WEIGHT_MAX
from noisegate.sql.choices.candidates import Candidate
from noisegate.sql.choices.on_interval import Grid
from noisegate.sql.reading.words import fold

Given: TypeAlias = Mapping[str, object]  # lists by the names of columns, or one pair (low, high)
Prior: TypeAlias = Mapping[str, Number]
LIST_MAX: Final = 100_000
_FORM: Final = 'Use {"price": [5, 10, 15]}, {"hour": (0, 24)}, or the name of a public table.'


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """Candidates as lines of a table; ``shown`` are the columns that name them."""

    table: pa.Table
    shown: tuple[str, ...]
    weights: tuple[Fraction, ...] | None = None


def interval_of(given: Given | str | None) -> tuple[str, Grid] | None:
    """The name of the point and its interval, where candidates are one."""
    pairs = list(given.items()) if isinstance(given, Mapping) else []
    found = [(name, ends) for name, ends in pairs if isinstance(ends, tuple) and len(ends) == 2]
    if not found:
        return None
    (name, (low, high)), *others = found
    exact = [fraction(end, name=name) for end in (low, high)]
    if others or len(pairs) != 1 or exact[0] >= exact[1]:
        raise SpecError(
            "Candidates on an interval are one pair of numbers.",
            fix='For example: candidates={"hour": (0, 24)}.',
            about="candidates",
        )
    return name, Grid(*exact)


def listed_of(desk: Desk, given: Given | str, prior: Prior | str | None) -> Listed:
    """The candidates of an order, with the weights that one of their columns states."""
    table = _public(desk, given) if isinstance(given, str) else _table(given)
    if not 2 <= table.num_rows <= LIST_MAX:
        raise SpecError(
            f"There are {table.num_rows:,} candidates.",
            fix=f"Give at least 2 and at most {LIST_MAX:,}.",
            about="candidates",
        )
    names = {fold(name): name for name in table.column_names}
    column = names.get(fold(prior)) if isinstance(prior, str) else None
    if isinstance(prior, str) and column is None:
        raise SpecError(
            f"The candidates have no column {prior!r}.",
            fix=f"They have {', '.join(table.column_names)}.",
            about="prior",
        )
    shown = tuple(name for name in table.column_names if name != column)
    rows = {tuple(row.values()) for row in table.select(shown).to_pylist()}
    if not shown or len(rows) < table.num_rows:
        raise SpecError(
            "A candidate is listed twice.", fix="List each candidate once.", about="candidates"
        )
    weights = None
    if column is not None:
        values = table.column(column).to_pylist()
        weights = tuple(fraction(each, name="prior") for each in values)
    return Listed(table, shown, weights)


def _public(desk: Desk, name: str) -> pa.Table:
    found = next((t for n, t in desk.curator.tables.items() if fold(n) == fold(name)), None)
    if found is None or not found.is_public:
        raise SpecError(
            f"{name!r} is not a public table.", fix=f"Declare it, or give a list. {_FORM}",
            about="candidates",
        )  # fmt: skip
    return desk.curator.public(found.name)


def _table(given: Given) -> pa.Table:
    lists = {name: column for name, column in given.items() if isinstance(column, Sequence)}
    lengths = {len(column) for column in lists.values()}
    texts = any(isinstance(column, str) for column in lists.values())
    if len(lists) < len(given) or texts or len(lengths) != 1:
        raise SpecError("Candidates are not lists of one length.", fix=_FORM, about="candidates")
    try:
        return pa.table({name: pa.array(list(column)) for name, column in lists.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise SpecError(
            "A column of candidates holds values of different types.",
            fix="Use numbers, or texts.",
            about="candidates",
        ) from None


def weights_of(
    names: Sequence[Candidate], prior: Prior | None, stated: Sequence[Fraction] | None
) -> tuple[int, ...] | None:
    """The prior as whole numbers: stated beside the candidates, or by name, others weighing 1."""
    if prior is None and stated is None:
        return None
    weights = list(stated or ())
    if prior is not None:
        texts = [", ".join(map(str, n)) if isinstance(n, tuple) else str(n) for n in names]
        given = {name: fraction(each, name="prior") for name, each in prior.items()}
        if unknown := sorted(given.keys() - set(texts)):
            raise SpecError(
                f"There is no candidate {unknown[0]!r}.",
                fix="Name candidates as the choice shows them.",
                about="prior",
            )
        weights = [given.get(text, Fraction(1)) for text in texts]
    scale = lcm(*(each.denominator for each in weights))
    whole = tuple(int(each * scale) for each in weights)
    if min(whole) < 0 or max(whole) > WEIGHT_MAX or not any(whole):
        raise SpecError(
            "The weights of the prior are out of range.",
            fix="Use weights of at least 0, not all 0, with few digits.",
            about="prior",
        )
    return whole
