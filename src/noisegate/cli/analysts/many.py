"""The command that answers a file of counting questions for one price."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from noisegate.cli import printing
from noisegate.cli.analysts.releases import bins_of
from noisegate.cli.files import questions_in, require_writable
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.options import Table, app, option, writes

if TYPE_CHECKING:
    from noisegate.gate import Gate
    from noisegate.orders import ManyOrder


@app.command()
@opens
def many(
    *,
    opening: Opening,
    questions: Annotated[
        Path, option("A file of questions: SELECT COUNT(*) FROM t WHERE …; one a line.")
    ],
    columns: Annotated[
        str | None, option("Columns: age=5,ward; by default what the questions need.")
    ] = None,
    table: Table = None,
    asking: Asking,
    within: Annotated[str | None, option("The largest error: of an answer.")] = None,
    surprises: Annotated[
        int | None, option("Or: the number of updates, answered with noise of their own.")
    ] = None,
    rows: Annotated[int | None, option("A public number of rows.")] = None,
    sure: Annotated[
        bool, option("With --rows: promise the error up to the last question.", "--sure")
    ] = False,
    save: Annotated[
        list[Path] | None, writes(".parquet .csv .json, its model; its card: .md .card.json")
    ] = None,
) -> None:
    """Answer many counting questions from a model, paying only for its updates."""
    asked = questions_in(questions)
    from noisegate.desk.release import ENDINGS  # noqa: PLC0415 - quick help
    from noisegate.orders import ManyOrder  # noqa: PLC0415

    order = ManyOrder.make(
        columns=bins_of(columns), table=table, epsilon=asking.epsilon, within=within,
        surprises=surprises, rows=rows, confidence=asking.confidence, questions=len(asked),
        workload=asked, sure=sure, rows_per_unit=opening.caps.get("rows_per_unit"),
    )  # fmt: skip
    require_writable(save or [], ENDINGS)
    if asking.plan or asking.print_order:
        asking.ordered(opening, order)
    else:
        print_session(opening.gate(writes=save), order, save or [], as_json=asking.as_json)


def print_session(
    gate: "Gate", order: "ManyOrder", files: Sequence[Path] = (), *, as_json: bool
) -> None:
    """The answers to the workload of a session."""
    with printing.bar() as progress, gate.run(order, progress=progress) as session:
        answers = session.answers(order.workload, progress)
        balance = session.balance
    for path in files:
        session.model.save(path, order.confidence)
    if as_json:
        record = {
            "plan": session.plan.to_dict(),
            "answers": [answer.to_dict() for answer in answers],
            "surprises": balance.surprises,
            "spent": {"epsilon": float(balance.spent.epsilon), "delta": float(balance.spent.delta)},
        }
        printing.say_json(record)
        return
    shown = [(each.sql, str(each).partition(" (")[0], each.words) for each in answers]
    printing.print_table(None, ("question", "count", ""), shown)
    for words in (str(balance), *session.plan.notes):
        printing.say(words)


@app.command()
@opens
def thresholds(
    opening: Opening,
    threshold: Annotated[str, option("What the sums are compared with.")],
    count: Annotated[int, option("How many are wanted: yeses, each paid for; then it ends.")],
    questions: Annotated[
        Path, option("A file of questions: SELECT COUNT(*) FROM t WHERE …; one a line.")
    ],
    asking: Asking,
    values: Annotated[
        bool, option("Also the sum of each yes, for half of the price.", "--values")
    ] = False,
    bound: Annotated[str, option("The most that one unit moves a number.")] = "1",
    grain: Annotated[str | None, option("Numbers are whole multiples of it.")] = None,
    signed: Annotated[bool, option("Also sums that one more unit may lower.", "--signed")] = False,
) -> None:
    """Which sums reach a threshold, asked in turn; only the few that do are paid for."""
    from noisegate.orders import ThresholdsOrder  # noqa: PLC0415 - quick help

    order = ThresholdsOrder.make(
        threshold=threshold, questions=questions_in(questions), count=count, epsilon=asking.epsilon,
        values=values, bound=bound, grain=grain, signed=signed,
        rows_per_unit=opening.caps.get("rows_per_unit"),
    )  # fmt: skip
    asking.shown(opening, order)
