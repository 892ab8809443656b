"""Orders to run a program on private rows, and what to expect of one on blocks of them."""

from collections.abc import Sequence
from typing import (
    Any,
    Self,
    TypeAlias,
    TypedDict,
    final,
)

from noisegate.algebra.blocks import Blocks, Program
from noisegate.curator.blocks import turns_of
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.order import E_co, JobOrder, R_co
from noisegate.desk.plan import Fact
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import Mechanism
from noisegate.programs.applied import widths_of
from noisegate.programs.text import Function, completed, program_of

Ends: TypeAlias = Sequence[Number]  # of one number: (0, 120)


class ProgramTerms(TypedDict, total=False):
    """Which rows a program sees, and how it is run.

    ``imports`` are modules that it uses and no line of it names.
    """

    table: str | None
    columns: Sequence[str] | None
    where: str | None
    blocks: int | None
    rows: int | None
    epsilon: Number | None
    seconds: Number
    memory: int
    imports: Sequence[str]
    trusted: bool
    workers: int
    rehearse: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyExpected:
    """How a program would be run, for how long, and how far its numbers may be off."""

    tally: Blocks
    aggregate: str
    names: tuple[str, ...]
    noise: tuple[Mechanism[Any], ...]

    @property
    def seconds(self) -> float:
        """How long all blocks take together."""
        return turns_of(self.tally)

    def widths(self, confidence: Number) -> HalfWidths | None:
        """The ± of each number by the noise, where it is known."""
        tally = self.tally
        return widths_of(self.noise, None, tally.ranges, tally.answers, confidence)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        tally = self.tally
        dealt = f", dealt {tally.resample} times" if tally.resample > 1 else ""
        return [
            ("program", tally.program.name),
            ("blocks", f"{tally.blocks:,}{dealt}; released is the {self.aggregate}"),
            ("time", f"{self.seconds:,.3g} seconds, whatever the rows are"),
            *(
                ("error", f"{name} ± {width:.3g} by the noise, at {percent(confidence)}")
                for name, width in self.margins(confidence).items()
                if width is not None
            ),
        ]

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of each number by the noise, where it is known."""
        widths = self.widths(confidence) or [None] * len(self.names)
        pairs = zip(self.names, widths, strict=True)
        return {name: None if each is None else float(each) for name, each in pairs}

    def to_dict(self, confidence: Number) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        return {
            "program": self.tally.program.text,
            "aggregate": self.aggregate,
            "blocks": self.tally.blocks,
            "resample": self.tally.resample,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOrder(JobOrder[R_co, E_co]):
    """An order to run a program."""

    program: Program

    @classmethod
    def of(
        cls,
        function: Function,
        sql: str | None = None,
        *,
        imports: Sequence[str] = (),
        **terms: Any,  # noqa: ANN401 - checked by `make`
    ) -> Self:
        """An order from what is said to a gate: programs in files are read here."""
        program = program_of(function, imports=tuple(imports))
        return cls.make(program=program, sql=sql, **terms)

    def __post_init__(self) -> None:
        JobOrder.__post_init__(self)
        object.__setattr__(self, "program", completed(self.program))


def require_all_rows(desk: Desk) -> None:
    """Refuse a sample for a program whose sensitivity the steward vouches for."""
    if desk.rules.sample is not None:
        raise SpecError(
            "A program whose sensitivity is vouched for sees all rows.",
            fix="Use the gate itself, not gate.sample(...).",
            about="sample",
        )
