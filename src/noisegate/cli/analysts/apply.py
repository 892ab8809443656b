"""The command that runs a program on private rows, block by block."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from noisegate.cli.files import require_writable, saved
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.options import RowsWhere, Table, app, argument, option, sql_like, writes
from noisegate.cli.printing import say, show
from noisegate.errors import SpecError
from noisegate.frozen import dataclass

if TYPE_CHECKING:
    from noisegate.desk.plan import Expected, Plan


@final
@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How a program is run, by the names that an order has for it."""

    blocks: Annotated[int | None, option("How many blocks.")] = None
    rows: Annotated[int | None, option("A public number of rows.")] = None
    resample: Annotated[int, option("How often units are dealt to blocks.")] = 1
    aggregate: Annotated[str, option("mean, median or center.")] = "mean"
    narrow: Annotated[bool, option("For a mean: find a narrower range first.", "--narrow")] = False
    within: Annotated[str | None, option("The largest error: of a mean, by noise.")] = None
    seconds: Annotated[str, option("Seconds: how long each block takes.")] = "1"
    memory: Annotated[int, option("Megabytes that a block may use.")] = 256
    trusted: Annotated[
        bool, option("You vouch for the program: it is not isolated.", "--trusted")
    ] = False
    workers: Annotated[int, option("How many run at once: blocks; the noise grows with it.")] = 1
    rehearse: Annotated[bool, option("Try it on made-up rows before anything is paid.")] = True


@app.command()
@opens
def apply(
    *,
    opening: Opening,
    program: Annotated[str, argument("A function in a file: program.py:name.")],
    ends: Annotated[
        list[str],
        option("The range of results: 0,120. Repeat it for several outputs.", "--range"),
    ],
    sql: Annotated[str | None, sql_like("The rows it sees: 'SELECT age, cost FROM visits'")] = None,
    columns: Annotated[str | None, option("Columns: age,cost.")] = None,
    table: Table = None,
    where: RowsWhere = None,
    names: Annotated[str | None, option("What its numbers are called: a,b.")] = None,
    imports: Annotated[
        list[str] | None,
        option("A module that the program needs but does not import by name.", "--import"),
    ] = None,
    blocks: Blocks,
    asking: Asking,
    save: Annotated[
        list[Path] | None, writes(".parquet .csv .json, .png .svg .html; its card: .md .card.json")
    ] = None,
) -> None:
    """Run any program on private rows by sample-and-aggregate, isolated, block by block."""
    from noisegate.orders import ApplyOrder  # noqa: PLC0415 - quick help

    order = ApplyOrder.of(
        program, sql, range=[_ends(text) for text in ends], columns=_listed(columns), table=table,
        where=where, names=_listed(names), epsilon=asking.epsilon, confidence=asking.confidence,
        **vars(blocks), imports=imports or (),
    )  # fmt: skip
    if save:
        from noisegate.desk.release import ENDINGS  # noqa: PLC0415 - quick help

        require_writable(save, ENDINGS)
    made = asking.ordered(opening, order, writes=save, before=None if asking.plan else _time)
    if made is None:
        return
    with saved(save, lambda path: made.save(path, asking.confidence)):
        show(made, asking.confidence, as_json=asking.as_json)


def _time(plan: "Plan[Expected]") -> None:
    if plan.price.epsilon:
        say(f"This takes {plan.to_dict()['seconds']:,.3g} seconds.", err=True)


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [item.strip() for item in text.split(",")]


def _ends(text: str) -> tuple[str, str]:
    low, comma, high = text.partition(",")
    if not comma:
        raise SpecError(f"--range {text} is not understood.", fix="For example: --range 0,120.")
    return low, high
