"""How good synthetic rows are, from what was released alone: no row of the original is looked at.

Each measured table is set beside the table of the synthetic rows. The distance of two tables is the
part of the rows that would have to move: half the sum of all differences, over the number of rows.
"""

from math import pi, prod, sqrt
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from noisegate.desk.display.drawing import Chart, altair, svg
from noisegate.desk.display.numbers import ends, percent
from noisegate.desk.display.plot import framed, inert, label_angle
from noisegate.exact import Number, fraction
from noisegate.files import require_output, write
from noisegate.frozen import dataclass
from noisegate.inert import html, line, lines, markdown
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes
from noisegate.synthetic.model.bars import singles
from noisegate.synthetic.model.drawing import numbers
from noisegate.synthetic.model.fitted import Fitted
from noisegate.synthetic.model.model import Evidence
from noisegate.synthetic.rows import SyntheticRows

ENDINGS: Final = (".html", ".md", ".txt")
_HEAD: Final = ("table", "cells", "± of a cell", "inside ±", "distance", "noise alone", "at most")
_PICTURES_MAX: Final = 40
_BARS_MAX: Final = 60


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measured table beside the synthetic rows.

    ``inside`` is the part of its cells where they agree within the ± of the noise. ``distance`` is
    between what was measured and the synthetic rows; ``noise`` is what noise alone makes of it, on
    average, and ``most`` bounds the distance between the exact table and the synthetic rows.
    """

    names: tuple[str, ...]
    cells: int
    margin: float
    inside: float
    distance: float
    noise: float
    most: float

    def texts(self) -> tuple[str, ...]:
        """The line as people read it."""
        return (
            line(" × ".join(self.names)) or "all rows",
            f"{self.cells:,}",
            f"{self.margin:.3g}",
            f"{self.inside:.0%}",
            f"{self.distance:.2%}",
            f"{self.noise:.2%}",
            f"{self.most:.2%}",
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """The quality of synthetic rows: lines for all measured tables, and pictures of the columns.

    ``unmeasured`` are tables of the workload that follow from the model alone.
    """

    made: SyntheticRows
    confidence: Number
    lines: tuple[Line, ...]
    unmeasured: tuple[tuple[str, ...], ...]

    def facts(self) -> list[str]:
        """What the lines mean, in sentences."""
        made, fitted = self.made, self.made.fitted
        sure = percent(self.confidence)
        total = made.query(self.confidence)
        meaning = (
            "Distances are fractions of the rows. The exact table is at most as far from the "
            f"synthetic rows as the last column says, at {sure} confidence for each table; "
            "usually it is closer. Where noise alone is much of a distance, it says little."
        )
        found = [
            f"{made.headline}, for {total} rows of the original.",
            f"The model has {fitted.model.cells:,} cells.",
            meaning,
        ]
        if self.unmeasured:
            some = "; ".join(" × ".join(names) for names in self.unmeasured[:5])
            left = len(self.unmeasured) - 5
            more = f" and {left:,} more" if left > 0 else ""
            found.append(f"Not measured directly, these follow from the others: {some}{more}.")
        return [*found, *fitted.words, made.promise]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "confidence": float(fraction(self.confidence)),
            "tables": [
                {
                    "columns": list(line.names),
                    "cells": line.cells,
                    "margin": line.margin,
                    "inside": line.inside,
                    "distance": line.distance,
                    "noise": line.noise,
                    "most": line.most,
                }
                for line in self.lines
            ],
            "unmeasured": [list(names) for names in self.unmeasured],
        }

    def to_markdown(self) -> str:
        """A page for people."""
        rows = [_HEAD, ["---"] + ["--:"] * (len(_HEAD) - 1), *(line.texts() for line in self.lines)]
        table = "\n".join(f"| {' | '.join(map(markdown, row))} |" for row in rows)
        facts = "\n".join(f"- {markdown(fact)}" for fact in self.facts())
        name = markdown(self.made.fitted.layout.table)
        return f"# Synthetic rows: {name}\n\n{facts}\n\n{table}\n"

    def to_html(self) -> str:
        """A page with pictures: needs no network and no scripts. Needs the extra `plot`."""
        names = [axis.name for axis in self.made.fitted.layout.axes][:_PICTURES_MAX]
        charts = [svg(_chart(self.made, name, self.confidence)) for name in names]
        return _PAGE.format(
            title=html(f"Synthetic rows: {self.made.fitted.layout.table}"),
            facts="".join(f"<li>{html(fact)}</li>" for fact in self.facts()),
            table=self._table(),
            pictures="\n".join(f"<figure>{chart}</figure>" for chart in charts),
        )

    def save(self, file: str | Path) -> None:
        """Write it in the form of the file's ending: `.html`, `.md` or `.txt`."""
        path = require_output(file, ENDINGS)
        texts = {".html": self.to_html, ".md": self.to_markdown, ".txt": self.__str__}
        write(path, texts[path.suffix.lower()]())

    def _table(self) -> str:
        rows = [(_HEAD, "th"), *((line.texts(), "td") for line in self.lines)]
        lines = ("".join(f"<{tag}>{html(c)}</{tag}>" for c in row) for row, tag in rows)
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    def __str__(self) -> str:
        rows = [_HEAD, *(line.texts() for line in self.lines)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in rows
        ]
        return lines("\n".join([*shown, *self.facts()]))

    def _repr_html_(self) -> str:
        return self._table() + "".join(f"<p>{html(fact)}</p>" for fact in self.facts())


def report(made: SyntheticRows, confidence: Number = 0.95) -> Report:
    """The report of synthetic rows."""
    fitted, names = made.fitted, [axis.name for axis in made.fitted.layout.axes]
    measured = sorted(fitted.evidence, key=lambda one: (len(one.axes), one.axes))
    held = [set(one.axes) for one in measured]
    left = [axes for axes in fitted.sets if not any(set(axes) <= each for each in held)]
    return Report(
        made=made,
        confidence=confidence,
        lines=tuple(_line(made, one, confidence) for one in measured),
        unmeasured=tuple(tuple(names[axis] for axis in axes) for axes in left),
    )


def _line(made: SyntheticRows, one: Evidence, confidence: Number) -> Line:
    fitted, failure = made.fitted, float(failure_of(confidence))
    grain, rows, cells = float(fitted.grain), fitted.rows, len(one.values)
    spread = sqrt(one.variance) * grain
    margin = tail_factor(failure, gaussian=fitted.gaussian) * spread
    away = np.abs(_counts(made, one) - one.values * grain)
    # of |noise|: normal, or Laplace where it is geometric
    mean, of_mean = (sqrt(2 / pi), sqrt(1 - 2 / pi)) if fitted.gaussian else (sqrt(0.5), sqrt(0.5))
    noise = cells * mean * spread
    far = noise + tail_factor(2 * failure, gaussian=False) * sqrt(cells) * of_mean * spread
    distance = float(away.sum()) / 2 / rows
    return Line(
        names=tuple(fitted.layout.axes[axis].name for axis in one.axes),
        cells=cells,
        margin=margin,
        inside=float(np.mean(away <= margin)),
        distance=distance,
        noise=noise / 2 / rows,
        most=min(1.0, distance + far / 2 / rows),
    )


def _counts(made: SyntheticRows, one: Evidence) -> Floats:
    """The sums of the evidence, over the synthetic rows, for as many rows as the original has."""
    table = table_of(made, one.axes)
    if one.labels is not None:
        return np.bincount(one.labels + 1, table, len(one.values) + 1)[1:].astype(np.float64)
    return table


def table_of(made: SyntheticRows, axes: Axes) -> Floats:
    """The table of the synthetic rows over some columns, for as many rows as the original has."""
    sizes = made.fitted.layout.sizes
    cells = prod(sizes[axis] for axis in axes)
    counts = np.bincount(numbers(made.cells.T, axes, sizes), minlength=cells).astype(np.float64)
    return counts * (made.fitted.rows / made.count)


def picture(made: SyntheticRows, name: str, confidence: Number = 0.95) -> Chart:
    """One column: bars are synthetic rows, points with error bars are what was measured."""
    title = f"{name}: synthetic rows (bars) and what was measured (points)"
    return framed(_chart(made, name, confidence), made.answer(0), title=title)


def _chart(made: SyntheticRows, name: str, confidence: Number) -> Chart:
    alt = altair()
    points = _points(made.fitted, made.fitted.layout.place(name), made, confidence)
    base = alt.Chart(alt.InlineData(values=points))
    width = max(180, min(900, 24 * len(points)))
    angle = label_angle((each["x"] for each in points), width / len(points))
    axis = alt.Axis(labelAngle=angle, labelLimit=160)
    x = alt.X("x:N", title=name, sort=None, axis=axis)
    label = f"rows (± at {percent(confidence)} confidence)"
    bars = base.mark_bar(color="#9dbbdc").encode(x=x, y=alt.Y("made:Q", title=label))
    dots = base.mark_point(color="#1a1a1a", filled=True, size=36).encode(x=x, y="seen:Q")
    reach = {"y": alt.Y("low:Q", title=label), "y2": alt.Y2("high:Q")}
    rules = base.mark_errorbar(ticks={"size": 6}, color="#1a1a1a").encode(x=x, **reach)
    return inert(alt.layer(bars, rules, dots).properties(width=width, height=240))


def _points(
    fitted: Fitted, axis: int, made: SyntheticRows, confidence: Number
) -> list[dict[str, Any]]:
    """A point for each cell of a column; of very many, those next to each other are added up."""
    labels, grain = fitted.layout.axes[axis].labels, float(fitted.grain)
    bars = table_of(made, (axis,))
    step = -(-len(labels) // _BARS_MAX)
    starts = list(range(0, len(labels), step))
    seen = singles(fitted.layout.sizes, fitted.evidence, axis)
    found = [
        {"x": labels[start], "made": float(height)}
        for start, height in zip(starts, np.add.reduceat(bars, starts), strict=True)
    ]
    if seen is not None:
        factor = tail_factor(float(failure_of(confidence)), gaussian=fitted.gaussian)
        values, variances = (np.add.reduceat(each, starts) for each in seen)
        for point, value, variance in zip(found, values, variances, strict=True):
            half = factor * sqrt(variance) * grain
            low, high = ends(value * grain, half, from_zero=True)
            point |= {"seen": value * grain, "low": low, "high": high}
    return found


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
color: #1a1a1a; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ border-bottom: 1px solid #ddd; padding: 0.2rem 0.7rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
figure {{ margin: 2rem 0; overflow-x: auto; }}
</style></head><body>
<h1>{title}</h1>
<ul>{facts}</ul>
{table}
<p>Bars are synthetic rows; points with error bars are what was measured.</p>
{pictures}
</body></html>
"""
