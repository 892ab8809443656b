"""Pictures of the page about benchmarks: each from the tables that stand below it."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt

Row = dict[str, Any]
Tables = list[dict[str, Any]]
OURS, OTHER, LIMIT = "#1f6fb2", "#e08214", "#888888"
WIDTH = 460


def _svg(chart: "alt.TopLevelMixin") -> str:
    """The same text for the same numbers: what the renderer counts by process is counted anew."""
    import vl_convert  # noqa: PLC0415 - of the extra "plot"

    svg = vl_convert.vegalite_to_svg(chart.to_json(), allowed_base_urls=[])
    names = dict.fromkeys(re.findall(r'id="((?:gradient|clip)\w*)"', svg))
    for place, name in enumerate(names):
        svg = re.sub(rf"\b{name}\b", f"part{place}", svg)
    return svg + "\n"


def _chart(rows: Iterable[Row], **terms: Any) -> "alt.Chart":
    import altair as alt  # noqa: PLC0415 - of the extra "plot"

    return alt.Chart(alt.Data(values=list(rows))).properties(width=WIDTH, **terms)


def _colours(names: dict[str, str], title: str | None = None) -> "alt.Color":
    import altair as alt  # noqa: PLC0415

    scale = alt.Scale(domain=list(names), range=list(names.values()))
    return alt.Color("who:N", scale=scale, title=title, legend=alt.Legend(orient="top"))


def _log(field: str, title: str) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "title": title, "scale": {"type": "log"}}


def ratios(tables: Tables) -> str:
    """A dot for each cell of a table of errors, by the number of rows."""
    import altair as alt  # noqa: PLC0415

    rows = [
        {"ratio": row["ratio"], "rows": f"{row['rows']:,} rows", "asked": row["workload"]}
        for row in tables[0]["rows"]
    ]
    order = list(
        dict.fromkeys(row["rows"] for row in sorted(rows, key=lambda row: len(row["rows"])))
    )
    dots = _chart(rows, height=40 * len(order)).mark_point(filled=True, size=50, opacity=0.7)
    dots = dots.encode(
        x=alt.X("ratio:Q", title="error ÷ the best published algorithm's",
                scale=alt.Scale(domainMin=0)),
        y=alt.Y("rows:N", sort=order, title=None),
        yOffset="asked:N",
        color=alt.Color("asked:N", title=None, legend=alt.Legend(orient="top")),
    )  # fmt: skip
    lines = _chart([{"at": 1.0}, {"at": 1.1}]).mark_rule(strokeDash=[4, 3], color=LIMIT)
    return _svg(dots + lines.encode(x="at:Q"))


def maps(tables: Tables) -> str:
    """Both errors by ε."""
    names = {"plain": "noise on each cell", "auto": "noisegate, auto"}
    rows = [
        {"epsilon": row["epsilon"], "error": row[field], "who": name}
        for row in tables[0]["rows"]
        for field, name in names.items()
    ]
    colours = {"noise on each cell": OTHER, "noisegate, auto": OURS}
    lines = _chart(rows, height=200).mark_line(point=True)
    return _svg(lines.encode(x=_log("epsilon", "ε"), y=_log("error", "mean |error| per cell"),
                             color=_colours(colours)))  # fmt: skip


def peers(tables: Tables) -> str:
    """Draws a second of every law, by who draws."""
    import altair as alt  # noqa: PLC0415

    names = {field: heading.partition(",")[0] for heading, field, style in tables[0]["columns"]
             if style == "millions"}  # fmt: skip
    rows = [
        {"law": row["law"], "who": name, "speed": row[field] / 1e6}
        for row in tables[0]["rows"]
        for field, name in names.items()
        if row.get(field)
    ]
    order = list(names.values())
    colours = dict.fromkeys(order, OTHER) | {order[0]: LIMIT, order[1]: OURS}
    dots = _chart(rows, height=60).mark_point(filled=True, size=60)
    drawn = dots.encode(
        x=_log("speed", "million draws a second"),
        y=alt.Y("who:N", sort=order, title=None),
        color=alt.Color("who:N", legend=None, scale=alt.Scale(
            domain=order, range=list(colours.values()))),
        row=alt.Row("law:N", sort=list(dict.fromkeys(row["law"] for row in rows)), title=None,
                    header=alt.Header(labelAngle=0, labelAlign="left", labelOrient="top")),
    ).properties(height=14 * len(order))  # fmt: skip
    return _svg(drawn)


def synthetic(tables: Tables) -> str:
    """Distances by ε, a part for each table."""
    fields = {"aim_two": "AIM", "two": "noisegate", "floor_two": "bootstrap (not private)"}
    return _parts(tables[0]["rows"], fields, by="data", x="epsilon", y="two-way distance")


def learners(tables: Tables) -> str:
    """Scores by ε, a part for each set and model."""
    fields = {"peer": "diffprivlib", "score": "noisegate", "open": "not private"}
    rows = [row | {"part": f"{row['data']}: {row['model']}"} for row in tables[0]["rows"]]
    return _parts(rows, fields, by="part", x="price", y="score")


def _parts(rows: list[Row], fields: dict[str, str], *, by: str, x: str, y: str) -> str:
    """Small lines side by side: another's, ours, the limit."""
    import altair as alt  # noqa: PLC0415

    flat = [
        {"part": row[by], "price": str(row[x]), "value": row[field], "who": name}
        for row in rows
        for field, name in fields.items()
        if row.get(field) is not None
    ]
    colours = dict(zip(fields.values(), (OTHER, OURS, LIMIT), strict=True))
    order = list(dict.fromkeys(row["part"] for row in flat))
    prices = sorted({row["price"] for row in flat}, key=float)
    lines = _chart(flat).mark_line(point=True).encode(
        x=alt.X("price:O", sort=prices, title="ε", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=y),
        color=_colours(colours),
    )  # fmt: skip
    parts = lines.properties(width=120, height=80)
    facet = alt.Facet("part:N", sort=order, title=None)
    return _svg(parts.facet(facet, columns=4).resolve_scale(y="independent"))
