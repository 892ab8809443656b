"""Crowds beside k-anonymity and noise, on one real table at matched parameters."""

from collections.abc import Iterator

import numpy as np

from noisegate.lab.crowds import Way, compare
from section import DATA, ROOT, Effort, Shown
from show import Column, Row

PICTURE = ROOT / ".bench" / "crowd.png"
TABLE, COLUMNS = "adult", ("age", "sex")
SETTINGS = (("1/10", 36, "1e-6"), ("1/2", 50, "1e-6"), ("1/2", 20, "1e-3"))

WAYS: tuple[Column, ...] = (
    ("", "name", ""),
    ("promise", "promise", ""),
    ("large counts: of the sample", "of_sample", ".3g"),
    ("of all people", "of_people", ".3g"),
    ("small counts", "small", ".3g"),
    ("hidden", "hidden", ".1f"),
    ("below noise on the sample", "met", "met"),
)


def crowd(effort: Effort) -> Iterator[Shown]:
    """Errors of all ways; a crowd's large counts must be nearer to the sample than noise is."""
    held = np.load(DATA / "tabular" / f"{TABLE}.npz")
    places = np.stack([held[name].astype(np.int64) for name in COLUMNS])
    shape = tuple(int(each.max()) + 1 for each in places)
    counts = np.bincount(np.ravel_multi_index(tuple(places), shape), minlength=int(np.prod(shape)))
    for probability, least, delta in SETTINGS:
        ways = compare(
            counts, probability=probability, crowd=least, delta=delta, trials=10 * effort.trials
        )
        title = (
            f"{TABLE}, {' × '.join(COLUMNS)}, {counts.size} cells: a crowd of {least}, "
            f"p = {probability}, δ = {delta}"
        )
        yield Shown(title, WAYS, [_row(way, ways) for way in ways])
    save_picture(counts, ways)


def _row(way: Way, ways: list[Way]) -> Row:
    noisy = next(each for each in ways if each.name == "noise on a secret sample")
    is_crowd = way.name == "crowd-blending on a secret sample"
    names = ("name", "promise", "of_sample", "of_people", "small", "hidden")
    met = way.of_sample < noisy.of_sample if is_crowd else None
    return {name: getattr(way, name) for name in names} | {"met": met}


def save_picture(counts: np.ndarray, ways: list[Way]) -> None:
    """Each way's table beside the exact one, a bar for each cell."""
    import altair as alt  # noqa: PLC0415 - of the extra "plot"

    rows = [
        {"cell": cell, "people": value, "way": name}
        for name, numbers in [("exact", counts.tolist())] + [(w.name, w.numbers) for w in ways]
        for cell, value in enumerate(numbers)
    ]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar()
    order = ["exact", *(way.name for way in ways)]
    chart = bars.encode(x=alt.X("cell:O", axis=None), y="people:Q")
    chart = chart.properties(width=400, height=120)
    PICTURE.parent.mkdir(exist_ok=True)
    chart.facet(facet=alt.Facet("way:N", sort=order, title=None), columns=2).save(str(PICTURE))
