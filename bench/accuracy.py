"""Accuracy of releases on real data, beside published algorithms: one file for each section.

The data are not part of the repository.
"""

import argparse
import json
import sys

import crowds
import grids
import learners
import many
import maps
import marginals
import predicted
import series
import sparse_error
import synthetic
from section import DATA, ROOT, Effort, Section, Shown
from show import console, machine, show

RESULTS = ROOT / ".bench" / "accuracy.json"

SECTIONS: dict[str, Section] = {
    "1d": grids.one_d,
    "2d": grids.two_d,
    "map": maps.headline,
    "crowd": crowds.crowd,
    "many": many.many,
    "sparse": sparse_error.measure,
    "marginals": marginals.measure,
    "synthetic": synthetic.measure,
    "series": series.measure,
    "predicted": predicted.measure,
    "learners": learners.measure,
}


def main() -> None:
    """Each table is shown as soon as it is known; all of it is kept."""
    options = _options()
    to = console(width=200)
    if not DATA.is_dir():
        to.print(f"The data are not here: put them into {DATA.relative_to(ROOT.parent)}, "
                 "next to the repository, as its README describes.")  # fmt: skip
        sys.exit(1)
    trials = options.trials or (3 if options.quick else 10)
    effort = Effort(
        trials=trials,
        beside=trials if options.beside is None else options.beside,
        quick=options.quick,
        say=lambda text: to.print(f"[dim]{text}", highlight=False),
    )
    to.print(f"[bold]{machine()}, {trials} trials")
    for name in options.only or SECTIONS:
        tables = []
        for table in SECTIONS[name](effort):
            show(to, *table)
            tables.append(table)
        _keep(name, trials, tables)
    to.print(f"kept in {RESULTS.relative_to(ROOT)}")


def _keep(section: str, trials: int, tables: list[Shown]) -> None:
    """Beside the sections of earlier runs."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found = {table.title: table.rows for table in tables}
    kept[section] = {"machine": machine(), "trials": trials, "tables": found}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(SECTIONS), action="append")
    parser.add_argument("--quick", action="store_true", help="3 trials of few tables")
    parser.add_argument("--trials", type=int, help="trials of what is claimed; 10 unless told")
    parser.add_argument("--beside", type=int, help="trials of our other recipes; as many")
    return parser.parse_args()


if __name__ == "__main__":
    main()
