"""Does the ± hold for the true answer? Heavy-tailed tables with a unit, 60 questions, plain DuckDB.

Each draw is asked of a gate of its own, so that no draw profits from another. The error of an
answer is its distance from the exact SQL answer, whatever caused it: noise, contribution bounds,
clipping, rounding. The best fixed cap is the one with the least error in hindsight, which nobody
can know without reading the rows.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import noisegate
from keep import Run, Shown, every
from noisegate.errors import NoisegateError
from noisegate.ledger.stores.memory import MemoryLedger
from show import Column, Row, console, machine
from truth_exact import forget, remember
from truth_held import LAWS, held
from truth_summary import EACH, SUMMARY, summary
from truth_worlds import WORLDS, World

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".bench" / "truth"
DRAWS, BESIDE = 50, 9
ENOUGH = 10  # fewer draws show that it works, and no figure
CAPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WAYS = {"found": "", "declared": "-capped"}  # which policy file: the first says nothing of caps

COLUMNS: tuple[Column, ...] = (
    ("table", "table", ""),
    ("question", "question", ""),
    ("ε", "epsilon", "g"),
    ("caps", "way", ""),
    ("inside ±", "inside", ".3f"),
    ("relative error", "error", ".2%"),
    ("best cap", "best_cap", "d"),
    ("× its error", "times_best", ".2f"),
    ("± / mean error", "width", ".2f"),
    ("± / RMS error", "deviations", ".2f"),
    ("why not", "failed", ""),
)
Cells = dict[tuple[Any, ...], float]  # by groups and the column


@dataclass
class Tally:
    """Draws of one question at one price."""

    inside: list[float] = field(default_factory=list)  # share of cells, a draw
    errors: list[float] = field(default_factory=list)  # sum of |error| / sum of |truth|
    widths: list[float] = field(default_factory=list)  # sum of ± / sum of |truth|
    squares: list[tuple[float, float]] = field(default_factory=list)  # means of error², of ±²

    @property
    def row(self) -> Row:
        # The median ± over the mean error, and over the root of the mean squared error. Laplace
        # noise of scale b has E|X| = b, E X² = 2 b² and P(|X| > b ln 20) = 1/20: a ± that holds
        # exactly 95 % has the ratios ln 20 = 3.0 and 2.12; of Gaussian noise 2.46 and 1.96. Less is
        # possible only where errors are much alike in all draws, as what a cap loses is: if all
        # were the same, 1. Over ten draws both errors scatter by a third, and so do the ratios.
        error, mean = median(self.errors), sum(self.errors) / len(self.errors)
        width = median(self.widths) / mean if mean and self.widths else None
        squared = sum(off for off, _ in self.squares) / len(self.squares)
        wide = sqrt(median(bar for _, bar in self.squares) / squared) if squared else None
        inside = sum(self.inside) / len(self.inside)
        return {"inside": inside, "error": error, "width": width, "deviations": wide}

    def add(self, answer: Any, truth: Mapping[tuple[Any, ...], float], keys: int) -> None:
        """A cell without a ± says nothing, and is not inside."""
        margins = answer.margins()
        inside, error, width, size, cells = 0, 0.0, 0.0, 0.0, 0
        squared = wide = 0.0
        for at, values in enumerate(answer.rows):
            for column in range(keys, len(values)):
                true = truth.get((*values[:keys], column))
                if true is None:
                    continue  # an empty group, of which SQL says nothing
                name, told = answer.columns[column], values[column]
                bar = margins[name][at] if margins[name] is not None else None
                off = abs((0 if told is None else float(told)) - true)
                cells, error, size = cells + 1, error + off, size + abs(true)
                squared += off**2
                if bar is not None:
                    inside, width = inside + (off <= float(bar) + 1e-9 * abs(true)), width + bar
                    wide += float(bar) ** 2
        self.inside.append(inside / cells)
        self.errors.append(error / size)
        self.widths.append(width / size)
        self.squares.append((squared / cells, wide / cells))


def truth_of(con: Any, sql: str, keys: int) -> Cells:
    """The exact answer; groups without rows are not in it."""
    return {
        (*row[:keys], column): float(row[column])
        for row in con.execute(sql).fetchall()
        for column in range(keys, len(row))
        if row[column] is not None
    }


def keys_of(sql: str) -> int:
    """How many columns of the outer SELECT are groups: those before the first aggregate."""
    import sqlglot  # noqa: PLC0415 - one use
    from sqlglot import exp  # noqa: PLC0415

    tree = sqlglot.parse_one(sql, read="duckdb")
    return sum(1 for each in tree.selects if not each.find(exp.AggFunc))


def ask(file: Path, sql: str, epsilon: float, **terms: Any) -> Any:
    """One answer of a gate that knows nothing yet."""
    gate = noisegate.open(file, ledger=MemoryLedger())
    return gate.sql(sql, epsilon=epsilon, **terms)


def measure(world: World, options: argparse.Namespace, pool: Executor) -> list[Row]:
    """Rows of one world: each question, at each price, with caps found and with caps declared."""
    for capped in (False, True):
        world.write(FOLDER, capped=capped, accountant=options.accountant)
    tasks = product([world.name], world.questions, options.epsilon, [options])
    return [row for found in pool.map(asked, *zip(*tasks, strict=True)) for row in found]


def asked(name: str, sql: str, epsilon: float, options: argparse.Namespace) -> list[Row]:
    """One question at one price, in a process of its own."""
    remember()
    forget()
    (world,) = (each for each in worlds(options) if each.name == name)
    keys, rows = keys_of(sql), []
    truth = truth_of(world.engine(FOLDER), sql, keys)
    best, cap = best_cap(FOLDER / f"{name}.toml", sql, epsilon, truth, keys, options)
    for way in options.way:
        file = FOLDER / f"{name}{WAYS[way]}.toml"
        row: Row = {"table": name, "question": sql, "epsilon": epsilon, "way": way}
        tally = Tally()
        try:
            for _ in range(options.draws):
                tally.add(ask(file, sql, epsilon), truth, keys)
        except NoisegateError as error:
            rows.append(row | {"failed": str(error).splitlines()[0][:90]})
            continue
        found = tally.row | {"best_cap": cap}
        found["times_best"] = found["error"] / best if best else None
        rows.append(row | found)
    return rows


def worlds(options: argparse.Namespace) -> tuple[World, ...]:
    """The tables that are asked: the usual ones, or others that are drawn from a seed."""
    return WORLDS if options.held is None else held(options.held)


def best_cap(
    file: Path, sql: str, epsilon: float, truth: Cells, keys: int, options: argparse.Namespace
) -> tuple[float | None, int | None]:
    """The fixed cap with the least median error, and its median error in draws of their own.

    The least of many noisy medians is less than any cap's error: it would be luck, not hindsight.
    """

    def error(cap: int, draws: int) -> float:
        tally = Tally()
        for _ in range(draws):
            tally.add(ask(file, sql, epsilon, rows_per_unit=cap), truth, keys)
        return float(tally.row["error"])

    found: list[tuple[float, int]] = []
    for cap in CAPS if options.beside else ():
        with suppress(NoisegateError):
            found.append((error(cap, options.beside), cap))
    if not found:
        return None, None
    _, cap = min(found)
    return error(cap, max(options.beside, options.draws)), cap


def main() -> None:
    """Measure table by table, show each as soon as it is known, keep each by itself."""
    said = _options()
    to = console(width=220)
    to.print(f"[bold]{machine()}, {said.draws} draws")
    asked = [each for each in worlds(said) if not said.only or each.name.split("-")[0] in said.only]
    context = get_context("spawn")
    with ProcessPoolExecutor(said.processes, mp_context=context) as pool:
        if said.held is None:
            runs = [(_run(said, each.name), partial(_tables, [each], said, pool)) for each in asked]
        else:
            runs = [(_run(said, "held"), partial(_tables, asked, said, pool))]
        every(runs, to, resume=said.resume)


def _tables(asked: Sequence[World], said: argparse.Namespace, pool: Executor) -> Iterator[Shown]:
    rows = []
    for world in asked:
        found = measure(world, said, pool)
        yield Shown(f"{EACH}{world.name}", COLUMNS, found)
        rows += found
    yield Shown("All of these", SUMMARY, summary(rows))


def _run(said: argparse.Namespace, name: str) -> Run:
    words = f"{said.draws} draws of each question"
    words += f", seed {said.held}" * (said.held is not None)
    words += f", accountant {said.accountant}" * (said.accountant != "pure")
    words += f", {said.beside} for each fixed cap" if said.beside else ", no fixed caps"
    terms = f"--only {name}" if said.held is None else f"--held {said.held}"
    terms += f" --draws {said.draws}" * (said.draws != DRAWS)
    terms += f" --beside {said.beside}" * (said.beside != BESIDE)
    terms += f" --accountant {said.accountant}" * (said.accountant != "pure")
    few = said.draws < ENOUGH or len(said.epsilon) < 2 or bool(said.held is not None and said.only)
    name += f"-{said.accountant}" * (said.accountant != "pure")
    return Run(f"truth-{name}", f"python bench/truth.py {terms}", words, quick=few)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*(world.name for world in WORLDS), *(name for name, _, _ in LAWS)]
    parser.add_argument("--only", action="append", choices=names)
    parser.add_argument("--held", type=int, help="tables of other shapes, of this seed")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--beside", type=int, default=BESIDE, help="for each fixed cap; 0: none")
    parser.add_argument("--resume", action="store_true", help="leave out what this commit has")
    parser.add_argument("--way", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--accountant", choices=("pure", "zcdp"), default="pure")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.1])
    return parser.parse_args()


if __name__ == "__main__":
    main()
