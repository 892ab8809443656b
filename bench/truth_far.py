"""Declared bounds that are far out: what `choose="bounds"` makes of them, beside exact answers.

Values are drawn from a seed, by six laws, under bounds of ± 1,000,000. Each draw is asked of a gate
of its own. Units have one row, or four under a contribution bound of five.
"""

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import noisegate
from keep import Run, Shown, every
from show import Column, Row, console, machine

ROWS, END = 8_000, 1_000_000
Values = NDArray[np.float64]
LAWS = {
    "lognormal(7, 1)": lambda rng: rng.lognormal(7, 1, ROWS),
    "normal(50,000, 8,000)": lambda rng: rng.normal(50_000, 8_000, ROWS),
    "exponential(900)": lambda rng: rng.exponential(900, ROWS),
    "Pareto(1.5) from 500": lambda rng: (rng.pareto(1.5, ROWS) + 1) * 500,
    "normal(0, 3,000)": lambda rng: rng.normal(0, 3_000, ROWS),
    "uniform to the bound": lambda rng: rng.uniform(0, END, ROWS),
}
EXACT = {
    "SUM(x)": lambda x, _: x.sum(),
    "AVG(x)": lambda x, _: x.mean(),
    "STDDEV(x)": lambda x, _: x.std(ddof=1),
    "COVAR_POP(x, y)": lambda x, y: np.cov(x, y, ddof=0)[0, 1],
}
UNITS: dict[str, dict[str, Any]] = {"1": {}, "4, of 5": {"unit": "who", "rows_per_unit": 5}}
ACCOUNTS: dict[str, dict[str, Any]] = {"pure": {}, "zcdp": {"accountant": "zcdp", "delta": 1e-6}}
COLUMNS: tuple[Column, ...] = (
    ("values", "law", ""),
    ("question", "question", ""),
    ("rows of a unit", "unit", ""),
    ("account", "account", ""),
    ("inside ±", "inside", ".3f"),
    ("error", "error", ".2%"),
    ("±", "width", ".2%"),
    ("± as declared", "declared", ".2%"),
)


def measure(options: argparse.Namespace) -> Iterator[Shown]:
    """A table for each ε; errors and ± are medians, in shares of the exact answer."""
    for epsilon in options.epsilon:
        rows = [
            compared(law, question, unit, account, epsilon, options)
            for law in LAWS for question in EXACT for unit in UNITS for account in ACCOUNTS
        ]  # fmt: skip
        title = f"Bounds of ± {END:,} narrowed, {ROWS:,} rows, ε = {epsilon:g}"
        yield Shown(title, COLUMNS, rows)
        yield Shown(f"All of these, ε = {epsilon:g}", COLUMNS[4:], [_all(rows)])


def compared(
    law: str, question: str, unit: str, account: str, epsilon: float, options: argparse.Namespace
) -> Row:
    """Draws of one question, each of a table and a gate of its own."""
    inside, errors, widths, declared = [], [], [], []
    for draw in range(options.draws):
        rng = np.random.default_rng([options.seed, draw, list(LAWS).index(law)])
        x = np.clip(np.round(LAWS[law](rng), 2), -END, END)
        y = np.clip(x / 2 + rng.normal(0, x.std() / 2, ROWS), -END, END)
        table = pa.table({"x": x, "y": y, "who": np.repeat(np.arange(ROWS // 4), 4)})
        exact = float(EXACT[question](x, y))
        narrowed, wide = (
            _asked(table, question, epsilon, **UNITS[unit], **ACCOUNTS[account], choose=choose)
            for choose in ("bounds", None)
        )
        inside.append(abs(narrowed[0] - exact) <= narrowed[1])
        errors.append(abs(narrowed[0] - exact) / abs(exact))
        widths.append(narrowed[1] / abs(exact))
        declared.append(wide[1] / abs(exact))
    return {
        "law": law, "question": question, "unit": unit, "account": account,
        "inside": sum(inside) / len(inside), "error": median(errors), "width": median(widths),
        "declared": median(declared),
    }  # fmt: skip


def _asked(
    table: pa.Table, question: str, epsilon: float, *, choose: str | None, **opening: Any
) -> tuple[float, float]:
    bounds = {name: {"between": [-END, END]} for name in ("x", "y")}
    gate = noisegate.open(table, epsilon=10**6, table="t", columns=bounds, **opening)
    answer = gate.sql(f"SELECT {question} AS v FROM t", epsilon=epsilon, choose=choose)
    return float(answer.rows[0][0]), float(answer.margins()["v"][0])


def _all(rows: list[Row]) -> Row:
    return {
        "inside": sum(row["inside"] for row in rows) / len(rows),
        **{name: median(row[name] for row in rows) for name in ("error", "width", "declared")},
    }


def main() -> None:
    """Measure, show, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261119)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    said = parser.parse_args()
    to = console(width=160)
    to.print(f"[bold]{machine()}, {said.draws} draws")
    words = f"{said.draws} draws of each question, seed {said.seed}"
    run = Run("truth-far", "python bench/truth_far.py", words, quick=said.draws < 10)
    every([(run, lambda: measure(said))], to, resume=False)


if __name__ == "__main__":
    main()
