"""The command that publishes: measure a table once, save it, use it for ever."""

import json
from pathlib import Path
from typing import Annotated, Any

from noisegate.cli.files import questions_in, require_writable, saved, signer_for
from noisegate.cli.opening import Asking, Opening, opens, said
from noisegate.cli.options import (
    Choose,
    Csv,
    KeysDelta,
    RowsWhere,
    Sign,
    Table,
    app,
    argument,
    option,
    sql_like,
    writes,
)
from noisegate.cli.printing import show
from noisegate.errors import SpecError


@app.command()
@opens
def release(
    *,
    name: Annotated[
        str,
        argument(
            "histogram, table, map, series, marginals, cube, sparse, above, boxplot, cdf, "
            "synthetic, describe, or a method."
        ),
    ],
    opening: Opening,
    sql: Annotated[
        str | None, sql_like("'SELECT COUNT(*) FROM people GROUP BY BIN(age, 5)'")
    ] = None,
    columns: Annotated[
        str | None, option("Columns: age=5,ward,day=month (bins, keys, units); age=0:18:65.")
    ] = None,
    table: Table = None,
    where: RowsWhere = None,
    method: Annotated[
        str, option("The method: auto, cells, tree, haar, … (docs/releases.md).")
    ] = "auto",
    workload: Annotated[
        str | None,
        option(
            "The workload: cells, ranges, prefixes, marginals, or a list such as "
            "age=20:39,age=40:+ward=north. For synthetic rows: 3 (columns per table), "
            "age+ward,sick (tables; with weights: age+ward=3,sick), or a file of questions (.sql)."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, option("Options of the method: name=value. Repeatable.")
    ] = None,
    rows: Annotated[int | None, option("A public number of rows: of synthetic ones.")] = None,
    report: Annotated[
        Path | None, option("For synthetic: write a quality report: .html .md .txt.")
    ] = None,
    choose: Annotated[
        list[str] | None,
        option("Estimate privately what is not declared: of synthetic, bounds, bins."),
    ] = None,
    asking: Asking,
    save: Annotated[
        list[Path] | None,
        writes(
            ".parquet .csv .json .geojson .geoparquet, .png .svg .html; its card: .md .card.json"
        ),
    ] = None,
    sign: Sign = None,
    as_csv: Csv = False,
    coefficients: Annotated[
        bool, option("Coefficients: print those of haar or fourier.", "--coefficients")
    ] = False,
) -> None:
    """Publish a table once. Repeating a release is free and gives the same numbers."""
    from noisegate.orders import release_order  # noqa: PLC0415 - quick help

    if coefficients and (opening.sample or not {name, method} & {"haar", "fourier"}):
        raise SpecError(
            "Only the methods haar and fourier have coefficients, of all rows.",
            fix="Use --method haar, without --sample.",
            about="coefficients",
        )
    terms = said(
        table=table, columns=bins_of(columns), where=where, workload=_asked(name, workload),
        epsilon=asking.epsilon, method=None if method == "auto" else method, **opening.caps,
    )  # fmt: skip
    terms |= options_of("--option", option, such_as="branching=4")
    terms |= _synthetic(name, workload, rows=rows, choose=choose, report=report)
    if isinstance(questions := terms.get("questions"), str):  # of "above"
        terms["questions"] = ranges_of(questions)
    reports = [] if report is None else [report]
    signer = signer_for(sign, save)
    made = asking.ordered(
        opening, release_order(name, sql, **terms), writes=[*(save or []), *reports],
        before=(lambda planned: require_writable(save, planned.endings)) if save else None,
    )  # fmt: skip
    if made is None:
        return
    confidence = asking.confidence
    with (
        saved(save, lambda path: made.save(path, confidence, sign=signer)),
        saved(reports, lambda path: made.report(confidence).save(path)),  # type: ignore[attr-defined]  # of synthetic rows
    ):
        shown = made.coefficients() if coefficients else made  # type: ignore[attr-defined]  # of tables
        show(shown, confidence, as_json=asking.as_json, as_csv=as_csv, signer=signer)


def _synthetic(
    name: str,
    workload: str | None,
    *,
    report: Path | None,
    **own: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Terms that only synthetic rows have, and their workload."""
    asked = said(**own)
    if name != "synthetic":
        if asked or report is not None:
            raise SpecError(
                "--rows, --report and --choose apply to synthetic rows only.",
                fix="Use: noisegate release synthetic FILE.",
            )
        return {}
    if report is not None:
        from noisegate.synthetic.report import ENDINGS  # noqa: PLC0415

        require_writable([report], ENDINGS)
    if workload is None or workload.endswith(".sql"):
        return asked
    if workload.isdecimal():
        return asked | {"workload": int(workload)}
    sets = [each.partition("=") for each in workload.split(",")]
    return asked | {"workload": {tuple(names.split("+")): by or 1 for names, _, by in sets}}


def _asked(name: str, workload: str | None) -> Any:  # noqa: ANN401 - a workload
    """A name, ranges, or the questions in a file."""
    if workload is None or not workload.endswith(".sql"):
        return workload if name == "synthetic" else ranges_of(workload)
    return questions_in(Path(workload))


def bins_of(text: str | None) -> dict[str, Any] | None:
    """Columns with their bins, as --columns names them."""
    if text is None:
        return None
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, sign, how = item.strip().partition("=")
        if not name or (sign and not how):
            raise SpecError(
                f"--columns {item} is not understood.",
                fix="For example: --columns age=5,ward,day=month.",
            )
        if name in found:
            raise SpecError(f"--columns names {name} twice.", fix="Name each column once.")
        edges = how.split(":")
        found[name] = edges if len(edges) > 1 else how or None
    return found


def options_of(option: str, items: list[str] | None, *, such_as: str) -> dict[str, Any]:
    """Values by name, as JSON writes them, else as text."""
    found: dict[str, Any] = {}
    for item in items or []:
        name, sign, text = item.partition("=")
        if not name or not sign:
            raise SpecError(
                f"{option} {item} is not understood.", fix=f"For example: {option} {such_as}."
            )
        found[name] = _value(text)
    return found


def ranges_of(text: str | None) -> Any:  # noqa: ANN401 - a name, or ranges by axes
    """Ranges by axes, such as age=20:39,age=40:+ward=north; a plain name stays one."""
    if text is None or "=" not in text:
        return text
    return [dict(_range(each) for each in item.split("+")) for item in text.split(",")]


def _range(text: str) -> tuple[str, Any]:
    name, _, keys = text.strip().partition("=")
    if not name or not keys:
        raise SpecError(
            f"The range {text!r} is not understood.",
            fix="For example: age=20:39,age=40:+ward=north.",
        )
    low, sign, high = keys.partition(":")
    pair = tuple(_value(end) if end else None for end in (low, high))
    return name, pair if sign else _value(keys)


def _value(text: str) -> Any:  # noqa: ANN401 - as JSON writes it, else a text
    try:
        return json.loads(text)
    except ValueError:
        return text


# the command that describes a table


@app.command()
@opens
def describe(
    opening: Opening,
    asking: Asking,
    table: Table = None,
    columns: Annotated[str | None, option("Columns: age,ward; by default all.")] = None,
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
        show(made, asking.confidence, as_json=asking.as_json, as_csv=as_csv)
