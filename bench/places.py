# ruff: noqa: E501 - a sentence is a line
"""The sections of the page about benchmarks, in their order: what each measures beside what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pictures
from truth_summary import EACH, SUMMARY, summary

HEAD = """# Benchmarks

How noisegate stands beside other systems, beside published algorithms, and beside what is possible without privacy. Every
section says when it was run, at which commit, on what machine and how busy that was, and the command that runs it again; a
target stands beside the figure, and says *met* or *missed*. Compare ratios within a run: seconds are those of that machine.
Peers' figures that are typed in say so: they were measured once, by us, on a machine of the same kind.

This page is written by `python bench/report.py` from `bench/results/*.json`: do not edit it. `make bench`, `make
bench-peers`, `make bench-accuracy` and `make bench-truth` run the sections and write it anew; each takes `--only SECTION`
and `--resume`."""

Record = dict[str, Any]
Table = dict[str, Any]


def all_tables(records: Sequence[Record]) -> list[Table]:
    """As they were measured."""
    return [table for record in records for table in record["tables"]]


def truth_tables(records: Sequence[Record]) -> list[Table]:
    """Many questions together, and then table by table; each question is in the files alone."""
    rows = [row for table in all_tables(records) if table["title"].startswith(EACH)
            for row in table["rows"]]  # fmt: skip
    return [
        {"title": title, "columns": SUMMARY, "rows": summary(rows, each_table=each)}
        for title, each in (("All together", False), ("Each table", True))
    ]


@dataclass(frozen=True)
class Place:
    """Where a section stands on the page, what it measures, and how to run it."""

    title: str
    sections: tuple[str, ...]  # of these files
    command: str
    words: str
    tables: Callable[[Sequence[Record]], list[Table]] = all_tables
    picture: Callable[[list[Table]], str] | None = None
    says: str = ""  # what the picture shows

    @property
    def file(self) -> str:
        return f"{self.sections[0]}.svg"


PLACES: dict[str, tuple[Place, ...]] = {
    "Error of releases": (
        Place(
            "Tables that nothing was tuned on", ("held",), "python bench/accuracy.py --only held",
            "Shapes drawn from a seed that had no other use. `auto` beside the best of the published algorithms "
            "that are built in, on the same tables at the same ε; and how many exact answers lie within the stated ± at 95 %. These are our implementations, mended to whole numbers that are not negative as `auto` is: they err less than their authors' code, which stands in the sections below.",
        ),
        Place(
            "Rows of cells", ("1d",), "python bench/accuracy.py --only 1d",
            "DPBench's data, metric and scales at ε = 0.1: E = ‖true − released‖₂ ÷ (questions · rows), shown times the rows. The ratio is "
            "`auto`'s error to that of the best private peer of the cell, which nobody knows beforehand. Peers' errors are typed in: DPBench's own "
            "code, 2 to 10 trials (HB: 400); UNIFORM is run again.",
            picture=pictures.ratios, says="`auto`'s error ÷ that of the best published algorithm of each cell; left of 1 is better",
        ),
        Place(
            "Maps", ("2d",), "python bench/accuracy.py --only 2d",
            "The same for rectangles of 128 × 128 cells.",
            picture=pictures.ratios, says="`auto`'s error ÷ that of the best published algorithm of each map",
        ),
        Place(
            "A whole map", ("map",), "python bench/accuracy.py --only map",
            "Mean |error| of each of 65,536 cells: noise on each cell, whose error is known exactly, and `auto`.",
            picture=pictures.maps, says="mean |error| per cell by ε: noise on each cell, and `auto`",
        ),
        Place(
            "Sparse tables", ("sparse-error",), "python bench/accuracy.py --only sparse-error",
            "relL1 = Σ|exact − released| ÷ Σ exact over all cells, beside the lower of clipped and thresholded Laplace noise (typed in, 10 trials).",
        ),
        Place(
            "Two-way tables of Adult", ("marginals",), "python bench/accuracy.py --only marginals",
            "Mean total variation distance over all two-way tables. AIM, MST and MWEM+PGM are typed in: their authors' code, one trial each, with "
            "inference cut down to fit the time.",
        ),
        Place(
            "Synthetic rows", ("synthetic",), "python bench/accuracy.py --only synthetic",
            "Mean total variation distance over all two- and three-way tables, scored on as many rows as the original has. AIM's figures and seconds "
            "are typed in (one run each); the bootstrap, which is not private, is the limit of sampling.",
            picture=pictures.synthetic, says="two-way distance by ε: AIM, noisegate, and the bootstrap, which is not private",
        ),
        Place(
            "Running totals", ("series",), "python bench/accuracy.py --only series",
            "The measured error beside what was predicted before paying, and beside the binary tree as published.",
        ),
        Place(
            "Many questions", ("many",), "python bench/accuracy.py --only many",
            "MWEM's error by rounds, and sessions of random counting questions beside noise on each.",
        ),
        Place(
            "Crowds", ("crowd",), "python bench/accuracy.py --only crowd",
            "Exact counts of a secret sample with small ones hidden, beside k-anonymity and beside noise, at matched parameters.",
        ),
        Place(
            "Predicted and measured error", ("predicted",), "python bench/accuracy.py --only predicted",
            "What each recipe says before paying and with its release, and how far it was off. Intervals at 99.9 % over the trials.",
        ),
        Place(
            "Models", ("learners",), "python bench/accuracy.py --only learners",
            "Scores at pure ε beside diffprivlib 0.6.6 (typed in, means of 10 runs; a dash where it diverges or takes more than 12 s) and scikit-learn "
            "without privacy. KMeans: inertia ÷ scikit-learn's, lower is better; PCA: share of variance; LinearRegression: R²; else accuracy.",
            picture=pictures.learners, says="scores by ε: diffprivlib, noisegate, and scikit-learn without privacy",
        ),
    ),
    "Error bars of questions": (
        Place(
            "Error bars beside exact answers", tuple(f"truth-{name}" for name in ("air", "web", "shop", "clinic", "moves")), "python bench/truth.py",
            "Sixty questions to five tables whose units have heavy tails. An error is the distance from the exact SQL answer, whatever caused it. "
            "*Found* caps are found privately, and the ± covers what they cut; under *declared* ones, of the policy, an answer is written as “≥ 19,500 ± 31”, a lower bound whose ± is of the noise alone, so there is no target for it; the best cap is the fixed one with the least error in hindsight, "
            "which nobody can know.",
            tables=truth_tables,
        ),
        Place(
            "Error bars under zCDP", tuple(f"truth-{name}-zcdp" for name in ("air", "web", "shop", "clinic", "moves")), "python bench/truth.py --accountant zcdp --epsilon 1 5 --way found",
            "The same sixty questions in an account that adds up ρ, at (ε, 10⁻⁶): Gaussian noise, caps on norms.",
            tables=truth_tables,
        ),
        Place(
            "Error bars on tables that nothing was tuned on", ("truth-held",), "python bench/truth.py --held 20261118",
            "Ten laws of rows per unit, drawn from a seed, eight questions each.",
            tables=truth_tables,
        ),
        Place(
            "Declared bounds that are far out", ("truth-far",), "python bench/truth_far.py",
            'Six laws of values, drawn from a seed, under bounds of ± 1,000,000, which `choose="bounds"` narrows. Errors and ± are medians over draws, in shares of '
            "the exact answer, which for values of either sign is near 0.",
        ),
    ),
    "Speed": (
        Place(
            "Noise beside the peers", ("peers",), "python bench/run.py --only peers",
            "A histogram's cells, each peer in an environment of its own, right after each other. NumPy's floats are not secure: they are the limit.",
            picture=pictures.peers, says="million draws a second of CPU time, logarithmic",
        ),
        Place(
            "Noise beside NumPy", ("noise",), "python bench/run.py --only noise",
            "Exact, secure draws beside NumPy's insecure floating-point ones, in turns.",
        ),
        Place(
            "Whole questions", ("questions",), "python bench/run.py --only questions",
            "Through an open gate, each beside the plain query on the same rows, in turns.",
        ),
        Place("Quantiles", ("quantiles",), "python bench/run.py --only quantiles",
              "Without a gate, beside NumPy's selection and beside bare races."),
        Place("Everyday questions", ("everyday",), "python bench/run.py --only everyday",
              "The questions of `tests/questions` beside plain DuckDB: small tables, so most of the time is fixed."),
        Place("The door", ("door",), "python bench/run.py --only door",
              "What the gate costs on top of a plain query, and whole processes."),
        Place("Ledger", ("ledger",), "python bench/run.py --only ledger",
              "Questions charged and settled, one after the other, each on the disk before the next."),
        Place("Sparse releases", ("sparse",), "python bench/run.py --only sparse",
              "From opening a Parquet file to the stored release, in a process of its own."),
        Place("Memory", ("memory",), "python bench/run.py --only memory",
              "One question to 100 million rows of 10 million users, in a process of its own."),
        Place("Engines", ("engines",), "python bench/run.py --only engines",
              "The same questions on every engine, each beside the plain query of the same meaning: for units of many rows, the plain aggregation per (unit, group). CPU time where the engine works in the gate's process."),
        Place("Tumult Analytics on the same Spark", ("tumult",), "python bench/run.py --only tumult",
              "Each in a process that starts Spark of one release with two threads and asks each question twice: from the start to the first answer, and warm. Errors are distances to the exact answer, what caps cost included."),
        Place("Sizing", ("sizes",), "python bench/run.py --only sizes",
              "DuckDB by rows, each size in a process of its own."),
        Place("The service under load", ("service",), "python bench/service.py",
              "200 analysts of one budget over HTTP; clients are on the same cores. CPU ms are those of the service for an answer."),
    ),
}  # fmt: skip
