"""The ± of found caps on hundreds of made-up tables, without SQL: seconds for a shape.

A table is a law of rows per unit with parameters drawn from a seed, and a number of units. Each
draw is a look with its real noise, the cap that is chosen by it, the bounded count with its noise,
and the ± of the estimate, by the functions that answers are made with. Shapes are split by their
seed: constants are chosen on even seeds, and odd ones (``--held``) are reported.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from math import log, sqrt
from pathlib import Path
from statistics import NormalDist, mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisegate.sql.bounds.sized import share_of
from noisegate.sql.estimates.profiles import PART, PARTS, STEPS, Profile

Rows = NDArray[Any]
Law = Callable[[np.random.Generator, int], Rows]
SURE = Fraction(95, 100)
CAPS = 2.0 ** np.arange(0, 14)
UNITS = (300, 1_000, 3_000, 10_000, 40_000, 200_000)
EPSILONS = (0.05, 0.1, 0.3, 1.0, 3.0)


def whole(sizes: Rows) -> Rows:
    """Rows are counted."""
    return np.maximum(1, np.floor(np.minimum(sizes, 1e5))).astype(np.int64)


def pareto(rng: np.random.Generator) -> Law:
    index = rng.uniform(1.2, 3.5)
    return lambda r, n: whole(1 + r.pareto(index, n))


def lognormal(rng: np.random.Generator) -> Law:
    middle, spread = rng.uniform(0, 3), rng.uniform(0.5, 2)
    return lambda r, n: whole(r.lognormal(middle, spread, n))


def zipf(rng: np.random.Generator) -> Law:
    index = rng.uniform(1.4, 3)
    return lambda r, n: np.minimum(r.zipf(index, n), 20_000)


def cut(rng: np.random.Generator) -> Law:
    """Sizes with a limit: none is larger, and nobody is at it."""
    index, limit = rng.uniform(1.2, 2.5), round(float(np.exp(rng.uniform(2, 6.5))))

    def rows(r: np.random.Generator, n: int) -> Rows:
        made = r.zipf(index, 4 * n)
        made = made[made <= limit]
        return np.resize(made, n)

    return rows


def coded(rng: np.random.Generator) -> Law:
    """The same where whoever has more is at the limit."""
    index, limit = rng.uniform(1.3, 2.5), round(float(np.exp(rng.uniform(1.5, 6.5))))
    if rng.random() < 0.5:
        return lambda r, n: np.minimum(r.zipf(index, n), limit)
    middle = rng.uniform(0.5, 1) * log(limit)
    return lambda r, n: np.minimum(whole(r.lognormal(middle, 1.2, n)), limit)


def geometric(rng: np.random.Generator) -> Law:
    average, shape = float(np.exp(rng.uniform(0.5, 4))), rng.choice([0.4, 1, 3])
    return lambda r, n: 1 + r.negative_binomial(shape, shape / (shape + average), n)


def weibull(rng: np.random.Generator) -> Law:
    shape, scale = rng.uniform(0.35, 2), float(np.exp(rng.uniform(0.5, 3.5)))
    return lambda r, n: whole(scale * r.weibull(shape, n))


def double_pareto(rng: np.random.Generator) -> Law:
    up, down, middle = rng.uniform(1.3, 3), rng.uniform(0.5, 3), rng.uniform(0.5, 3)

    def rows(r: np.random.Generator, n: int) -> Rows:
        return whole(np.exp(middle + r.exponential(1 / up, n) - r.exponential(1 / down, n)))

    return rows


def humps(rng: np.random.Generator) -> Law:
    usual, large = float(np.exp(rng.uniform(0, 2.5))), float(np.exp(rng.uniform(2.5, 5.5)))
    share = float(np.exp(rng.uniform(log(0.002), log(0.4))))

    def rows(r: np.random.Generator, n: int) -> Rows:
        return 1 + np.where(r.random(n) < share, r.poisson(large, n), r.poisson(usual, n))

    return rows


def equal(rng: np.random.Generator) -> Law:
    size = round(float(np.exp(rng.uniform(0, 5))))
    return lambda _, n: np.full(n, size)


def giants(rng: np.random.Generator) -> Law:
    """One to five units with a hundred times what others have."""
    count, average = rng.integers(1, 6), rng.uniform(2, 20)

    def rows(r: np.random.Generator, n: int) -> Rows:
        made = r.geometric(1 / average, n)
        made[:count] = round(100 * average)
        return made

    return rows


def lomax(rng: np.random.Generator) -> Law:
    """Smooth near 0, and a power law far out."""
    index, scale = rng.uniform(1.5, 2.5), float(np.exp(rng.uniform(0.5, 3.5)))
    return lambda r, n: whole(1 + scale * r.pareto(index, n))


def heavy(rng: np.random.Generator) -> Law:
    """A small share has many times the rows of the rest."""
    share, times = float(np.exp(rng.uniform(log(0.001), log(0.02)))), rng.uniform(20, 150)
    inner = FAMILIES[rng.choice(["geometric", "lognormal", "poisson"])](rng)

    def rows(r: np.random.Generator, n: int) -> Rows:
        made = inner(r, n)
        return np.where(r.random(n) < share, np.minimum(times * made, 1e5), made).astype(np.int64)

    return rows


def poisson(rng: np.random.Generator) -> Law:
    average = float(np.exp(rng.uniform(-0.5, 4)))
    return lambda r, n: 1 + r.poisson(average, n)


def sparse(rng: np.random.Generator) -> Law:
    """Most have a row or none of what is asked, some have many: a narrow WHERE."""
    inner, share = (
        FAMILIES[rng.choice(["pareto", "lognormal", "weibull"])](rng),
        rng.uniform(0.03, 0.5),
    )

    def rows(r: np.random.Generator, n: int) -> Rows:
        found = np.where(r.random(n) < share, inner(r, n), r.random(n) < 0.3)
        return found[found > 0].astype(np.int64)

    return rows


def thinned(rng: np.random.Generator) -> Law:
    """A condition that few units have most of their rows in, of sizes with a limit."""
    inner = FAMILIES[rng.choice(["pareto", "zipf", "lognormal", "coded"])](rng)
    many, part = rng.uniform(0.3, 1), rng.uniform(0.02, 0.15)
    few, limit = np.exp(rng.uniform(log(0.01), log(0.1))), round(np.exp(rng.uniform(5, 8.5)))

    def rows(r: np.random.Generator, n: int) -> Rows:
        made = np.minimum(inner(r, n), limit)
        left = r.binomial(made, np.where(r.random(n) < part, many, few))
        return left[left > 0]

    return rows


FAMILIES: dict[str, Callable[[np.random.Generator], Law]] = {
    "pareto": pareto, "lognormal": lognormal, "zipf": zipf, "cut": cut, "coded": coded,
    "geometric": geometric, "weibull": weibull, "double": double_pareto, "humps": humps,
    "equal": equal, "giants": giants, "poisson": poisson, "lomax": lomax, "heavy": heavy,
    "sparse": sparse,
    "thinned": thinned,
}  # fmt: skip
FILTERED = ("sparse", "thinned")
EXTRA: dict[str, Law] = {
    "pareto22": lambda r, n: whole(1 + r.pareto(2.2, n)),
    "zipf18cut400": lambda r, n: np.minimum(r.zipf(1.8, n), 400),
}


@dataclass(frozen=True)
class Cell:
    """One table and price."""

    family: str
    seed: int
    units: int
    epsilon: float
    way: str  # rows, sums or rho

    def sizes(self) -> Rows:
        rng = np.random.default_rng([self.seed, *self.family.encode()])
        law = EXTRA[self.family] if self.family in EXTRA else FAMILIES[self.family](rng)
        made = law(rng, self.units)
        if self.way != "sums":
            return made
        # each row adds a part of what one may add at most
        return made * rng.uniform(0.02, 0.5) * np.exp(rng.normal(0, 0.5, made.size))


def cells_of(
    seeds: range, families: list[str], ways: list[str], epsilons: list[float]
) -> list[Cell]:
    """One table for each family and seed, at two prices."""
    found = []
    for family in families:
        for seed in seeds:
            rng = np.random.default_rng([seed, 7, *family.encode()])
            units = int(rng.choice(UNITS))
            asked = epsilons or rng.choice(EPSILONS, 2, replace=False).tolist()
            found += [Cell(family, seed, units, each, str(rng.choice(ways))) for each in asked]
    return found


def looked(
    sizes: Rows, scale: float, way: str, rng: np.random.Generator, *, filtered: bool
) -> Profile:
    """A look: its noise is two-sided geometric."""
    part = PART if way == "sums" else Fraction(1)
    bins = np.array(PARTS if way == "sums" else STEPS) * float(part)
    exact = np.bincount(
        np.minimum(np.searchsorted(bins, sizes), bins.size - 1), minlength=bins.size
    )
    stop = -np.expm1(-1 / scale)
    noise = rng.geometric(stop, bins.size) - rng.geometric(stop, bins.size)
    units = tuple((exact + noise).tolist())
    return Profile(table="t", units=units, scale=scale, part=part, filtered=filtered)


def prices(cell: Cell) -> tuple[float, float]:
    """The ε of the look, and what is left."""
    step = cell.epsilon
    if cell.way == "rho":  # (ε, 1e-6): √(2ρ)
        step = sqrt(2) * (sqrt(log(1e6) + step) - sqrt(log(1e6)))
    look = step * float(share_of(Fraction(step), two=False, ratios=False))
    return look, sqrt(step**2 - look**2) if cell.way == "rho" else step - look


def run(cell: Cell, draws: int, seed: int) -> dict[str, Any] | None:
    sizes = cell.sizes()
    rng = np.random.default_rng([seed, cell.seed, 99])
    look, rest = prices(cell)
    true = float(sizes.sum())
    gaussian = cell.way == "rho"
    wide = NormalDist().inv_cdf(0.975) if gaussian else log(20)
    off, bars, noises, caps, below = [], [], [], [], []
    for _ in range(draws):
        filtered = cell.family in FILTERED
        profile = looked(sizes, 1 / look, cell.way, rng, filtered=filtered)
        if profile.is_blind:
            continue  # such answers have no upper end
        cap = float(profile.best_part(rest) if cell.way == "sums" else profile.best(rest))
        noise = cap / rest
        kept = np.minimum(sizes, cap).sum() + (rng.normal if gaussian else rng.laplace)(0, noise)
        # as `losses.told` and `losses.raised` do it with all rows
        about = profile.loss(Fraction(cap)).lost
        loss = profile.wide.loss(cap).given(kept, wide * noise / log(20), about=about)
        near = min(max(abs(kept), loss.kept / 2), loss.kept * 2)
        factor = 1 + loss.lost / near
        (bar,) = loss.off(np.array([abs(kept) / near]), SURE, noise=np.array([wide * noise]))
        off.append(abs(kept * factor - true))
        below.append(float(true - kept * factor > bar))
        bars.append(float(bar))
        noises.append(wide * noise)
        caps.append(cap)
    if not off:
        return None
    step = sqrt(look**2 + rest**2) if gaussian else look + rest
    best = hindsight(sizes, true, step, gaussian=gaussian)
    return {
        "family": cell.family, "seed": cell.seed, "units": cell.units, "epsilon": cell.epsilon,
        "way": cell.way, "inside": mean(float(o <= b) for o, b in zip(off, bars, strict=True)),
        "error": median(off) / true, "width": median(bars) / max(mean(off), 1e-12),
        "bar": median(bars) / true, "times_best": median(off) / best,
        "cap": median(caps), "cap_high": sorted(caps)[int(0.9 * len(caps))],
        "blind": 1 - len(off) / draws, "below": mean(below),
        "largest": float(sizes.max()), "noise": median(noises) / true,
    }  # fmt: skip


def hindsight(sizes: Rows, true: float, step: float, *, gaussian: bool) -> float:
    """The median error of the best fixed cap."""
    unit = np.linspace(0.005, 0.995, 100)
    if gaussian:
        from scipy.special import ndtri  # noqa: PLC0415

        noise = ndtri(unit)
    else:
        noise = np.sign(unit - 0.5) * -np.log(1 - np.abs(2 * unit - 1))
    caps = np.concatenate([1 / CAPS[:0:-1], CAPS]) if sizes.min() < 1 else CAPS
    return min(
        float(np.median(np.abs(np.minimum(sizes, cap).sum() - true + noise * cap / step)))
        for cap in caps
    )


HEAD = ("n", "inside", "below", "<.8", "±/err", "×best", "±", "±/noise", "cap/max", ">3max")


def summary(rows: list[dict[str, Any]], key: str) -> None:
    """A line for each value of a key, and one for all: means of coverage, medians of the rest."""
    print(f"{key:>12}", *(f"{name:>8}" for name in HEAD))
    for group in [*sorted({row[key] for row in rows}), None]:
        mine = [row for row in rows if group is None or row[key] == group]
        inside = [row["inside"] for row in mine]
        middle = [
            median(row[name] / row.get(of, 1) for row in mine)
            for name, of in (("width", ""), ("times_best", ""), ("bar", ""), ("bar", "noise"),
                             ("cap", "largest"))
        ]  # fmt: skip
        far = sum(row["cap_high"] > 3 * row["largest"] for row in mine)
        shown = [
            f"{len(mine):8d}",
            f"{mean(inside):8.3f}",
            f"{mean(row['below'] for row in mine):8.3f}",
        ]
        shown += [f"{sum(each < 0.8 for each in inside):8d}", *(f"{each:8.3g}" for each in middle)]
        print(f"{'all' if group is None else group!s:>12}", *shown, f"{far:8d}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=[0, 6])
    parser.add_argument("--held", action="store_true", help="odd seeds, which nothing is tuned on")
    parser.add_argument("--family", nargs="+", default=list(FAMILIES))
    parser.add_argument("--way", nargs="+", default=["rows", "rows", "sums", "rho"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[])
    parser.add_argument("--units", type=int)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--worst", type=int, default=12)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    first, last = options.seeds
    seeds = range(2 * first + options.held, 2 * last, 2)
    cells = cells_of(seeds, options.family, options.way, options.epsilon)
    if options.units:
        cells = [Cell(c.family, c.seed, options.units, c.epsilon, c.way) for c in cells]
    with ProcessPoolExecutor(options.processes) as pool:
        found = pool.map(run, cells, [options.draws] * len(cells), [1] * len(cells))
        rows = [row for row in found if row is not None]
    for key in ("family", "epsilon", "units", "way"):
        summary(rows, key)
    for row in sorted(rows, key=lambda r: r["inside"])[: options.worst]:
        print({k: (round(v, 3) if isinstance(v, float) else v) for k, v in row.items()})
    if options.keep:
        options.keep.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
