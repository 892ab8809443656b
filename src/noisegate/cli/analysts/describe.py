"""The command that describes a table."""

from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.app import Choose, Csv, KeysDelta, RowsWhere, Table, app, writes
from noisegate.cli.files import require_writable, saved
from noisegate.cli.opening import Asking, Opening, opens, said
from noisegate.cli.printing import print_release, say_csv, say_json


@app.command()
@opens
def describe(
    opening: Opening,
    asking: Asking,
    table: Table = None,
    columns: Annotated[str | None, typer.Option(help="Columns: age,ward; by default all.")] = None,
    where: RowsWhere = None,
    keys_delta: KeysDelta = None,
    choose: Choose = None,
    save: Annotated[
        list[Path] | None, writes(".parquet .csv .json; its card: .md .card.json")
    ] = None,
    as_csv: Csv = False,
) -> None:
    """Show rows, missing values, means, quartiles and keys of all columns, for one price."""
    from noisegate.orders import DescribeOrder  # noqa: PLC0415 - quick help

    listed = None if columns is None else [each.strip() for each in columns.split(",")]
    terms = said(
        table=table, columns=listed, where=where, choose=choose, epsilon=asking.epsilon,
        delta=keys_delta, **opening.caps,
    )  # fmt: skip
    made = asking.ordered(
        opening, DescribeOrder.make(**terms), writes=save,
        before=(lambda planned: require_writable(save, planned.endings)) if save else None,
    )  # fmt: skip
    if made is None:
        return
    with saved(save, lambda path: made.save(path, asking.confidence)):
        if asking.as_json:
            say_json(made.to_dict(asking.confidence))
        elif as_csv:
            say_csv(made.to_csv(confidence=asking.confidence))
        else:
            print_release(made, asking.confidence)
