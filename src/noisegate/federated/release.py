"""The noisy sum of several owners, as a release: its ±, a card, files, a picture.

What owners are asked for stands here too: the periods as they are, or Fourier coefficients. All of
it is arithmetic on what the aggregator learned.
"""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.curator.owner import Agreement
from noisegate.desk.answer import Answer
from noisegate.desk.card import Card
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.numbers import percent
from noisegate.desk.display.plot import priced
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import Held, loading, read_held
from noisegate.desk.terms.price import variance_of
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.workload import Floats
from noisegate.transforms.strategy import Block, Groups, Matrix

FOURIER_UNIT: Final = 1 << 10
LEFT: Final = FOURIER_UNIT // 2  # the weight of how much the coefficients leave out
_UNIT: Final = PrivacyUnit(column="unit", noun="unit", ids="owners")


# what is asked


def plain(size: int) -> Groups:
    """The periods as they are."""
    return Groups(np.arange(size, dtype=np.int32), size)


def fourier(size: int, coefficients: int) -> Matrix:
    """The first Fourier coefficients of a series, in whole multiples of 1/1024.

    The mean, then a cosine and a sine for each frequency; rounded once, for all owners, so that the
    sensitivity is that of the whole numbers.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415

    if not 1 <= coefficients <= (size + 1) // 2:
        raise SpecError(
            "There are fewer frequencies than that.",
            fix=f"Use 1 to {(size + 1) // 2} coefficients.",
        )
    angles = 2 * np.pi * np.arange(size) / size
    rows = [np.ones(size)]
    for frequency in range(1, coefficients):
        rows += [np.cos(frequency * angles), np.sin(frequency * angles)]
    return Matrix(csr_array(np.rint(np.array(rows) * FOURIER_UNIT).astype(np.int64)))


def fourier_left(size: int, coefficients: int) -> Matrix:
    """The same of a series with one more cell: how far the coefficients are off at most."""
    from scipy.sparse import block_diag, csr_array  # noqa: PLC0415

    last = np.array([[LEFT]], np.int64)
    return Matrix(csr_array(block_diag([fourier(size, coefficients).matrix, last], dtype=np.int64)))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OwnersRelease(Held):
    """The noisy sum of the owners who stayed. ``variance`` is that of each number.

    Numbers are multiples of ``grain``. No ledger of the aggregator is charged: each owner's own is,
    before it sends anything. So a card names no entry; it states the agreement.
    """

    kind: ClassVar[str] = "owners"
    form: ClassVar[str] = "noisegate-owners/1"
    agreement: Agreement
    numbers: NDArray[np.int64]
    stayed: tuple[int, ...]
    grain: Fraction = Fraction(1)
    stated: Card | None = None

    @property
    def variance(self) -> float:
        """Every share counts: the more owners stay, the more noise there is."""
        whole = variance_of(Geometric(scale=self.agreement.scale))
        return whole * len(self.stayed) / self.agreement.honest

    @property
    def loss(self) -> ApproxDP:
        """What a unit may lose."""
        return ApproxDP(self.agreement.epsilon)

    @property
    def words(self) -> str:
        """What holds, in a sentence."""
        return self.agreement.words()

    @property
    def _leaves(self) -> bool:
        """Whether the last number says how much the coefficients leave out."""
        return self.agreement.extra > 0

    def series(self) -> Floats:
        """The sum of the series itself: of all with these answers, the one nearest to 0."""
        told = self.numbers[:-1] if self._leaves else self.numbers
        return self._back() @ told.astype(np.float64) * float(self.grain)

    def margins(self, confidence: Numeric = 0.95) -> Floats:
        """The ± of each period: of the noise, and of what Fourier coefficients leave out.

        Claim: outside with at most 1 - confidence, each period by itself. Why: the noise of a
            period is a sum of known variance (`tail_factor`). Each owner told, with noise, how far
            its own coefficients are off at most; what they leave out of the sum is no more than the
            sum of that. Each of both may fail with half. Without that number the noise is all.
        """
        failure = float(failure_of(confidence)) / (2 if self._leaves else 1)
        factor = tail_factor(failure, gaussian=False)
        spread: Floats = factor * np.sqrt(self.variance * np.square(self._back()).sum(axis=1))
        if self._leaves:
            spread = spread + self.left_out(1 - failure)
        return spread * float(self.grain)

    def left_out(self, confidence: Numeric = 0.95) -> float:
        """How far the coefficients are off at most, in any period, at the confidence."""
        if not self._leaves:
            return 0.0
        factor = tail_factor(float(failure_of(confidence)), gaussian=False)
        return max(0.0, (float(self.numbers[-1]) + factor * sqrt(self.variance)) / LEFT)

    def answer(self, rows: int | None = None) -> Answer:
        """The sum of each period, with its ±."""
        shown = self.series()
        count = shown.size if rows is None else min(rows, shown.size)
        table = pa.table({
            "period": pa.array(range(1, count + 1), pa.int64()), "sum": pa.array(shown[:count]),
        })  # fmt: skip

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            return None, tuple(self.margins(confidence)[:count].tolist())

        agreed = self.agreement
        gone = agreed.owners - len(self.stayed)
        return Answer(
            sql=f"sum of {len(self.stayed)} of {agreed.owners} owners: {agreed.session}",
            table=table, half_widths=half_widths,
            cost=self.loss if self.stated is None else ApproxDP(0), remaining=None,
            guarantee=self.guarantee, questions=(self._question,),
            caveats=(
                f"{len(self.stayed)} owners are in it, and {gone} dropped out.", self.words,
                "Each owner's own ledger was charged, under the name of the session.",
            ),
        )  # fmt: skip

    @property
    def guarantee(self) -> Guarantee:
        """The promise, with whom it is a promise against."""
        agreed = self.agreement
        scope = (
            f"the numbers of {agreed.owners} owners, session {agreed.session!r}, where a unit "
            f"moves all of them together by at most {agreed.per_unit}"
        )
        return Guarantee(loss=self.loss, unit=_UNIT, scope=scope)

    @property
    def _question(self) -> str:
        """The agreement as plain values: what all owners hold, by its name."""
        agreed = self.agreement
        stated = {
            "owners": agreed.owners, "session": agreed.session, "agreement": agreed.name().hex(),
            "drop_outs": agreed.drop_outs, "colluding": agreed.colluding,
            "per_unit": agreed.per_unit, "epsilon": str(agreed.epsilon), "sum": agreed.size,
            "stayed": list(self.stayed), "noise": str(agreed.scale),
        }  # fmt: skip
        return json.dumps(stated, sort_keys=True)

    @property
    def headline(self) -> str:
        """What it is, in a few words."""
        return f"sum of {len(self.stayed)} of {self.agreement.owners} owners"

    def parquet(self, confidence: Numeric) -> pa.Table:  # noqa: ARG002 - the ± follows from these
        """The noisy numbers themselves."""
        return pa.table({"numbers": pa.array(self.numbers, pa.int64())})

    def record(self) -> dict[str, Any]:
        """The agreement, and who stayed."""
        agreed = self.agreement
        return {
            "session": agreed.session, "owners": agreed.owners, "drop_outs": agreed.drop_outs,
            "colluding": agreed.colluding, "per_unit": agreed.per_unit,
            "epsilon": str(agreed.epsilon), "extra": agreed.extra, "block": _written(agreed.block),
            "stayed": list(self.stayed), "grain": str(self.grain), "name": agreed.name().hex(),
        }  # fmt: skip

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "OwnersRelease":
        """The release that `save` wrote to a Parquet file; refuses one about another agreement."""
        table, record = read_held(file, cls)
        counts = ("session", "owners", "drop_outs", "colluding", "per_unit", "extra")
        agreed = Agreement(
            **{name: record[name] for name in counts}, epsilon=Fraction(record["epsilon"]),
            block=_block(record["block"]),
        )  # fmt: skip
        if agreed.name().hex() != record["name"]:
            raise ValueError
        return cls(
            agreement=agreed, numbers=table.column("numbers").to_numpy().astype(np.int64),
            stayed=tuple(record["stayed"]), grain=Fraction(record["grain"]),
            stated=record["standing"]["stated"],
        )  # fmt: skip

    def plot(self, confidence: Numeric = 0.95, title: str | None = None) -> Chart:
        """The sum of each period in the band of its ±, an altair chart."""
        alt, shown, off = altair(), self.series(), self.margins(confidence)
        ends = zip(shown.tolist(), (shown - off).tolist(), (shown + off).tolist(), strict=True)
        rows = [
            {"period": period, "sum": value, "low": low, "high": high}
            for period, (value, low, high) in enumerate(ends, start=1)
        ]
        across = alt.X("period:Q", axis=alt.Axis(format="d", tickMinStep=1))
        base = alt.Chart(alt.InlineData(values=rows)).encode(across.scale(zero=False, nice=False))
        label = f"sum (± at {percent(confidence)} confidence)"
        band = base.mark_area(opacity=0.25).encode(y=alt.Y("low:Q", title=label), y2="high:Q")
        line = base.mark_line().encode(y=alt.Y("sum:Q", title=label))
        chart = alt.layer(band, line).properties(width=560, height=300)
        title = title or f"Sum of {len(self.stayed)} of {self.agreement.owners} owners"
        return priced(chart, title, self.loss, self.words)

    def _back(self) -> Floats:
        block = self.agreement.block
        if isinstance(block, Matrix):
            matrix = block.matrix.toarray().astype(np.float64)
            return np.linalg.pinv(matrix[:-1, :-1] if self._leaves else matrix)
        held = np.flatnonzero(block.labels >= 0)
        if np.array_equal(block.labels, np.arange(block.size)):  # the periods as they are
            return np.eye(block.size)
        marks: Floats = np.zeros((block.size, block.cells))
        marks[block.labels[held], held] = 1
        return np.asarray(np.linalg.pinv(marks), np.float64)

    def __str__(self) -> str:
        gone = self.agreement.owners - len(self.stayed)
        return (
            f"sum of {len(self.stayed)} owners ({gone} dropped out), {self.series().size} "
            f"periods ± {self.margins().max():.1f} at 95 %\n{self.words}"
        )


def _written(block: Block) -> dict[str, Any]:
    """What was asked, as plain values."""
    if isinstance(block, Groups):
        same = np.array_equal(block.labels, np.arange(block.size))
        return {"groups": block.size, "labels": None if same else block.labels.tolist()}
    found = block.matrix
    return {
        "shape": list(found.shape), "data": found.data.tolist(),
        "indices": found.indices.tolist(), "starts": found.indptr.tolist(),
    }  # fmt: skip


def _block(record: Mapping[str, Any]) -> Block:
    from scipy.sparse import csr_array  # noqa: PLC0415

    if "groups" in record:
        size, labels = record["groups"], record["labels"]
        return plain(size) if labels is None else Groups(np.array(labels, np.int32), size)
    parts = (np.array(record[name], np.int64) for name in ("data", "indices", "starts"))
    return Matrix(csr_array(tuple(parts), shape=tuple(record["shape"])))
