"""The command that chooses privately among candidates."""

import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

from noisegate.cli.files import require_writable, saved
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.options import RowsWhere, Table, app, argument, option, sql_like, writes
from noisegate.cli.printing import print_table, say, say_json
from noisegate.errors import SpecError
from noisegate.files import write
from noisegate.frozen import dataclass

if TYPE_CHECKING:
    from noisegate.desk.order import Order
    from noisegate.sql.choices.choice import Choice, ChoiceExpected

Card = Annotated[list[Path] | None, writes("its card, .md")]
_PROGRAM: Final = re.compile(r"\.py:\w+$")


@final
@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a program scores candidates."""

    ends: Annotated[
        str | None, option("The range of results: scores of a program, 0,1.", "--range")
    ] = None
    blocks: Annotated[int | None, option("How many blocks.")] = None
    columns: Annotated[str | None, option("Columns: age,cost.")] = None
    table: Table = None
    where: RowsWhere = None
    seconds: Annotated[str, option("Seconds: how long each block takes.")] = "1"
    sensitivity: Annotated[
        str | None, option("Of a program on all rows: how far a unit moves a score.")
    ] = None
    trusted: Annotated[
        bool, option("You vouch for the program: with --sensitivity.", "--trusted")
    ] = False


@app.command()
@opens
def choose(
    *,
    opening: Opening,
    sql: Annotated[
        str,
        sql_like("'SELECT ward, COUNT(*) FROM visits GROUP BY ward', or program.py:score"),
    ],
    asking: Asking,
    count: Annotated[int, option("How many are wanted: candidates.", "--count", "-k")] = 1,
    method: Annotated[
        str, option("The method: auto, exponential, permute-and-flip or noisy-max.")
    ] = "auto",
    gap: Annotated[
        bool, option("Also show the gap to the next candidate, at no extra cost.", "--gap")
    ] = False,
    least: Annotated[bool, option("Choose the lowest instead.", "--least")] = False,
    candidates: Annotated[
        str | None, option("A public list: price=5,10,15, hour=0:24, a .csv file, or a table.")
    ] = None,
    prior: Annotated[
        str | None, option("The prior: weights north=3,south=1, or a column of the candidates.")
    ] = None,
    scoring: Scoring,
    save: Card = None,
) -> None:
    """Choose the candidate with the largest count or sum; only the choice is released."""
    from noisegate.orders import ChoiceOrder  # noqa: PLC0415 - quick help

    if _PROGRAM.search(sql):
        _by_program(opening, sql, candidates, scoring, asking, save)
        return
    order = ChoiceOrder.make(
        sql=sql, epsilon=asking.epsilon, k=count, method=method, gap=gap, least=least,
        candidates=listed(candidates), prior=_prior(prior), **opening.caps,
    )  # fmt: skip
    _chosen(opening, order, asking, save)


@app.command()
@opens
def auction(
    opening: Opening,
    column: Annotated[str, argument("The column of bids.")],
    prices: Annotated[str, option("5:100:5 (from, to, step), or 5,10,25.")],
    asking: Asking,
    table: Table = None,
    where: RowsWhere = None,
    method: Annotated[
        str, option("The method: auto, exponential, permute-and-flip or noisy-max.")
    ] = "auto",
    save: Card = None,
) -> None:
    """Choose one price for all whose revenue over private bids is near the best."""
    from noisegate.orders import AuctionOrder  # noqa: PLC0415 - quick help

    order = AuctionOrder.make(
        column=column, prices=_prices(prices), table=table, where=where, method=method,
        epsilon=asking.epsilon, rows_per_unit=opening.caps.get("rows_per_unit"),
    )  # fmt: skip
    _chosen(opening, order, asking, save)


def _chosen(
    opening: Opening,
    order: "Order[Choice, ChoiceExpected]",
    asking: Asking,
    save: list[Path] | None,
) -> None:
    """Plan or run a choice; its card is written first."""
    require_writable(save or [], (".md",))
    choice = asking.ordered(opening, order, writes=save)
    if choice is None:
        return
    with saved(save, lambda path: write(path, choice.card(asking.confidence).to_markdown())):
        print_choice(choice, asking.confidence, as_json=asking.as_json)


def _by_program(
    opening: Opening,
    program: str,
    candidates: str | None,
    scoring: Scoring,
    asking: Asking,
    save: list[Path] | None,
) -> None:
    """Choose by the scores of a program on blocks of rows."""
    from noisegate.orders import ScoreOrder  # noqa: PLC0415 - quick help

    if candidates is None or scoring.ends is None:
        raise SpecError(
            "A program scores named candidates within a range.",
            fix="For example: --candidates a,b,c --range 0,1 --blocks 50.",
            about="missing",
        )
    columns = scoring.columns.split(",") if scoring.columns else None
    order = ScoreOrder.of(
        program, candidates=candidates.split(","), range=tuple(scoring.ends.split(",")),
        blocks=scoring.blocks, columns=columns, table=scoring.table, where=scoring.where,
        seconds=scoring.seconds, sensitivity=scoring.sensitivity, trusted=scoring.trusted,
        epsilon=asking.epsilon,
    )  # fmt: skip
    _chosen(opening, order, asking, save)


def _prices(text: str) -> "list[Fraction]":
    from noisegate.exact import fraction  # noqa: PLC0415 - quick help

    parts = text.split(":")
    if len(parts) == 1:
        return [fraction(each, name="price") for each in text.split(",")]
    low, high, step = (*map(_number, parts), *[Fraction(1)] * (3 - len(parts)))[:3]
    if len(parts) > 3 or step <= 0 or high < low or (high - low) / step > 100_000:
        raise SpecError(f"--prices {text} is not understood.", fix="For example: --prices 5:100:5.")
    return [low + step * each for each in range(int((high - low) / step) + 1)]


def listed(text: str | None) -> "dict[str, Any] | str | None":
    """Candidates as they are typed: a file, a list, an interval, or the name of a table."""
    name, sign, values = (text or "").partition("=")
    if not sign:
        return _file(text) if text and text.lower().endswith(".csv") else text
    low, colon, high = values.partition(":")
    if colon:
        return {name: (_number(low), _number(high))}
    return {name: [_value(each) for each in values.split(",")]}


def _file(path: str) -> dict[str, Any]:
    from pyarrow import ArrowInvalid, csv  # noqa: PLC0415 - quick help

    try:
        found: dict[str, Any] = csv.read_csv(path).to_pydict()
    except (OSError, ArrowInvalid):
        raise SpecError(
            f"The candidates {path} cannot be read.",
            fix="Use a comma-separated file with a line of names first.",
            about="file",
        ) from None
    return found


def _prior(text: str | None) -> dict[str, str] | str | None:
    if text is None or "=" not in text:
        return text
    pairs = [each.rpartition("=") for each in text.split(",")]
    return {name: weight for name, _, weight in pairs}


def _number(text: str) -> "Fraction":
    from noisegate.exact import fraction  # noqa: PLC0415 - quick help

    return fraction(text, name="number")


def _value(text: str) -> int | float | str:
    try:
        exact = _number(text)
    except SpecError:
        return text
    return int(exact) if exact.denominator == 1 else float(exact)


def print_choice(choice: "Choice", confidence: str, *, as_json: bool) -> None:
    """Who was chosen, with the price and the promise."""
    if as_json:
        say_json(choice.to_dict(confidence))
        return
    names = ("", "chosen", *(() if choice.gaps is None else ("ahead by",)))
    print_table(None, names, choice.rows())
    say(choice.footer(confidence))
    say(str(choice.guarantee))
