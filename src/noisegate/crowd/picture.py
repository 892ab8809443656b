"""The picture of a crowd: bars of what is shown, hatched cells that are hidden, the line at k."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.display.drawing import Chart, altair

CELLS_MAX: Final = 80  # bars side by side
_LINES: Final = 6  # of the hatching of one cell
_INK: Final = "#8a8a8a"


def crowd_bars(
    labels: Sequence[str],
    values: NDArray[np.float64],
    ends: tuple[NDArray[np.int64], NDArray[np.int64]],
    *,
    crowd: int,
    lines: NDArray[np.float64],
    name: str,
) -> Chart:
    """Bars with their ± where a cell is shown; a hatched cell up to the line where it is not.

    ``lines`` is the number of people, for each cell, at which the sample is expected to hold a
    crowd: what a shown cell has at least.
    """
    alt, hidden = altair(), values == 0
    shown: list[dict[str, Any]] = [
        {"cell": labels[at], "people": float(values[at]), "low": int(ends[0][at]),
         "high": int(ends[1][at])}
        for at in np.flatnonzero(~hidden).tolist()
    ]  # fmt: skip
    gone: list[dict[str, Any]] = [
        {"cell": labels[at], "most": float(lines[at]), "high": int(ends[1][at])}
        for at in np.flatnonzero(hidden).tolist()
    ]
    hatching = [
        {"cell": each["cell"], "from": each["most"] * step / _LINES,
         "to": each["most"] * (step + 1) / _LINES}
        for each in gone for step in range(_LINES)
    ]  # fmt: skip
    limits: list[dict[str, Any]] = [
        {"cell": label, "line": float(line)} for label, line in zip(labels, lines, strict=True)
    ]
    place = alt.X("cell:N", sort=list(labels), title=None, scale=alt.Scale(domain=list(labels)))
    title = f"{name} (scaled up to all people)"
    count = alt.Y("people:Q", title=title)
    bars = _of(alt, shown).mark_bar(opacity=0.75).encode(place, count)
    off = (
        _of(alt, shown)
        .mark_rule(strokeWidth=1.5)
        .encode(place, alt.Y("low:Q", title=title), y2="high:Q")
    )
    box = _of(alt, gone).mark_bar(fill="white", stroke=_INK, strokeDash=[3, 2])
    box = box.encode(place, alt.Y("most:Q", title=title), tooltip=["cell:N", "high:Q"])
    first = alt.X("cell:N", sort=list(labels), bandPosition=0)
    hatched = _of(alt, hatching).mark_rule(color=_INK, strokeWidth=1)
    hatched = hatched.encode(
        first, alt.Y("from:Q", title=title), x2=alt.X2("cell:N", bandPosition=1), y2="to:Q"
    )
    edge = _of(alt, limits).mark_rule(color="#c0392b", strokeWidth=2)
    edge = edge.encode(first, alt.Y("line:Q", title=title), x2=alt.X2("cell:N", bandPosition=1))
    last = [limits[-1] | {"words": f"k = {crowd} in the sample"}]
    words = _of(alt, last).mark_text(align="right", dy=-7, color="#c0392b")
    words = words.encode(place, alt.Y("line:Q", title=title), text="words:N")
    wide = max(240, min(900, 36 * len(labels)))
    return alt.layer(bars, off, box, hatched, edge, words).properties(width=wide, height=300)


def _of(alt: Any, rows: list[dict[str, Any]]) -> Chart:  # noqa: ANN401 - a chart
    return alt.Chart(alt.InlineData(values=rows))
