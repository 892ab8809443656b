"""Fitted models as altair charts. They show what was learnt, never rows."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError, Unsupported

Floats: TypeAlias = NDArray[np.float64]


def altair() -> Any:  # noqa: ANN401 - may be missing
    """The package for plots."""
    try:
        return import_module("altair")  # an extra
    except ImportError:
        raise Unsupported(
            "Plots need the package altair.", fix="Install noisegate with its extra: [plot]."
        ) from None


def centers(  # noqa: PLR0913 - what is drawn
    names: Sequence[str],
    means: Floats,
    weights: Floats,
    spreads: Floats,
    *,
    x: str | None,
    y: str | None,
    words: str,
) -> Any:  # noqa: ANN401 - a chart
    """Centres in two columns, by default those that tell them apart best.

    Areas are weights; bars reach as far as ``spreads``, which ``words`` describes.
    """
    alt = altair()
    first, second = _two(names, means, weights, x, y)
    points = [
        {
            "cluster": str(place),
            "rows": float(weight),
            "x": float(mean[first]),
            "y": float(mean[second]),
            **_ends("x", mean[first], spread[first]),
            **_ends("y", mean[second], spread[second]),
        }
        for place, (mean, weight, spread) in enumerate(zip(means, weights, spreads, strict=True))
    ]
    base = alt.Chart(alt.InlineData(values=points))
    color = alt.Color("cluster:N", title="cluster", sort=None)
    across = alt.X("x:Q", title=names[first], scale=alt.Scale(zero=False))
    down = alt.Y("y:Q", title=names[second], scale=alt.Scale(zero=False))
    dots = base.mark_circle(opacity=0.7).encode(
        x=across, y=down, color=color, size=alt.Size("rows:Q", title="rows (noisy)")
    )
    bars = [
        base.mark_rule().encode(x=alt.X("x0:Q"), x2="x1:Q", y=down, color=color),
        base.mark_rule().encode(y=alt.Y("y0:Q"), y2="y1:Q", x=across, color=color),
    ]
    return alt.layer(*bars, dots).properties(
        width=420, height=320, title=f"Centres; bars are {words}"
    )


def loadings(names: Sequence[str], components: Floats, shares: Floats) -> Any:  # noqa: ANN401
    """What each column adds to each component."""
    alt = altair()
    points = [
        {"column": name, "component": f"{place + 1} ({share:.0%})", "loading": float(value)}
        for place, (line, share) in enumerate(zip(components, shares, strict=True))
        for name, value in zip(names, line, strict=True)
    ]
    chart = alt.Chart(alt.InlineData(values=points)).mark_bar()
    return chart.encode(
        x=alt.X("loading:Q"),
        y=alt.Y("column:N", sort=None, title=None),
        column=alt.Column("component:N", sort=None, title="component (share of variance)"),
        color=alt.condition("datum.loading > 0", alt.value("#5b8cc0"), alt.value("#e08214")),
    ).properties(width=180)


def _two(
    names: Sequence[str], means: Floats, weights: Floats, x: str | None, y: str | None
) -> tuple[int, int]:
    for name in (x, y):
        if name is not None and name not in names:
            raise SpecError(f"There is no column {name!r}.", fix=f"Use {', '.join(names)}.")
    held = np.maximum(weights, 0) + 1e-9
    middle = np.average(means, axis=0, weights=held)
    far = np.average((means - middle) ** 2, axis=0, weights=held)
    order = [names[place] for place in np.argsort(-far, kind="stable")]
    across = x if x is not None else next((name for name in order if name != y), order[0])
    down = y if y is not None else next((name for name in order if name != across), across)
    return names.index(across), names.index(down)


def _ends(name: str, middle: float, far: float) -> dict[str, float]:
    if not np.isfinite(far):
        far = 0.0
    return {f"{name}0": float(middle - far), f"{name}1": float(middle + far)}
