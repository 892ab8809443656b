"""How often the ± held over many questions, beside what is aimed at; without any of the gate."""

from statistics import mean, median

from show import Column, Row

EACH = "Each question: "  # how titles of the long tables begin
COVERED_MIN, ERROR_MAX = {1.0: 0.95, 0.1: 0.9}, {1.0: 1.3, 0.1: 2.0}  # of the mean, of the best cap
WORST_MIN = 0.8
WIDE_MAX = 3.0  # ± by the root of the mean squared error: 2.12 is exact for Laplace noise

SUMMARY: tuple[Column, ...] = (
    ("table", "table", ""),
    ("ε", "epsilon", "g"),
    ("caps", "way", ""),
    ("questions", "questions", "d"),
    ("refused", "refused", "d"),
    ("inside ±, mean", "inside", ".3f"),
    ("target", "inside_target", ""),
    ("met", "inside_met", "met"),
    ("least", "least", ".3f"),
    ("below 0.8", "below", "d"),
    ("none", "none_below", "met"),
    ("error ÷ best cap's, median", "times_best", ".2f"),
    ("target ", "times_target", ""),
    ("met ", "times_met", "met"),
    ("± ÷ mean error, median", "width", ".2f"),
    ("± ÷ RMS error, median", "deviations", ".2f"),
    ("target  ", "wide_target", ""),
    ("met  ", "wide_met", "met"),
)


def summary(rows: list[Row], *, each_table: bool = False) -> list[Row]:
    """One line for each price and way; of each table, or of all together."""

    def group(row: Row) -> tuple[str | None, float, str]:
        return (row["table"] if each_table else None, row["epsilon"], row["way"])

    found = []
    for name in dict.fromkeys(group(row) for row in rows):
        mine = [row for row in rows if group(row) == name]
        told = [row for row in mine if row.get("inside") is not None]
        if told:
            table, epsilon, way = name
            head = {"table": table, "epsilon": epsilon, "way": way, "questions": len(mine)}
            head |= {"refused": len(mine) - len(told)}
            found.append(head | _judged(told, epsilon if way == "found" else None))
    return found


def _judged(told: list[Row], epsilon: float | None) -> Row:
    """With declared caps there is no target: answers say "≥", and that the ± is of noise alone."""
    inside = [row["inside"] for row in told]
    ratios = [row["times_best"] for row in told if row.get("times_best") is not None]
    widths = [row["width"] for row in told if row["width"] is not None]
    deviations = [row["deviations"] for row in told if row.get("deviations") is not None]
    wide = median(deviations) if deviations else None
    least, most = (aims.get(epsilon or 0.0) for aims in (COVERED_MIN, ERROR_MAX))
    below, times = sum(each < WORST_MIN for each in inside), median(ratios) if ratios else None
    return {
        "inside": mean(inside),
        "inside_target": None if least is None else f"≥ {least}",
        "inside_met": None if least is None else mean(inside) >= least,
        "least": min(inside),
        "below": below,
        "none_below": None if least is None else below == 0,
        "times_best": times,
        "times_target": None if most is None or times is None else f"≤ {most}",
        "times_met": None if most is None or times is None else times <= most,
        "width": median(widths) if widths else None,
        "deviations": wide,
        "wide_target": None if least is None or wide is None else f"≤ {WIDE_MAX:g}",
        "wide_met": None if least is None or wide is None else wide <= WIDE_MAX,
    }
