"""A choice by a program's scores: which candidate does best on most blocks of rows.

The program scores all candidates on each block by itself, isolated as any other. Scores are clipped
to a range, so that one unit, which is in one block, moves no candidate's total by more than the
range, whatever the program does: nobody has to vouch for it. Where several blocks run at once, they
may notice how busy the others are, and it is that many ranges. Of a program that sees all rows at
once the steward may vouch for a sensitivity, and every promise says so.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Required, final

from noisegate.algebra.blocks import STEPS
from noisegate.curator.blocks import BlockMeasurement
from noisegate.curator.claimed import ClaimedChoice
from noisegate.curator.curator import Curator
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, Progress
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release as Measurements
from noisegate.programs.applying import ApplyOrder, drawn_blocks, sql_of, tally_of
from noisegate.programs.order import Ends, ProgramOrder, ProgramTerms, require_all_rows
from noisegate.sql.choices.choice import Choice, ChoiceExpected, ChoiceJob
from noisegate.transforms.blocks import BlockQuery


class ScoreTerms(ProgramTerms, total=False):
    """What is said beside the program; see `ScoreOrder`."""

    candidates: Required[Sequence[str]]
    range: Required[Ends]
    default: Number | None
    sensitivity: Number | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOrder(ProgramOrder[Choice, ChoiceExpected]):
    """The candidate whose mean score over blocks is nearly the highest, by a program's scores.

    The program gives one number for each of the ``candidates``, in their order; each is clipped to
    the ``range``. With a ``sensitivity`` it sees all rows at once, in one block, and ``trusted`` is
    the steward's word that one unit moves no score further. What else it has is that of
    `ApplyOrder`.
    """

    kind: ClassVar[str] = "score"
    candidates: Sequence[str]
    range: Ends
    sql: str | None = None
    table: str | None = None
    columns: Sequence[str] | None = None
    where: str | None = None
    blocks: int | None = None
    rows: int | None = None
    epsilon: Number | None = None
    default: int | float | str | None = None
    sensitivity: Number | None = None
    trusted: bool = False
    seconds: Number = 1
    memory: int = 256
    workers: int = 1
    rehearse: bool = True

    def __post_init__(self) -> None:
        ProgramOrder.__post_init__(self)
        if len(self.candidates) < 2 or len(set(self.candidates)) < len(self.candidates):
            raise SpecError(
                "A choice needs at least two candidates with different names.",
                fix='For example: candidates=["a", "b"], one for each number of the program.',
                about="candidates",
            )
        vouched = self.sensitivity is not None
        if vouched != self.trusted or (vouched and (self.blocks, self.rows) != (None, None)):
            raise SpecError(
                "Nobody vouches for a sensitivity of the scores, or of blocks, which need none.",
                fix="The steward can, with sensitivity=… and trusted=True; others give blocks.",
                about="trusted",
            )

    def job(self, desk: Desk) -> "ScoreJob":
        """What is to be run."""
        order = self._applied()
        rows = sql_of(desk.curator, order)
        query = BlockQuery(tally_of(desk, rows, self.program, order))
        tally = query.tally
        low, high = tally.ranges[0]
        measurement, selection = self._measurement(desk, query)
        if isinstance(measurement, ClaimedChoice):
            words = f"provided that {measurement.claim}"
            notes = (f"Provided that {measurement.claim}, as declared.",)
        else:
            noun = next(t.unit.noun for t in query.tables if t.unit is not None)
            words = f"one {noun} {_reach(query)} of {tally.blocks:,}, and scores are clipped"
            notes = ("Scores are the program's means over blocks, clipped to the range.",)
        return ScoreJob(
            sql=rows,
            epsilon=desk.epsilon(self.epsilon),
            expected=ChoiceExpected(
                candidates=tuple(self.candidates), selection=selection,
                grain=(high - low) / (STEPS * tally.answers), path=(words,),
            ),
            notes=notes,
            measurement=measurement,
            rehearse=self.rehearse,
        )  # fmt: skip

    def _measurement(
        self, desk: Desk, query: BlockQuery
    ) -> tuple[BlockMeasurement | ClaimedChoice, Exponential]:
        """The choice that the price buys, by what bounds the scores."""
        epsilon = desk.price(self.epsilon).exponential_epsilon(Fraction(1))
        if self.sensitivity is None:
            reach = query.l1s[0].value
            choice = Exponential.for_epsilon(epsilon, score_sensitivity=reach)
            return BlockMeasurement(query=query, mechanisms=(choice,)), choice
        require_all_rows(desk)
        said = positive(self.sensitivity, name="sensitivity")
        claimed = ClaimedChoice(
            query=query, choice=Exponential(factor=Fraction(1)), sensitivity=said
        )
        choice = Exponential.for_epsilon(epsilon, score_sensitivity=Fraction(claimed.steps))
        return replace(claimed, choice=choice), choice

    def _applied(self) -> ApplyOrder:
        """The program as it would be applied, with one range for each candidate."""
        count = len(self.candidates)
        default = None if self.default is None else [self.default] * count
        return ApplyOrder(
            program=self.program, range=[tuple(self.range)] * count, sql=self.sql, default=default,
            table=self.table, columns=self.columns, where=self.where,
            blocks=1 if self.sensitivity is not None else self.blocks,
            rows=self.rows, seconds=self.seconds, memory=self.memory, workers=self.workers,
        )  # fmt: skip


def _reach(query: BlockQuery) -> str:
    """How many blocks a unit may change; those that run at once may feel each other."""
    if query.changed == 1:
        return "is in one block"
    return (
        f"is in one block, which {query.changed - 1} that run beside it may notice: {query.changed}"
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreJob(ChoiceJob):
    """A choice by what a program says of blocks."""

    rehearse: bool

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[Measurements]:
        """Try it on made-up rows, then pay."""
        if isinstance(self.measurement, ClaimedChoice):
            return ChoiceJob.drawn(self, curator, progress, fresh=fresh)
        return drawn_blocks(
            self.measurement, curator, progress, fresh=fresh, rehearse=self.rehearse
        )

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """With what it rests on besides the theorems."""
        told = getattr(self.measurement, "claim", None)
        what = "this choice" if told is None else f"this choice (provided that {told})"
        return guarantee_of(loss, self.tables, f"{what} about")
