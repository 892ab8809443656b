"""What the tools take: plain values, described so that an agent fills them in correctly."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.errors import SpecError
from noisegate.orders import SqlOrder, order_from
from noisegate.sql.order import SqlTerms

A = TypeVar("A", bound="Arguments")
_LONG: Final = 20_000  # letters of SQL

AnyOrder: TypeAlias = Order[Any, Expected]
Price: TypeAlias = float | str
DataSet = Annotated[
    str | None, Field(description="The data set; may be left out where there is only one.")
]


class Arguments(BaseModel):
    """What a tool takes; anything else is refused."""

    model_config = ConfigDict(extra="forbid")


class OfDataSet(Arguments):
    """A data set."""

    dataset: DataSet = None


class OfTable(OfDataSet):
    """A table."""

    table: str = Field(description="The table's name, as list_tables has it.")


class QuestionOrOrder(OfDataSet):
    """A question in SQL, or any order as JSON."""

    sql: str | None = Field(
        None,
        max_length=_LONG,
        description="One SELECT with aggregates, such as SELECT ward, COUNT(*) AS n FROM visits "
        "GROUP BY ward. Single rows cannot be asked for.",
    )
    epsilon: Price | None = Field(
        None,
        description="What to pay: more means less noise; or a part of what is left, such as "
        '"1/10 of rest". Default: the policy\'s.',
    )
    within: Price | None = Field(
        None, description="Or: how far each number may be off; the price follows."
    )
    relative: Price | None = Field(
        None, description="Or: the same as a share of the number, such as 0.05."
    )
    confidence: Price | None = Field(None, description="How surely the ± holds: 0.95 by default.")
    delta: Price | None = Field(
        None, description="The δ for finding groups whose keys are not declared."
    )
    rows: int | None = Field(
        None, description="About how many rows take part, if known: for the error of averages."
    )
    rows_per_unit: int | None = Field(
        None, description="How many rows of one person count, instead of the declared bound."
    )
    groups_per_unit: int | None = Field(
        None, description="In how many groups one person counts, instead of the declared bound."
    )
    choose: list[Literal["bounds", "caps"]] | None = Field(
        None, description="Estimate privately what is not declared, for a share of the price."
    )
    noise: Literal["truncated"] | None = Field(
        None, description="Noise for counts that then stay between 0 and top."
    )
    top: int | None = Field(
        None, description="The largest count that is possible: with noise alone."
    )
    part: dict[str, Any] | None = Field(
        None,
        description="Ask about one of several disjoint parts, which cost together what the dearest "
        'does: {"by": "ward", "key": "north"}, by a column with declared keys or by a list of '
        'conditions; with "several": "first" where a person has several rows.',
    )
    order: dict[str, Any] | None = Field(
        None, description="Instead of sql: an order as JSON, such as a release."
    )

    def ordered(self) -> AnyOrder:
        """The order that it is."""
        terms = {name: getattr(self, name) for name in SqlTerms.__annotations__}
        said = {name: value for name, value in terms.items() if value is not None}
        if (self.sql is None) == (self.order is None):
            raise SpecError("Give either sql or order.", fix="Usually: sql.", about="question")
        if self.order is None:
            return SqlOrder.make(sql=self.sql, **said)
        if said:
            raise SpecError(
                f"{min(said)} stands beside an order.", fix="Put it into the order.", about="order"
            )
        return order_from(self.order)


class Planning(QuestionOrOrder):
    """A question, what it is asked for, and whether new noise is wanted."""

    purpose: str | None = Field(
        None, description="What it is asked for, where the data set has purposes: list_tables."
    )
    fresh: bool = Field(
        default=False,
        description="Pay for a new draw even if the question was answered before, which is free.",
    )


class OfPlan(Arguments):
    """A plan."""

    plan_id: str = Field(max_length=100, description="The plan_id that plan_question gave.")


class OfRelease(Arguments):
    """A release, and which of its cells."""

    release_id: str = Field(max_length=100, description="An id that list_releases gave.")
    where: dict[str, Any] | None = Field(
        None,
        description="For a sum over some cells of a released table, by axis: a key, a list of "
        'keys, or {"from": 20, "to": 39} with both ends included.',
    )


def read(kind: type[A], arguments: Mapping[str, Any]) -> A:
    """The arguments of a tool; what is not as its schema says is refused."""
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as wrong:
        first = wrong.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "arguments"
        raise SpecError(
            f"{place}: {first['msg']}.", fix="See the tool's input schema.", about="arguments"
        ) from None
