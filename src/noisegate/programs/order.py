"""A program on blocks of private rows, as an order: ``gate.apply``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Required, TypeAlias, TypedDict, final

from noisegate.algebra.blocks import Blocks, Program
from noisegate.curator.blocks import turns_of
from noisegate.desk.answer import HalfWidths
from noisegate.desk.desk import Desk
from noisegate.desk.display import percent
from noisegate.desk.order import JobOrder
from noisegate.desk.plan import Fact
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOrder(JobOrder[Applied, ApplyExpected]):
    """A program on blocks of rows, and what is released of what it says.

    Attributes:
        program: The text of a program, and the name of the function in it; see `program_of`.
        range: The ends of the number that the program gives, such as (0, 120); of several numbers,
            a list. Whatever lies outside is moved to the nearest end.
        sql: Which rows it sees: ``SELECT age, cost FROM visits WHERE ward = 'north'``.
        table: Or, without SQL: the table, where there are several,
        columns: its columns, by default all,
        where: and a condition.
        names: What the numbers are called.
        blocks: How many blocks there are: more of them need less noise, but each has fewer rows.
        rows: Or about how many rows there are, if that is public; then rows to the 0.4, of a sample
            those that it may be expected to hold.
        resample: How often units are dealt to blocks. More often does not change the noise of a
            mean; it makes less of what depends on the deal.
        narrow: Of a mean: find first where most blocks lie, for half of ε, and average there. For
            hundreds of blocks and a range that is too wide for comfort.
        aggregate: "mean"; "median", for programs that are far off now and then; "center", of most
            blocks, for those whose answers lie close together in a wide range.
        epsilon: The price of all numbers together; by default what the policy says. In an account
            that adds up zCDP, ε buys ρ = ε² / 2.
        delta: Of a center: for noise with lighter tails.
        within: How far the noise may move a mean, at the ``confidence``: instead of epsilon, or
            with it and instead of blocks.
        confidence: How sure that is.
        default: What counts where a block has no answer: by default the middle of the range.
        seconds: How long each block takes, whatever the program does.
        memory: How many megabytes a program may use, with its rows, which are copied once.
        trusted: Do not lock it in: it is the steward's own. The promise says so.
        workers: How many blocks run at once. They may feel how busy each other are, so the noise is
            for as many of them, unless the program is trusted.
        rehearse: Try it on made-up rows before anything is paid.
    """

    kind: ClassVar[str] = "apply"
    program: Program
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

    @classmethod
    def of(
        cls,
        function: Function,
        sql: str | None = None,
        *,
        imports: Sequence[str] = (),
        **terms: Any,  # noqa: ANN401 - checked by `make`
    ) -> "ApplyOrder":
        """An order from what is said to `Gate.apply`: programs in files are read here."""
        program = program_of(function, imports=tuple(imports))
        return cls.make(program=program, sql=sql, **terms)

    def __post_init__(self) -> None:
        JobOrder.__post_init__(self)
        object.__setattr__(self, "program", completed(self.program))

    def job(self, desk: Desk) -> "ApplyJob":
        """What is to be run."""
        from noisegate.programs.applying import apply_job  # noqa: PLC0415 - it imports this file

        return apply_job(desk, self)
