"""A program on blocks of private rows, as an order: ``gate.apply``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Required,
    Self,
    TypeAlias,
    TypedDict,
    final,
)

from noisegate.algebra.blocks import Blocks, Program
from noisegate.curator.blocks import turns_of
from noisegate.desk.answer import HalfWidths
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.desk.order import E_co, JobOrder, R_co
from noisegate.desk.plan import Fact
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.mechanisms.base import Mechanism
from noisegate.programs.applied import Applied, widths_of
from noisegate.programs.text import Function, completed, program_of

if TYPE_CHECKING:
    from noisegate.programs.applying import ApplyJob

Ends: TypeAlias = Sequence[Number]  # of one number: (0, 120)
Aggregate: TypeAlias = Literal["mean", "median", "center"]


class ApplyTerms(TypedDict, total=False):
    """What is said beside the program; see `ApplyOrder`.

    ``imports`` are modules that it uses and no line of it names.
    """

    range: Required[Ends | Sequence[Ends]]
    table: str | None
    columns: Sequence[str] | None
    where: str | None
    names: Sequence[str] | None
    blocks: int | None
    rows: int | None
    resample: int
    narrow: bool
    aggregate: Aggregate
    epsilon: Number | None
    delta: Number | None
    within: Number | None
    confidence: Number
    default: Number | Sequence[Number] | None
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOrder(ProgramOrder[Applied, ApplyExpected]):
    """A program on blocks of rows, and what is released of what it says.

    Attributes:
        program: The text of a program, and the name of the function in it; see `program_of`.
        range: The range of the program's output, such as (0, 120); for several outputs, a list.
            Outputs are clipped to it.
        sql: Which rows it sees: ``SELECT age, cost FROM visits WHERE ward = 'north'``.
        table: Or, without SQL: the table, if there are several,
        columns: its columns, by default all,
        where: and a condition.
        names: What the numbers are called.
        blocks: The number of blocks: more of them need less noise, but each has fewer rows.
        rows: Or an approximate public number of rows; then there are rows^0.4 blocks, on a sample
            those that it may be expected to hold.
        resample: How often units are dealt to blocks. More often does not change the noise of a
            mean; it reduces the variance of the random assignment.
        narrow: For a mean: first find where most blocks lie, for half of ε, and average there. For
            hundreds of blocks and a range that is too wide.
        aggregate: "mean"; "median", for programs with outliers; "center" of most blocks, for
            outputs that lie close together in a wide range.
        epsilon: The price of all outputs together; by default that of the policy. In an account
            that adds up zCDP, ε buys ρ = ε² / 2.
        delta: For a center: noise with lighter tails.
        within: The largest error of a mean due to noise, at the ``confidence``: instead of epsilon,
            with it and instead of blocks.
        confidence: How sure that is.
        default: What counts for a block without an answer: by default the middle of the range.
        seconds: The time of each block, whatever the program does.
        memory: The megabytes that a program may use, with its rows, which are copied once.
        trusted: Do not isolate it: it is the steward's own. The guarantee says so.
        workers: The number of blocks that run at once. They may notice how busy the others are, so
            for as many of them, unless the program is trusted.
        rehearse: Try it on made-up rows before anything is paid for.
    """

    kind: ClassVar[str] = "apply"
    range: Ends | Sequence[Ends]
    sql: str | None = None
    table: str | None = None
    columns: Sequence[str] | None = None
    where: str | None = None
    names: Sequence[str] | None = None
    blocks: int | None = None
    rows: int | None = None
    resample: int = 1
    narrow: bool = False
    aggregate: Aggregate = "mean"
    epsilon: Number | None = None
    delta: Number | None = None
    within: Number | None = None
    confidence: Number = 0.95
    default: int | float | str | Sequence[Number] | None = None
    seconds: Number = 1
    memory: int = 256
    trusted: bool = False
    workers: int = 1
    rehearse: bool = True

    def job(self, desk: Desk) -> "ApplyJob":
        """What is to be run."""
        from noisegate.programs.applying import apply_job  # noqa: PLC0415 - it imports this file

        return apply_job(desk, self)


def require_all_rows(desk: Desk) -> None:
    """Refuse a sample for a program whose sensitivity the steward vouches for."""
    if desk.rules.sample is not None:
        raise SpecError(
            "A program whose sensitivity is vouched for sees all rows.",
            fix="Use the gate itself, not gate.sample(...).",
            about="sample",
        )
