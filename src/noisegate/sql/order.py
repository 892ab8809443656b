"""A question in SQL as an order: ``gate.sql``, ``gate.plan``."""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias, TypedDict, final

from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.order import JobOrder
from noisegate.desk.terms.terms import PartOf, PartTerms, Rest, Terms
from noisegate.exact import Number
from noisegate.frozen import dataclass, fields, replace
from noisegate.sql.job import QuestionJob, question_job
from noisegate.sql.plan import AnswerExpected
from noisegate.sql.reading.statement import take_hints

Chosen: TypeAlias = Literal["bounds", "caps"]


class SqlTerms(TypedDict, total=False):
    """What is said beside the SQL; see `SqlOrder`."""

    epsilon: Number | None
    within: Number | None
    relative: Number | None
    confidence: Number | None
    delta: Number | None
    rows_per_unit: int | None
    groups_per_unit: int | None
    rows: int | None
    choose: Chosen | Sequence[Chosen] | None
    noise: Literal["truncated"] | None
    top: int | None
    part: PartOf | PartTerms | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOrder(JobOrder[Answer, AnswerExpected]):
    """A question in SQL, and what is said about paying.

    Attributes:
        sql: One SELECT, in DuckDB's spelling.
        epsilon: How much to pay; by default what the policy says. In an account that adds up zCDP,
            ε buys the ρ that implies it.
        within: Or how far each number may be off, at the ``confidence``: the cheapest noise that
            keeps it is chosen. With ``epsilon`` beside it, for no more than that.
        relative: Or the same as a share of what a group is expected to hold.
        confidence: How surely error bars hold: 0.95 unless said otherwise.
        delta: The δ for finding groups whose keys are not declared.
        rows_per_unit: How many rows of one unit count, instead of the policy's cap.
        groups_per_unit: In how many groups one unit counts, instead of the policy's cap.
        rows: About how many rows take part, if you know: then the error of averages can be
            predicted, and ``within`` can be asked of them.
        choose: "bounds", "caps" or both: find privately what nobody declared, for a share of ε;
            bounds of values, which also narrows declared ones that are far out, and how many rows
            of one unit count.
        noise: "truncated": counts stay between 0 and ``top``, with truncated geometric noise.
        top: The largest count that is possible; by default the policy's rows_max of the table.
    """

    kind: ClassVar[str] = "sql"
    sql: str
    epsilon: Number | None = None
    within: Number | None = None
    relative: Number | None = None
    confidence: Number | None = None
    delta: Number | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    rows: int | None = None
    choose: Sequence[str] | None = None
    noise: str | None = None
    top: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.choose, str):
            object.__setattr__(self, "choose", (self.choose,))
        JobOrder.__post_init__(self)

    @property
    def terms(self) -> Terms:
        """What is said about paying."""
        return Terms(**{each.name: getattr(self, each.name) for each in fields(Terms)})

    def settled(self, desk: Desk, *, fresh: bool = False) -> "SqlOrder":
        """Also where the SQL itself asks for a part of what is left."""
        order, priced = self, any((self.epsilon, self.within, self.relative))
        if not priced and "rest" in self.sql.lower():
            said = take_hints(self.sql)[1].epsilon
            order = replace(self, epsilon=said) if isinstance(said, Rest) else self
        return JobOrder.settled(order, desk, fresh=fresh)

    def job(self, desk: Desk) -> QuestionJob:
        """What it asks for."""
        return question_job(desk, self.sql, self.terms)

    def anew(self, desk: Desk) -> QuestionJob:
        """The same, bought whatever was released before."""
        return question_job(desk, self.sql, self.terms, fresh=True)
