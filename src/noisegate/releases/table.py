"""A released table: numbers that stay, to be asked, drawn, saved and read again at no cost."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, log, prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.ledger.entry import Entry
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.query.answer import Answer, HalfWidths
from noisegate.query.card import Card
from noisegate.query.card import card as card_of
from noisegate.query.display import with_margin
from noisegate.releases.axes import Axis, require_names
from noisegate.releases.making import Making
from noisegate.releases.transcript import pack, unpack
from noisegate.releases.workload import Workload, cells

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

FORMAT: Final = "noisegate-release/1"
ENDINGS: Final = (
    ".parquet",
    ".csv",
    ".json",
    ".png",
    ".svg",
    ".html",
    ".geojson",
    ".geoparquet",
    ".md",
)
_SHOWN: Final = 200  # rows on a screen
_LONG: Final = (1 << 31) - 1  # of a transcript in a file


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A sum of released cells. The exact one lies within ± ``margin``, at the ``confidence``.

    ``margin`` is None where it depends on the rows.
    """

    value: int | float
    margin: int | float | None
    confidence: Fraction

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return with_margin(self.value, self.margin)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableRelease:
    """Numbers over the cells of ``axes``. Reading it again never draws again and never costs.

    ``remaining`` is None, and ``stated`` the card, where it was read from a file.
    """

    sql: str
    axes: tuple[Axis, ...]
    values: NDArray[Any]
    value: str
    making: Making
    words: tuple[str, ...]
    cost: ApproxDP
    remaining: ApproxDP | None
    guarantee: Guarantee
    question: str
    request_id: str
    practice: bool = False
    log: Callable[[], Sequence[Entry]] = tuple
    stated: Card | None = None

    def __post_init__(self) -> None:
        own = np.array(self.values)
        own.flags.writeable = False
        object.__setattr__(self, "values", own)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many keys each axis has."""
        return tuple(axis.size for axis in self.axes)

    @property
    def method(self) -> str:
        """The recipe that made it."""
        return self.making.method

    @property
    def free(self) -> bool:
        """Whether it came from the ledger or a file, without a new charge."""
        return self.cost.epsilon == 0 and self.cost.delta == 0

    @property
    def total(self) -> Number:
        """The sum of all cells."""
        return self.query()

    # asking

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some cells, free: ``release.query(age=(20, 39), ward=["north", "west"])``.

        By the name of an axis: a key, a list of keys, or a pair (low, high) with both ends inside.
        Axes that are not named are summed over.
        """
        require_names(self.axes, where)
        runs = [
            axis.runs(where[axis.name]) if axis.name in where else [(0, axis.size - 1)]
            for axis in self.axes
        ]
        boxes = np.array(list(product(*runs)), np.int64).reshape(-1, len(self.axes), 2)
        asked = Workload(self.shape, boxes[:, :, 0], boxes[:, :, 1], "a query")
        found = sum(asked.answers(self.values).tolist())
        widths = self.widths(asked, confidence, together=True)
        return Number(
            value=round(found) if self.making.whole else found,
            margin=None if widths is None else widths[0],
            confidence=fraction(confidence),
        )

    def margins(self, confidence: Numeric = 0.95) -> NDArray[Any] | None:
        """The ± of every cell, each by itself; not a number where it depends on the rows.

        None where it does so everywhere.
        """
        widths = self.widths(cells(self.shape), confidence)
        if widths is None:
            return None
        kind = np.float64 if None in widths or not self.making.whole else np.int64
        return np.array(widths, kind).reshape(self.shape)

    def widths(
        self, asked: Workload, confidence: Numeric, *, together: bool = False
    ) -> list[Any] | None:
        """Half-widths around the released sums, of each box or of all together; None: not known.

        Claim: the exact sum lies within, with the confidence. Why: the estimate before mending is
            the exact sum plus noise of the stated variance, a sum of geometric or Gaussian draws;
            a geometric draw's tail is below that of Laplace noise with 1/6 more variance, and a sum
            of several is taken to be between it and a normal law. What mending did is added;
            numbers that cannot be negative end at 0, but no ± is below half of the noise's.
            Rounding: up.
        """
        failure, making = float(failure_of(confidence)), self.making
        estimate = making.estimate(self.shape)
        if estimate.variance is None:
            return None
        variance = np.asarray(estimate.variance(asked.lows, asked.highs), np.float64)
        factor = tail_factor(failure, gaussian=making.price.gaussian)
        spread = factor * np.sqrt(variance + 1 / 6) * float(making.grain)
        raw, shown = asked.answers(estimate.cells) * float(making.grain), asked.answers(self.values)
        if together:  # noise of several boxes may go the same way
            raw, shown, spread = (each.sum(keepdims=True) for each in (raw, shown, spread))
        low, high = raw - spread, raw + spread
        if not making.signed:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        half = np.maximum(np.maximum(high - shown, shown - low), spread / 2)
        known = [each if np.isfinite(each) else None for each in half.tolist()]
        if not making.whole:
            return known
        return [None if each is None else ceil(each - 1e-9) for each in known]

    # other forms

    def to_numpy(self) -> NDArray[Any]:
        """The numbers, in the shape of the axes; a copy."""
        return self.values.copy()

    def to_arrow(self, confidence: Numeric | None = None) -> "pa.Table":
        """A row for each cell: its keys and its number; with a confidence, its margin too."""
        return self.answer().to_arrow(confidence)

    def to_pandas(self, confidence: Numeric | None = None) -> "pd.DataFrame":
        """The same as a pandas frame."""
        return self.answer().to_pandas(confidence)

    def to_polars(self, confidence: Numeric | None = None) -> "pl.DataFrame":
        """The same as a Polars frame."""
        return self.answer().to_polars(confidence)

    def to_csv(self, file: str | Path | None = None, confidence: Numeric = 0.95) -> str:
        """Comma-separated rows with margins, also written to a file if one is named."""
        return self.answer().to_csv(file, confidence)

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values: those of an answer, and how it was made."""
        made = {"method": self.method, "shape": list(self.shape), "sql": self.sql}
        return self.answer().to_dict(confidence) | made | {"words": list(self.words)}

    def to_json(self, file: str | Path | None = None, confidence: Numeric = 0.95) -> str:
        """`to_dict` as JSON text, also written to a file if one is named."""
        text = json.dumps(self.to_dict(confidence), ensure_ascii=False, allow_nan=False)
        if file is not None:
            Path(file).write_text(text, encoding="utf-8")
        return text

    def card(self, confidence: Numeric = 0.95) -> Card:
        """The release card: what was promised and measured, to be checked against the ledger."""
        return self.stated or card_of(self.answer(), confidence)

    def plot(self, confidence: Numeric = 0.95, **choices: str | None) -> Any:  # noqa: ANN401
        """A picture, an altair chart: bars or a line of one axis, a heat map of two.

        ``x`` and ``y`` choose axes; all others are summed over. ``.save("x.png")`` writes it.
        """
        from noisegate.releases.picture import picture  # noqa: PLC0415 - only when asked for

        return picture(self, confidence, **choices)

    # files

    def save(self, file: str | Path, confidence: Numeric = 0.95) -> None:
        """Write it in the form of the file's ending. A Parquet file holds all of it: see `load`."""
        from noisegate.releases.geo import map_of  # noqa: PLC0415 - only when asked for

        path = Path(file)
        writers: dict[str, Callable[[], Any]] = {
            ".parquet": lambda: self._save(path, confidence),
            ".csv": lambda: self.to_csv(path, confidence),
            ".json": lambda: self.to_json(path, confidence),
            ".geojson": lambda: map_of(self, confidence).to_geojson(path),
            ".geoparquet": lambda: map_of(self, confidence).to_geoparquet(path),
            ".md": lambda: path.write_text(self.card(confidence).to_markdown(), encoding="utf-8"),
            **dict.fromkeys(
                (".png", ".svg", ".html"), lambda: self.plot(confidence).save(str(path))
            ),
        }
        if path.suffix.lower() not in writers:
            raise SpecError(f"{path.name!r} has no known ending.", fix=f"Use {', '.join(ENDINGS)}.")
        writers[path.suffix.lower()]()

    def _save(self, path: Path, confidence: Numeric) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

        guarantee = self.guarantee
        record = {
            "format": FORMAT,
            "sql": self.sql,
            "axes": [axis.to_record() for axis in self.axes],
            "value": self.value,
            "making": self.making.to_record(),
            "words": list(self.words),
            "loss": [str(guarantee.loss.epsilon), str(guarantee.loss.delta)],  # type: ignore[union-attr]
            "unit": [guarantee.unit.column, guarantee.unit.noun],
            "scope": guarantee.scope,
            "question": self.question,
            "request": self.request_id,
            "practice": self.practice,
        }
        facts = {
            "noisegate.release": json.dumps(record, ensure_ascii=False),
            "noisegate.transcript": b64encode(pack({}, [], self.making.rounds)).decode(),
        }
        if not self.practice:
            facts["noisegate.card"] = self.card(confidence).to_json()
        pq.write_table(self.to_arrow(confidence).replace_schema_metadata(facts), path)

    @classmethod
    def load(cls, file: str | Path) -> "TableRelease":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        import pyarrow as pa  # noqa: PLC0415 - only when asked for
        import pyarrow.parquet as pq  # noqa: PLC0415

        limits = {"thrift_string_size_limit": _LONG, "thrift_container_size_limit": _LONG}
        try:
            table = pq.read_table(str(file), **limits)
            facts = {k.decode(): v for k, v in (table.schema.metadata or {}).items()}
            record = json.loads(facts["noisegate.release"])
            _, _, rounds = unpack(b64decode(facts["noisegate.transcript"]))
            axes = tuple(map(Axis.from_record, record["axes"]))
            known = record["format"] == FORMAT
        except (OSError, KeyError, ValueError, pa.ArrowInvalid):
            known = False
        if not known:
            raise SpecError(
                f"{Path(file).name!r} is no release.", fix="Give a Parquet file that save() wrote."
            )
        shape = tuple(axis.size for axis in axes)
        names = [axis.name for axis in axes]
        if not table.select(names).equals(_keys(axes, prod(shape)), check_metadata=False):
            raise SpecError(
                "The rows of the release were changed.", fix="Use the file as save() wrote it."
            )
        card = facts.get("noisegate.card")
        column, noun = record["unit"]
        return cls(
            sql=record["sql"],
            axes=axes,
            values=table[record["value"]].to_numpy().reshape(shape),
            value=record["value"],
            making=Making.from_record(record["making"], rounds),
            words=tuple(record["words"]),
            cost=ApproxDP(0),
            remaining=None,
            guarantee=Guarantee(
                loss=ApproxDP(*record["loss"]),
                unit=PrivacyUnit(column=column, noun=noun),
                scope=record["scope"],
            ),
            question=record["question"],
            request_id=record["request"],
            practice=record["practice"],
            stated=None if card is None else Card.from_json(card.decode()),
        )

    # on a screen

    def answer(self, rows: int | None = None) -> Answer:
        """The same as an answer has it: a row for each cell, or for the first, to be looked at."""
        import pyarrow as pa  # noqa: PLC0415 - tables are made when asked for

        count = self.values.size if rows is None else min(rows, self.values.size)
        keys = _keys(self.axes, count, labels=rows is not None)
        table = keys.append_column(self.value, pa.array(self.values.reshape(-1)[:count]))

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            each = _first(self.shape, count)
            widths = self.widths(Workload(self.shape, each, each, "cells"), confidence)
            return (*[None] * len(self.axes), None if widths is None else tuple(widths))

        left = self.values.size - count
        return Answer(
            sql=self.sql,
            table=table,
            half_widths=half_widths,
            cost=self.cost,
            remaining=self.remaining,
            guarantee=self.guarantee,
            request_ids=(self.request_id,),
            questions=(self.question,),
            caveats=(*([f"{left:,} more cells."] if left else []), *self.words),
            practice=self.practice,
            unfollowed=lambda: () if self._has_error() else (self.value,),
            log=self.log,
        )

    def shown(self) -> Answer:
        """Its first rows as an answer, for a screen."""
        return self.answer(_SHOWN)

    def _has_error(self) -> bool:
        return self.making.estimate(self.shape).variance is not None

    def footer(self, confidence: Numeric = 0.95) -> str:
        """Method, price, balance and what the ± means; then the caveats, one a line."""
        size = " × ".join(f"{size:,}" for size in self.shape)
        return f"{size} cells by {self.method!r} · {self.shown().footer(confidence)}"

    @property
    def promise(self) -> str:
        """The guarantee in a sentence."""
        return self.answer(0).promise

    def __str__(self) -> str:
        answer = self.shown()
        rows = ["\t".join(row) for row in answer.cells()]
        return "\n".join(["\t".join(answer.columns), *rows, self.footer()])

    def __repr__(self) -> str:
        names = ", ".join(axis.name for axis in self.axes)
        return f"<TableRelease of {self.value} by {names}: {self.footer().splitlines()[0]}>"

    def _repr_html_(self) -> str:
        return self.shown()._repr_html_()

    def __rich__(self) -> Any:  # noqa: ANN401 - rich is loaded only for a terminal
        from rich.console import Group  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        answer = self.shown()
        table = Table()
        for name in answer.columns:
            table.add_column(Text(name))
        for row in answer.cells():
            table.add_row(*map(Text, row))
        return Group(table, Text(self.footer()), Text(self.promise))


def _first(shape: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """Where the first cells are, the last axis varying fastest."""
    return np.stack(np.unravel_index(np.arange(count), shape), axis=1).astype(np.int64)


def _keys(axes: Sequence[Axis], count: int, *, labels: bool = False) -> "pa.Table":
    """The keys of the first cells; or as people read them."""
    import pyarrow as pa  # noqa: PLC0415 - tables are made when asked for

    places = _first(tuple(axis.size for axis in axes), count).T
    columns = [pa.array(axis.labels) if labels else axis.column() for axis in axes]
    arrays = [column.take(pa.array(at)) for column, at in zip(columns, places, strict=True)]
    return pa.table(arrays, names=[axis.name for axis in axes])


def tail_factor(failure: float, *, gaussian: bool) -> float:
    """How many standard deviations noise exceeds that rarely: the wider of normal and Laplace."""
    from statistics import NormalDist  # noqa: PLC0415 - small

    normal = -NormalDist().inv_cdf(failure / 2)
    return normal if gaussian else max(normal, log(1 / failure) / sqrt(2))
