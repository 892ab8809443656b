"""Fitted models as altair charts. They show what was learnt, never rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisegate.desk.display.drawing import Chart, altair
from noisegate.errors import SpecError
from noisegate.learners.asking import Floats
from noisegate.learners.matrix import Coordinate


def centers(  # noqa: PLR0913 - what is drawn
    columns: Sequence[Coordinate],
    means: Floats,
    weights: Floats,
    spreads: Floats,
    *,
    x: str | None,
    y: str | None,
    named: tuple[str, Sequence[Any]],
    areas: str,
) -> Chart:
    """Centres in two columns, by default those in which they differ most for their bounds.

    ``named``: what they are, and the name of each. Areas are weights; bars reach as far as
    ``spreads``. A cross is a centre about which no rows told anything.
    """
    alt = altair()
    kind, names = named
    far = _far(columns, means, weights)
    across = _place(columns, x, far, other=y)
    down = _place(columns, y, far, other=columns[across].name) if len(columns) > 1 else None
    dots: list[dict[str, Any]] = []
    crosses: list[dict[str, Any]] = []
    for name, mean, weight, spread in zip(names, means, weights, spreads, strict=True):
        point = {kind: str(name), "weight": float(weight), **_span("x", mean, spread, across)}
        if down is not None:
            point |= _span("y", mean, spread, down)
        (dots if np.all(np.isfinite(spread)) else crosses).append(point)
    order = [str(name) for name in names]
    color = alt.Color(f"{kind}:N", title=kind, sort=order)
    level = alt.Scale(zero=False)
    right = alt.X("x:Q", title=columns[across].name, scale=level, axis=alt.Axis(tickCount=6))
    up = alt.Y(f"{kind}:N", title=None, sort=order)
    if down is not None:
        up = alt.Y("y:Q", title=columns[down].name, scale=level)
    seen = alt.Chart(alt.InlineData(values=dots)).encode(color=color)
    layers = [
        seen.mark_rule().encode(x=alt.X("x0:Q"), x2="x1:Q", y=up),
        seen.mark_circle(opacity=0.7).encode(x=right, y=up, size=alt.Size("weight:Q", title=areas)),
    ]
    if down is not None:
        layers.insert(0, seen.mark_rule().encode(y=alt.Y("y0:Q"), y2="y1:Q", x=right))
    if crosses:
        unseen = alt.Chart(alt.InlineData(values=crosses)).mark_point(shape="cross")
        layers.append(unseen.encode(x=right, y=up, color=color))
    return alt.layer(*layers).properties(width=420, height=320)


def loadings(names: Sequence[str], components: Floats, shares: Floats) -> Chart:
    """What each column adds to each component."""
    alt = altair()
    told = [f"{place + 1} ({share:.0%})" for place, share in enumerate(shares)]
    points = [
        {"column": name, "component": component, "loading": float(value)}
        for component, line in zip(told, components, strict=True)
        for name, value in zip(names, line, strict=True)
    ]
    chart = alt.Chart(alt.InlineData(values=points)).mark_bar()
    return chart.encode(
        x=alt.X("loading:Q"),
        y=alt.Y("column:N", sort=list(names), title=None),
        column=alt.Column("component:N", sort=told, title="component (share of variance)"),
        color=alt.condition("datum.loading > 0", alt.value("#5b8cc0"), alt.value("#e08214")),
    ).properties(width=180)


def weights(names: Sequence[str], lines: Floats, deviations: Floats, told: Sequence[Any]) -> Chart:
    """The weights of lines, each across half the bounds of its column, and their deviations.

    A column that was not asked about stands there without a weight.
    """
    alt = altair()
    points = [
        {
            "column": name,
            "line": str(line),
            "weight": float(weight),
            "low": float(weight - 2 * deviation),
            "high": float(weight + 2 * deviation),
        }
        if np.isfinite(deviation)
        else {"column": name, "line": str(line)}
        for line, own, around in zip(told, lines, deviations, strict=True)
        for name, weight, deviation in zip(names, own, around, strict=True)
    ]
    base = alt.Chart(alt.InlineData(values=points)).encode(
        y=alt.Y("column:N", sort=list(names), title=None)
    )
    drawn = base.mark_bar(opacity=0.7).encode(x=alt.X("weight:Q", title="weight × half the bounds"))
    rules = base.mark_rule().encode(x=alt.X("low:Q"), x2="high:Q")
    chart = alt.layer(drawn, rules).properties(width=240)
    facets = alt.Column("line:N", title=None, sort=[str(line) for line in told])
    return chart.facet(column=facets)


def chances(
    columns: Sequence[tuple[str, Sequence[str], Floats]], classes: Sequence[Any], off: Floats
) -> Chart:
    """How likely each key of each column is in each class, and how far that may be ``off``.

    Of each column: its name, its keys, and a row of shares for each class.
    """
    alt = altair()
    named = [str(each) for each in classes]
    side = alt.Scale(domain=named)
    drawn = []
    for name, keys, shares in columns:
        points = [
            {"key": key, "class": told, "share": share,
             "low": max(0.0, share - far), "high": min(1.0, share + far)}
            for told, line, far in zip(named, shares.tolist(), off.tolist(), strict=True)
            for key, share in zip(keys, line, strict=True)
        ]  # fmt: skip
        base = alt.Chart(alt.InlineData(values=points)).encode(
            y=alt.Y("key:N", sort=list(keys), title=name),
            yOffset=alt.YOffset("class:N", sort=named),
        )
        bars = base.mark_bar(opacity=0.7).encode(
            x=alt.X("share:Q", title="share of the class", axis=alt.Axis(format="%", tickCount=4)),
            color=alt.Color("class:N", title="class", scale=side),
        )
        lines = base.mark_rule().encode(x=alt.X("low:Q"), x2="high:Q")
        drawn.append(alt.layer(bars, lines).properties(width=200, height=alt.Step(12)))
    return alt.concat(*drawn, columns=3)


def curve(wrong: Floats, right: Floats) -> Chart:
    """Right alarms over false ones, and what chance alone would give."""
    alt = altair()
    points = [
        {"false alarms": float(x), "right alarms": float(y), "place": place}
        for place, (x, y) in enumerate(zip(wrong, right, strict=True))
    ]
    chance = [{"false alarms": end, "right alarms": end, "place": end} for end in (0, 1)]
    whole = alt.Scale(domain=[0, 1])
    line, even = (
        alt.Chart(alt.InlineData(values=values)).encode(
            x=alt.X("false alarms:Q", scale=whole),
            y=alt.Y("right alarms:Q", scale=whole),
            order="place:O",
        )
        for values in (points, chance)
    )
    drawn = alt.layer(even.mark_line(strokeDash=[4, 4], color="gray"), line.mark_line(point=True))
    return drawn.properties(width=320, height=320)


def _far(columns: Sequence[Coordinate], means: Floats, held: Floats) -> Floats:
    """How far the centres are apart in each column, for its bounds."""
    held = np.maximum(held, 0) + 1e-9
    halves = np.array([float(each.half) for each in columns])
    away = (means - np.average(means, axis=0, weights=held)) / halves
    return np.average(away**2, axis=0, weights=held)


def _place(columns: Sequence[Coordinate], name: str | None, far: Floats, other: str | None) -> int:
    """The column of a name, or the furthest but for the other one."""
    names = [each.name for each in columns]
    if name is None:
        order: list[int] = np.argsort(-far, kind="stable").tolist()
        return next((place for place in order if names[place] != other), order[0])
    if name not in names or (name == other and len(names) > 1):
        raise SpecError(
            f"There is no column {name!r} to show beside {other!r}.",
            fix=f"Use {', '.join(names)}.",
            about="column",
        )
    return names.index(name)


def _span(name: str, mean: Floats, spread: Floats, place: int) -> dict[str, float]:
    middle, far = float(mean[place]), float(spread[place])
    if not np.isfinite(far):
        return {name: middle}
    return {name: middle, f"{name}0": middle - far, f"{name}1": middle + far}
