"""Accuracy of releases on real data, beside published algorithms: one file for each section.

The data are not part of the repository.
"""

import argparse
import sys
from functools import partial

import crowds
import grids
import held
import learners
import many
import maps
import marginals
import predicted
import series
import sparse_error
import synthetic
from keep import Run, every
from section import DATA, HELD, ROOT, Effort, Section
from show import console, machine

SECTIONS: dict[str, Section] = {
    "held": held.measure,
    "1d": grids.one_d,
    "2d": grids.two_d,
    "map": maps.headline,
    "crowd": crowds.crowd,
    "many": many.many,
    "sparse-error": sparse_error.measure,
    "marginals": marginals.measure,
    "synthetic": synthetic.measure,
    "series": series.measure,
    "predicted": predicted.measure,
    "learners": learners.measure,
}


def main() -> None:
    """Each table is shown as soon as it is known; each section is kept by itself."""
    said = _options()
    to = console(width=200)
    if not DATA.is_dir():
        to.print(f"The data are not here: put them into {DATA.relative_to(ROOT.parent)}, "
                 "next to the repository, as its README describes.")  # fmt: skip
        sys.exit(1)
    trials = said.trials or (3 if said.quick else 10)
    effort = Effort(
        trials=trials,
        beside=trials if said.beside is None else said.beside,
        quick=said.quick,
        held=said.held,
        say=lambda text: to.print(f"[dim]{text}", highlight=False),
    )
    to.print(f"[bold]{machine()}, {trials} trials")
    words = f"{trials} trials" + ", few tables" * said.quick
    asked = f" --trials {said.trials}" * bool(said.trials) + " --quick" * said.quick
    asked += f" --held {said.held}" * (said.held != HELD)
    runs = [
        (
            Run(name, f"python bench/accuracy.py --only {name}{asked}", words, quick=said.quick),
            partial(SECTIONS[name], effort),
        )
        for name in said.only or SECTIONS
    ]
    every(runs, to, resume=said.resume)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(SECTIONS), action="append")
    parser.add_argument("--quick", action="store_true", help="3 trials of few tables")
    parser.add_argument("--resume", action="store_true", help="leave out what this commit has")
    parser.add_argument("--held", type=int, default=HELD, help="the seed of shapes not tuned on")
    parser.add_argument("--trials", type=int, help="trials of what is claimed; 10 unless told")
    parser.add_argument("--beside", type=int, help="trials of our other recipes; as many")
    return parser.parse_args()


if __name__ == "__main__":
    main()
