"""A question in SQL as an order: ``gate.sql``, ``gate.plan``."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, TypeAlias, TypedDict, final

from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress
from noisegate.desk.order import Order
from noisegate.desk.plan import Plan
from noisegate.desk.terms import Terms
from noisegate.exact import Number
from noisegate.sql.plan import AnswerExpected
from noisegate.sql.run import Run

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOrder(Order[Answer, AnswerExpected]):
    """A question in SQL, and what is said about paying.

    Attributes:
        sql: One SELECT, in DuckDB's spelling.
        epsilon: How much to pay; by default what the policy says. In an account that adds up zCDP,
            ε buys ρ = ε² / 2.
        within: Or how far each number may be off, at the ``confidence``: the cheapest noise that
            keeps it is chosen.
        relative: Or the same as a share of what a group is expected to hold.
        confidence: How surely error bars hold: 0.95 unless said otherwise.
        delta: The δ for finding groups whose keys are not declared.
        rows_per_unit: How many rows of one unit count, instead of the policy's cap.
        groups_per_unit: In how many groups one unit counts, instead of the policy's cap.
        rows: About how many rows take part, if you know: then the error of averages can be
            predicted, and ``within`` can be asked of them.
        choose: "bounds", "caps" or both: find privately what nobody declared, for a fifth of ε;
            bounds of columns, and how many rows of one unit count.
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

    def __post_init__(self) -> None:
        if isinstance(self.choose, str):
            object.__setattr__(self, "choose", (self.choose,))
        Order.__post_init__(self)

    @property
    def terms(self) -> Terms:
        """What is said about paying."""
        return Terms(**{each.name: getattr(self, each.name) for each in fields(Terms)})

    def plan(self, desk: Desk, *, fresh: bool = False) -> Plan[AnswerExpected]:  # noqa: D102 - see Order
        return Run(desk.curator, desk.rules).plan(self.sql, self.terms, fresh=fresh)

    def run(  # noqa: D102 - see Order
        self,
        desk: Desk,
        *,
        fresh: bool = False,
        progress: Progress | None = None,  # noqa: ARG002 - one step
    ) -> Answer:
        return Run(desk.curator, desk.rules).ask(self.sql, self.terms, fresh=fresh)
