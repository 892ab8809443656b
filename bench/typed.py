"""Whole questions of other systems, typed in beside ours of the same shape.

Measured by us on 15 November 2026, on two cores of the same kind: medians of three, each system in
an environment of its own, with the plain query beside it in that run. Ours are of this run. What
can be compared are ratios to the plain query, not seconds.
"""

from typing import NamedTuple

from show import Column, Row

TITLE = "Beside other systems: their ratios are typed in, of 15 November 2026"
COLUMNS: tuple[Column, ...] = (
    ("question", "question", ""),
    ("system", "system", ""),
    ("s", "seconds", ",.3g"),
    ("÷ not private", "times", ",.3g"),
    ("remark", "remark", ""),
)


class Typed(NamedTuple):
    """One figure of another system."""

    system: str
    seconds: float
    remark: str | None = None


ROWS, USERS, QUARTILES, START = (
    "COUNT and SUM per group, every row one person",
    "… at most 10 rows per user",
    "quartiles of 10 million numbers",
    "process start to the first count of a small file",
)
# question: seconds without privacy in that run, what that was, and the others
OTHERS: dict[str, tuple[float, str, tuple[Typed, ...]]] = {
    ROWS: (0.19, "plain DuckDB 2.0", (
        Typed("SmartNoise SQL 1.0 on DuckDB", 0.86), Typed("OpenDP 0.16 on Polars", 1.96),
        Typed("Tumult Analytics on local Spark", 4.3, "warm; 21.8 s from the start"),
        Typed("SmartNoise SQL on SQLite", 7.2, "after 14 to 19 s of loading"),
        Typed("Qrlew 0.9 on DuckDB", 36, "noise 6 to 8 times too large"),
        Typed("PipelineDP 0.3, local", 220, "extrapolated from a million rows"),
    )),
    USERS: (2.4, "plain DuckDB 2.0, aggregation per (user, group)", (
        Typed("SmartNoise SQL 1.0 on DuckDB", 2.7), Typed("OpenDP 0.16 on Polars", 6.8),
        Typed("SmartNoise SQL on SQLite", 25), Typed("Tumult Analytics on local Spark", 102),
        Typed("Qrlew 0.9 on DuckDB", 118), Typed("PipelineDP 0.3, local", 220, "extrapolated"),
    )),
    QUARTILES: (0.27, "numpy.partition", (
        Typed("OpenDP 0.16, tree of 1,000 bins", 1.04, "rank error 1.2e-5 at ε = 1"),
        Typed("PyDP 1.1.5", 4.6, "rank error 1.0e-6 at ε = 3"),
        Typed("diffprivlib 0.6.6", 40.6, "rank error 2e-7 at ε = 3"),
        Typed("Tumult Analytics on local Spark", 3400, "about; rank error 4e-5, 100,000 rows"),
    )),
    START: (0.28, "plain DuckDB 2.0", (
        Typed("PyDP 1.1.5", 0.041, "10 MB installed"), Typed("PipelineDP 0.3", 1.24, "226 MB"),
        Typed("SmartNoise SQL 1.0", 1.25, "371 MB"), Typed("diffprivlib 0.6.6", 1.38, "277 MB"),
        Typed("OpenDP 0.16", 1.8, "up to 2.7 s; 866 MB"), Typed("Tumult Analytics", 23, "1,013 MB"),
    )),
}  # fmt: skip
OURS = {  # which of our rows answers the question
    ROWS: "noisegate, every row one person",
    USERS: "noisegate, per group, 10 rows per user",
    QUARTILES: "noisegate, quartiles",
    START: "noisegate ask, from start to first answer",
}


def beside(questions: list[Row], starts: list[Row]) -> list[Row]:
    """For each question what is not private, ours of this run, and the others."""
    rows: list[Row] = []
    for question, (base, name, others) in OTHERS.items():
        ours = next(row for row in (*questions, *starts) if row["way"] == OURS[question])
        limit = f"{name} (then)"
        rows.append({"question": question, "system": limit, "seconds": base, "times": 1.0})
        rows.append({
            "question": question, "system": "noisegate (this run)",
            "seconds": ours["wall_ms"] / 1e3, "times": _ratio(question, ours),
            "remark": _remark(question, ours),
        })  # fmt: skip
        rows += [
            {"question": question, "system": each.system, "seconds": each.seconds,
             "times": each.seconds / base, "remark": each.remark}
            for each in others
        ]  # fmt: skip
    return rows


def _ratio(question: str, ours: Row) -> float | None:
    """To the plain query of this run; a start stands beside other imports, and is not one."""
    return None if question == START else float(ours["times_wall"])


def _remark(question: str, ours: Row) -> str | None:
    if question == START:
        return f"{ours['times_wall']:.2f} × the import of DuckDB and pyarrow"
    return f"rank error {ours['rank_error']:.1e}" if question == QUARTILES else None
