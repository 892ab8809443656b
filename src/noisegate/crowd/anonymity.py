"""k-anonymity: a property of a table, shown as a contrast. It is not a guarantee of any mechanism.

A table is k-anonymous if each combination of quasi-identifiers in it occurs at least k times, and
l-diverse if each such group has at least l values of a sensitive column. Nothing follows for a
person: `betrayed` keeps a table k-anonymous and shows somebody's whole row, and two k-anonymous
tables of the same people together single them out (`linked`).

All of it works on rows as they are: it is for those who hold them. Nothing here may be published.

>>> import pyarrow as pa
>>> rows = pa.table({"age": [31, 34, 38, 52], "ill": ["flu", "flu", "flu", "gout"]})
>>> print(anonymity(rows, ["age"], sensitive="ill"))
1-anonymous, 1-diverse: 4 groups by age. This is not a privacy guarantee.
>>> print(anonymity(generalised(rows, ["age"], 2), ["age"], sensitive="ill"))
2-anonymous, 1-diverse: 2 groups by age. This is not a privacy guarantee.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymity:
    """What a table has, by some columns. ``l`` is None where no sensitive column is named."""

    k: int
    l: int | None  # noqa: E741 - as it is called everywhere
    groups: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        diverse = "" if self.l is None else f", {self.l}-diverse"
        names = ", ".join(self.columns)
        return (
            f"{self.k}-anonymous{diverse}: {self.groups} groups by {names}. This is not a privacy "
            "guarantee."
        )


def anonymity(rows: pa.Table, columns: Sequence[str], *, sensitive: str | None = None) -> Anonymity:
    """How k-anonymous, and l-diverse, a table is by its quasi-identifiers ``columns``."""
    _require(rows, columns, sensitive)
    grouped = rows.group_by(list(columns))
    asked: list[Any] = [([], "count_all")]
    if sensitive is not None:
        asked.append((sensitive, "count_distinct"))
    found = grouped.aggregate(asked)
    counts = found["count_all"].to_numpy()
    values = None if sensitive is None else found[f"{sensitive}_count_distinct"].to_numpy()
    return Anonymity(
        k=int(counts.min(initial=rows.num_rows)),
        l=None if values is None else int(values.min(initial=rows.num_rows)),
        groups=found.num_rows,
        columns=tuple(columns),
    )


def generalised(rows: pa.Table, columns: Sequence[str], k: int) -> pa.Table:
    """The table with its quasi-identifiers as ranges or lists, so that it is k-anonymous [LDR06].

    Rows are split at the median of the column with the most values, as long as both halves hold at
    least k. Fewer rows than k in all are refused.
    """
    _require(rows, columns, None)
    if type(k) is not int or not 1 <= k <= rows.num_rows:
        raise SpecError("There are fewer than k rows.", fix=f"Use 1 to {rows.num_rows}.")
    kinds = {name: rows[name].combine_chunks().dictionary_encode() for name in columns}
    ranks: dict[str, NDArray[np.int64]] = {}
    words: dict[str, list[Any]] = {}
    for name, encoded in kinds.items():
        values = encoded.dictionary.to_pylist()
        order = sorted(range(len(values)), key=values.__getitem__)
        words[name] = [values[at] for at in order]
        places = np.argsort(np.array(order, np.int64), kind="stable")
        ranks[name] = places[encoded.indices.to_numpy(zero_copy_only=False)]
    shown = {name: np.empty(rows.num_rows, object) for name in columns}
    for group in _halved(ranks, np.arange(rows.num_rows), k):
        for name in columns:
            low, high = (int(at) for at in (ranks[name][group].min(), ranks[name][group].max()))
            text = [words[name][low], words[name][high]]
            shown[name][group] = str(text[0]) if low == high else f"{text[0]} to {text[1]}"
    made = rows
    for name in columns:
        made = made.set_column(made.column_names.index(name), name, pa.array(shown[name].tolist()))
    return made


def betrayed(rows: pa.Table, person: int) -> pa.Table:
    """The table with one person's whole row appended to every row: as k-anonymous as before."""
    if not 0 <= person < rows.num_rows:
        raise SpecError("There is no row with this number.", fix=f"Use 0 to {rows.num_rows - 1}.")
    made = rows
    for name in rows.column_names:
        value = [rows[name][person].as_py()] * rows.num_rows
        made = made.append_column(f"{name} of one", pa.array(value, rows.schema.field(name).type))
    return made


def linked(one: pa.Table, other: pa.Table, columns: Sequence[str], *, sensitive: str) -> int:
    """How many people a join of two tables on shared columns leaves with one possible value.

    ``one`` is what an attacker knows, a row for each person; ``other`` is published.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - only when asked for

    _require(one, columns, None)
    _require(other, columns, sensitive)
    grouped = other.group_by(list(columns)).aggregate([(sensitive, "count_distinct")])
    single = grouped.filter(pc.equal(grouped[f"{sensitive}_count_distinct"], 1))
    return int(one.join(single, keys=list(columns), join_type="left semi").num_rows)


def _halved(
    ranks: dict[str, NDArray[np.int64]], group: NDArray[np.int64], k: int
) -> list[NDArray[np.int64]]:
    """Groups of at least k, by halves at medians."""
    done: list[NDArray[np.int64]] = []
    left = [group]
    while left:
        here = left.pop()
        halves = _split(ranks, here, k)
        (done if len(halves) == 1 else left).extend(halves)
    return done


def _split(
    ranks: dict[str, NDArray[np.int64]], group: NDArray[np.int64], k: int
) -> list[NDArray[np.int64]]:
    by_values = sorted(ranks, key=lambda name: -np.unique(ranks[name][group]).size)
    for name in by_values:
        values = ranks[name][group]
        ordered = np.sort(values)
        for middle in (ordered[(group.size - 1) // 2], ordered[(group.size - 1) // 2] - 1):
            below = values <= middle
            if k <= below.sum() <= group.size - k:
                return [group[below], group[~below]]
    return [group]


def _require(rows: pa.Table, columns: Sequence[str], sensitive: str | None) -> None:
    wanted = [*columns, *([] if sensitive is None else [sensitive])]
    missing = [name for name in wanted if name not in rows.column_names]
    if missing or not columns:
        raise SpecError(
            f"There is no column {missing[0]!r}." if missing else "No column is named.",
            fix=f"Use {', '.join(rows.column_names)}.",
        )
