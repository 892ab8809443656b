"""What the ledger keeps of synthetic rows: noisy tables, the model fitted to them, the columns."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.transcript import pack, unpack
from noisegate.releases.fit.residuals import Axes
from noisegate.sql.laws.sampling import Sampling
from noisegate.synthetic.columns import Cells, Layout
from noisegate.synthetic.model.constraints import Impossible
from noisegate.synthetic.model.model import Evidence, Model
from noisegate.synthetic.model.refine import drawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT: Final = "noisegate-synthetic/1"
_TRIES: Final = 50  # draws for rows that are possible


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """What the ledger keeps: everything that rows and answers follow from.

    Numbers are in grains. ``sets`` are the tables of the workload; ``total`` is a number of rows
    that is known exactly; rows are moved towards the ``targets``, if there are any.
    """

    layout: Layout
    model: Model
    evidence: tuple[Evidence, ...]
    sets: tuple[Axes, ...]
    method: str
    gaussian: bool
    grain: Fraction
    words: tuple[str, ...]
    impossible: tuple[Impossible, ...] = ()
    total: int | None = None
    targets: tuple[Evidence, ...] = ()
    sampling: Sampling | None = None

    @property
    def rows(self) -> int:
        """How many rows the original has: as known, or as measured."""
        found = self.model.total * float(self.grain)
        return max(1, round(found)) if self.total is None else self.total

    @property
    def seed(self) -> int:
        """Decides the order of rows and where in its bin a value lies: public, the same always."""
        hashed = sha256()
        for each in self.evidence:
            hashed.update(np.ascontiguousarray(each.values, "<f8").tobytes())
        return int.from_bytes(hashed.digest()[:6], "little")

    def to_bytes(self, **more: Any) -> bytes:  # noqa: ANN401 - JSON values beside it
        """All of it, with further values."""
        tables = list({id(each): each for each in (*self.evidence, *self.targets)}.values())
        places = {id(each): place for place, each in enumerate(tables)}
        labels = [each.labels for each in tables if each.labels is not None]
        arrays: list[NDArray[Any]] = [*(each.values for each in tables), *labels]
        arrays += [each.inside.astype(np.int64) for each in self.impossible]
        record = {
            "format": FORMAT,
            "layout": self.layout.to_record(),
            "model": b64encode(self.model.to_record()).decode(),
            "tables": [
                [list(each.axes), each.variance, each.labels is not None] for each in tables
            ],
            "evidence": [places[id(each)] for each in self.evidence],
            "targets": [places[id(each)] for each in self.targets],
            "sets": [list(axes) for axes in self.sets],
            "method": self.method,
            "gaussian": self.gaussian,
            "grain": str(self.grain),
            "words": list(self.words),
            "impossible": [list(each.axes) for each in self.impossible],
            "total": self.total,
            "sampling": None if self.sampling is None else self.sampling.to_record(),
            **more,
        }
        return pack(record, arrays, ())

    @classmethod
    def from_bytes(cls, stored: bytes) -> "tuple[Fitted, dict[str, Any]]":
        """What `to_bytes` wrote, and the record with the further values."""
        record, arrays, _ = unpack(stored)
        if record.get("format") != FORMAT:
            raise SpecError(
                "The stored synthetic release is of another version of noisegate.",
                fix="Release it again.",
            )
        count = len(record["tables"])
        others = iter(arrays[count:])
        tables = [
            Evidence(
                tuple(axes), values, variance, next(others).astype(np.int32) if labelled else None
            )
            for (axes, variance, labelled), values in zip(
                record["tables"], arrays[:count], strict=True
            )
        ]
        found = cls(
            layout=Layout.from_record(record["layout"]),
            model=Model.from_record(b64decode(record["model"])),
            evidence=tuple(tables[place] for place in record["evidence"]),
            targets=tuple(tables[place] for place in record["targets"]),
            sets=tuple(map(tuple, record["sets"])),
            method=record["method"],
            gaussian=record["gaussian"],
            grain=Fraction(record["grain"]),
            sampling=Sampling.from_record(record.get("sampling")),
            words=tuple(record["words"]),
            impossible=tuple(
                Impossible(tuple(axes), next(others).astype(bool)) for axes in record["impossible"]
            ),
            total=record["total"],
        )
        return found, record

    def draw(self, count: int, *, seed: int, given: Mapping[int, Sequence[int]]) -> Cells:
        """Rows as numbers of cells: none of an impossible combination."""
        if given:
            rows = self.model.rows(count, seed=seed, given=given)
        else:
            rows = drawn(self.model, self.targets, count, seed=seed)
        for attempt in range(1, _TRIES):
            bad = np.zeros(count, bool)
            for each in self.impossible:
                bad |= each.held_by(rows, self.layout.sizes)
            missing = int(bad.sum())
            if not missing:
                return rows
            again = self.model.rows(missing, seed=seed + (attempt << 48), given=given or None)
            rows[bad] = again
        raise SpecError(
            "Rows that meet these conditions are hardly possible.",
            fix="Give other conditions.",
            about="impossible",
        )
