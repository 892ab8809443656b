"""Commands for analysts: ask, plan, the prompt, and two paid looks at a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from noisegate.cli import options
from noisegate.cli.files import saved, signer_for
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.options import app, argument, option
from noisegate.cli.printing import say, say_json, show
from noisegate.frozen import dataclass, replace

if TYPE_CHECKING:
    from noisegate.desk.plan import Plan
    from noisegate.orders import SqlOrder
    from noisegate.sql.estimates.profiles import Profile
    from noisegate.sql.plan import AnswerExpected


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is said beside the SQL."""

    within: options.Within = None
    relative: Annotated[str | None, option("Or: the largest relative error, such as 0.01.")] = None
    rows: options.Rows = None
    keys_delta: options.KeysDelta = None
    choose: options.Choose = None
    noise: Annotated[str | None, option("truncated: counts stay between 0 and --top.")] = None
    top: Annotated[int | None, option("With --noise truncated: the largest count.")] = None

    def order(self, sql: str, opening: Opening, asking: Asking) -> "SqlOrder":
        """The order that it is."""
        from noisegate.orders import SqlOrder  # noqa: PLC0415 - quick help

        return SqlOrder.make(
            sql=sql, epsilon=asking.epsilon, within=self.within, relative=self.relative,
            rows=self.rows, confidence=asking.confidence, delta=self.keys_delta, choose=self.choose,
            noise=self.noise, top=self.top, **opening.caps,
        )  # fmt: skip


@app.command()
@opens
def ask(
    opening: Opening,
    sql: options.Sql,
    asking: Asking,
    question: Question,
    save: Annotated[
        list[Path] | None,
        options.writes(".csv .json .parquet, .png .svg .html; its card: .md .card.json"),
    ] = None,
    sign: options.Sign = None,
    as_csv: options.Csv = False,
) -> None:
    """Ask a question. What was released before is reused at no cost."""
    from noisegate.shell import PICTURES, require_writable  # noqa: PLC0415 - quick help
    from noisegate.shell import save as write  # noqa: PLC0415

    def drawable(planned: "Plan[AnswerExpected]") -> None:
        from noisegate.desk.display.plot import require_numbers  # noqa: PLC0415 - pictures only

        require_numbers(planned.expected.numbers)

    order, confidence = question.order(sql, opening, asking), asking.confidence
    for path in save or []:
        require_writable(path)
    signer = signer_for(sign, save, signs_answers=True)
    drawn = any(path.suffix.lower() in PICTURES for path in save or [])
    answer = asking.ordered(opening, order, writes=save, before=drawable if drawn else None)
    if answer is None:
        return
    with saved(save, lambda path: write(answer, path, confidence, sign=signer)):
        show(answer, confidence, as_json=asking.as_json, as_csv=as_csv, signer=signer)


@app.command()
@opens
def plan(opening: Opening, sql: options.Sql, asking: Asking, question: Question) -> None:
    """Show price and error of a question without paying: ask --plan."""
    order = question.order(sql, opening, asking)
    replace(asking, plan=True).ordered(opening, order)


@app.command()
@opens
def shell(
    opening: Opening,
    epsilon: options.Epsilon = None,
    rows: options.Rows = None,
    confidence: options.Confidence = "0.95",
) -> None:
    """Ask one question after the other at a prompt, with history."""
    from noisegate.shell import run  # noqa: PLC0415

    gate = opening.gate()
    run(gate, epsilon=epsilon, rows=rows, confidence=confidence)


@app.command()
@opens
def caps(
    opening: Opening,
    table: Annotated[str, argument("The table whose units are counted.")],
    asking: Asking,
) -> None:
    """Estimate privately how many rows units have, and what contribution bounds would lose."""
    from noisegate.orders import CapsOrder  # noqa: PLC0415 - quick help

    order = CapsOrder.make(table=table, epsilon=asking.epsilon)
    found = asking.ordered(opening, order)
    if found is not None and asking.as_json:
        say_json({"table": found.table, "units": list(found.units), "scale": found.scale})
    elif found is not None:
        print_caps(found)


def print_caps(profile: "Profile") -> None:
    """How many rows units have, and which caps that suggests."""
    say(str(profile))
    for price in (0.1, 1):
        say(f"for a count at ε = {price}, a cap of {profile.best(price)} has the smallest error")


@app.command()
@opens
def bounds(
    opening: Opening,
    table: Annotated[str, argument("The table.")],
    column: Annotated[str, argument("A numeric column.")],
    asking: Asking,
) -> None:
    """Estimate the bounds of a column privately: powers of two around nearly all values."""
    from noisegate.orders import BoundsOrder  # noqa: PLC0415 - quick help

    order = BoundsOrder.make(
        table=table, column=column, epsilon=asking.epsilon,
        rows_per_unit=opening.caps.get("rows_per_unit"),
    )  # fmt: skip
    found = asking.ordered(opening, order)
    if found is not None and asking.as_json:
        say_json({"between": [float(end) for end in found]})
    elif found is not None:
        say(f"between = [{float(found[0]):g}, {float(found[1]):g}]")
