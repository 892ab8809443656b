"""How a release was made: method, workload, price and transcript, as public facts."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from itertools import combinations
from typing import Any, Final, TypeAlias, final

import numpy as np

from noisegate.desk.terms.price import Price
from noisegate.errors import NoisegateError, SpecError
from noisegate.frozen import dataclass, field
from noisegate.releases.ask.transcript import Rounds, Told, pack
from noisegate.releases.cells import workload as workloads
from noisegate.releases.cells.axes import Axis, runs_of
from noisegate.releases.cells.estimate import Estimate
from noisegate.releases.cells.workload import Floats, Workload
from noisegate.releases.fit.plausible import Plausible
from noisegate.releases.recipes import RECIPES, recipe
from noisegate.releases.trees.covers import Cover, covers
from noisegate.releases.trees.hierarchy import hierarchy
from noisegate.sql.laws.sampling import Sampling, sampling_of

Spec: TypeAlias = str | Mapping[str, Any]  # a name, or boxes as lists
NAMES: Final = ("cells", "ranges", "prefixes", "marginals")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Everything that a recipe's estimate follows from. Numbers are in grains.

    ``moved`` is how far one unit moves all cells together.
    """

    method: str
    options: Mapping[str, Any]
    workload: Spec
    price: Price
    moved: int
    grain: Fraction
    whole: bool
    signed: bool
    rounds: Rounds = ()
    _kept: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def sampling(self) -> Sampling | None:
        """What sampling adds to the error of sums; None without one, or where nobody can say."""
        if self.price.sample is None or self.signed:
            return None
        return sampling_of(self.price.sample, self.moved, self.grain)

    def estimate(self, shape: tuple[int, ...]) -> Estimate:
        """What the recipe made of its answers: free, made again when it is first needed."""
        if "estimate" not in self._kept:
            try:
                found, _ = self._again(shape)
            except NoisegateError:  # another version of the recipe: then no ± is known
                found = Estimate(np.zeros(shape))
            self._kept["estimate"] = found
        estimate: Estimate = self._kept["estimate"]
        return estimate

    def plausible(self, shape: tuple[int, ...]) -> Plausible | None:
        """Tables that could be the exact one; None where no model tells.

        It is for numbers that cannot be negative, and sums of groups of cells.
        """
        if "plausible" not in self._kept:
            try:
                _, told = self._again(shape)
                tree = None if self.signed else hierarchy(shape, told.heard)
            except NoisegateError:
                tree = None
            name = sha256(pack(self.to_record(), [], self.rounds)).hexdigest()
            unit, gaussian = float(self.moved), self.price.gaussian
            model = None if tree is None else Plausible(tree, unit, name, shape, gaussian)
            self._kept["plausible"] = model
        kept: Plausible | None = self._kept["plausible"]
        return kept

    def factor(self, model: Plausible, values: Floats) -> float:
        """How many of a model's deviations are a ± at 95 %, for the released numbers as a whole."""
        if "factor" not in self._kept:
            asked = workload_of(self.workload, values.shape)
            self._kept["factor"] = model.factor(asked, asked.answers(values), float(self.grain))
        kept: float = self._kept["factor"]
        return kept

    def covers(self, shape: tuple[int, ...]) -> list[Cover]:
        """Groups that cover the table, where no model tells; none where numbers may be negative."""
        if "covers" not in self._kept:
            try:
                found = [] if self.signed else covers(shape, self._again(shape)[1].heard)
            except NoisegateError:
                found = []
            self._kept["covers"] = found
        kept: list[Cover] = self._kept["covers"]
        return kept

    @property
    def unknown(self) -> str:
        """Why a ± is not known, where it is not."""
        if self.signed:
            return "the sums may be negative, and no model of their error is known"
        if self.method not in RECIPES or self.method == "direct":
            return "the method answers only its workload, and no model of the other errors is known"
        return "the method has changed since the release"

    def _again(self, shape: tuple[int, ...]) -> tuple[Estimate, Told]:
        told = Told(self.price, shape=shape, moved=self.moved, rounds=self.rounds)
        made = recipe(self.method, **self.options)
        return made.build(told, workload_of(self.workload, shape)), told

    def to_record(self) -> dict[str, Any]:
        """All but the transcript, as JSON values."""
        return {
            "method": self.method,
            "options": dict(self.options),
            "workload": self.workload,
            "amount": str(self.price.amount),
            "gaussian": self.price.gaussian,
            "sample": None if self.price.sample is None else str(self.price.sample),
            "moved": self.moved,
            "grain": str(self.grain),
            "whole": self.whole,
            "signed": self.signed,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], rounds: Rounds) -> "Making":
        """What `to_record` wrote."""
        return cls(
            method=record["method"],
            options=plain_options(record["options"]),
            workload=record["workload"],
            price=Price(
                amount=Fraction(record["amount"]),
                gaussian=record["gaussian"],
                sample=None if record.get("sample") is None else Fraction(record["sample"]),
            ),
            moved=record["moved"],
            grain=Fraction(record["grain"]),
            whole=record["whole"],
            signed=record["signed"],
            rounds=rounds,
        )


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a ledger can keep them: text, numbers, and lists of them."""
    return {name: _plain(name, value) for name, value in options.items()}


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - an option
    if isinstance(value, list | tuple):
        return tuple(_plain(name, each) for each in value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Fraction):
        return str(value)
    raise SpecError(
        f"The value of option {name!r} is not a plain value.",
        fix="Use a number or a string.",
        about="option",
    )


def spec_of(asked: Any, axes: Sequence[Axis]) -> Spec:  # noqa: ANN401 - as people write it
    """A workload as it is kept: a name, ranges by the names of axes, or a `Workload`."""
    shape = tuple(axis.size for axis in axes)
    if isinstance(asked, str):
        if asked not in NAMES:
            raise SpecError(
                f"There is no workload {asked!r}.", fix=f"Use {', '.join(NAMES)}.", about="workload"
            )
        if asked == "prefixes" and len(shape) != 1:
            raise SpecError(
                "Running totals need a single axis.", fix='Use workload="ranges".', about="axes"
            )
        return asked
    if isinstance(asked, Workload):
        if asked.shape != shape:
            raise SpecError(
                "The workload was made for a table of another shape.",
                fix=f"The shape here is {shape}.",
                about="shape",
            )
        return {"lows": asked.lows.tolist(), "highs": asked.highs.tolist(), "words": asked.words}
    if not isinstance(asked, list | tuple) or not asked:
        raise SpecError(
            "The workload is not a list of ranges.",
            fix='Use "cells", "ranges", "prefixes", or [{"age": (20, 39)}, …].',
            about="workload",
        )
    boxes = [_box(each, axes) for each in asked]
    lows, highs = ([[run[end] for run in box] for box in boxes] for end in (0, 1))
    return {"lows": lows, "highs": highs, "words": f"{len(boxes)} given ranges"}


def _box(asked: Any, axes: Sequence[Axis]) -> list[tuple[int, int]]:  # noqa: ANN401
    if not isinstance(asked, Mapping):
        raise SpecError(
            "A range is not a dict by axis.", fix='For example: {"age": (20, 39)}.', about="range"
        )
    box = []
    for axis, runs in zip(axes, runs_of(axes, asked), strict=True):
        if len(runs) != 1:
            raise SpecError(
                f"A range of {axis.name!r} has gaps.",
                fix="Give its parts as separate ranges.",
                about="gaps",
            )
        box.append(runs[0])
    return box


def workload_of(spec: Spec, shape: tuple[int, ...]) -> Workload:
    """The questions of a workload."""
    if not isinstance(spec, str):
        lows, highs = (np.array(spec[end], np.int64) for end in ("lows", "highs"))
        return workloads.ranges(shape, lows, highs, spec["words"])
    if spec == "cells":
        return workloads.cells(shape)
    if spec == "prefixes":
        return workloads.prefixes(shape[0])
    if spec == "ranges":
        return workloads.all_ranges(shape)
    axes = range(len(shape))
    pairs: list[tuple[int, ...]] = [*combinations(axes, 2)] or [(0,)]
    return workloads.marginals(shape, pairs)


def spec_digest(spec: Spec) -> str:
    """A name for exactly this workload."""
    if isinstance(spec, str):
        return spec
    ends = (np.array(spec[end], "<i8") for end in ("lows", "highs"))
    return sha256(b" ".join(each.tobytes() for each in ends)).hexdigest()
