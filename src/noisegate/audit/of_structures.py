"""Audits of partitions, trees, waves, graphs, noise by what rows allow, and minimisers."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import count, takewhile
from math import cos, exp, floor, log, pi
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from noisegate.accounting.zcdp import zcdp_loss
from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats, claims_of, zcdp_claims
from noisegate.audit.draws import AtLeast, Pair, Repeats, best_region, each, many, weaker
from noisegate.frozen import replace
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.objective.perturbed_logistic import PerturbedLogistic
from noisegate.mechanisms.partitions.dawa_partition import DawaPartition
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.smooth.barred import Barred
from noisegate.mechanisms.smooth.estimators import LocalHuber, LocalTrimmedMean
from noisegate.mechanisms.smooth.graph_numbers import GraphNumber, LocalGraph, WeightedCut
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.privacy.distance import L1

_FOUR_FIFTHS: Final = Fraction(4, 5)
_HALF: Final = Fraction(1, 2)
_RANGE: Final = 1 << 30
_STEP: Final = 1 << 12  # how far one step moves the number
_FAR: Final = 1 << 20
_RUNS: Final = 400_000
_POINT: Final = "the density of Student's t passes e^ε at one point, and no event is a point"
_WIDE: Final[dict[str, int]] = {"low": -_RANGE, "high": _RANGE}


def _privtree() -> Audit:
    tree = PrivTree(scale=Fraction(1), decay=1, threshold=0, depth=2, shape=(4,))
    cells = (1, 0, 0, 0), (0, 0, 0, 0)
    words = "1 row in the first of 4 cells, and none: every box on the path is at its steepest"
    return each(
        "privtree", tree, cells, words, width=3, moved=L1(1), trials=60_000,
        event=lambda outputs: outputs[:, :2].min(1),
    )  # fmt: skip


def _dawa() -> Audit:
    """One stretch against two: it wins if its noise reaches that of both, and 0 or 2 more.

    With ratio α of the noise, that is 1 / (1 + α)² and α² of it: all of ε. Any third way to cut
    costs a penalty of 194 more.
    """
    part = DawaPartition.for_epsilon(2, penalty=194)
    words = "cells (0, 3, 100, 100) and (0, 2, 100, 100): the whole becomes dearer, its halves not"
    return each(
        "dawa-partition", part, ((0, 3, 100, 100), (0, 2, 100, 100)), words, width=2, moved=L1(1),
        event=lambda outputs: (outputs == [0, -1]).all(1).astype(np.float64), trials=12_000,
    )  # fmt: skip


def _fourier() -> Audit:
    """A series whose slow waves grow with the row and whose fast waves shrink."""
    size, first, moved = 31, 8, L1(1)  # octaves are full: 1, 2-3, 4-7 are slow, 8-15 fast
    slow, fast = (
        [sum(cos(2 * pi * wave * at / size) for wave in waves) for at in range(size)]
        for waves in (range(1, first), range(first, size // 2 + 1))
    )
    base = [round(10_000 * one - 40 * other) for one, other in zip(slow, fast, strict=True)]
    terms: Any = {"cuts": (1, first), "weights": (1 << 20,) * 4, "grain": 1 << 10}
    plain = FourierCut.for_epsilon(2, noises=(0, 0), **terms)
    one, other = (int(tail) for tail in plain.tails(np.array(base)))
    later = one - other + int(4 / plain.factor)  # the second has odds of e^-4 without the row
    cut = FourierCut.for_epsilon(2, noises=(0, later), **terms)
    return many(
        "fourier-cut", cut,
        ((base[0] + 1, *base[1:]), tuple(base)),
        "31 cells with slow and fast waves, and a row more in the first", moved=moved,
        kind=Repeats, event=AtLeast(first), reachable=_of_two(-4.0, 2.0),
        why="the rarer of two cuts has odds of e^-4 to e^-2 and takes a share of them itself",
    )  # fmt: skip


def _of_two(odds: float, ratio: float) -> float:
    """The share of a log-ratio of odds that is left between probabilities of one of two."""
    return 1 + log((1 + exp(odds)) / (1 + exp(odds + ratio))) / ratio


def _reaches(beta: Fraction, *, ahead: int) -> tuple[int, ...]:
    """A_0, A_1, … that grow by e^β with each step: the smooth bound is then the first of them."""
    grown = (_STEP * exp(float(beta) * (k + ahead)) for k in count())
    return tuple(floor(each) for each in takewhile(lambda each: each < 2 * _RANGE, grown))


def _smooth(name: str, noise: Any, broken: Any, **terms: Any) -> Audit:  # noqa: ANN401 - of a kind
    """A number that moves by all of its reach, while the bound on it grows by e^β.

    The event is for the wider noise: it is likelier far out, on the side of its own number.
    """
    rows = (_STEP, *_reaches(noise.beta, ahead=1)), (0, *_reaches(noise.beta, ahead=0))
    words = "a number whose reaches are e^β longer, and one that is a whole reach of its own away"
    return _local(name, (noise, broken), rows, words, **terms)


def _local(name: str, pair: Any, rows: Pair, words: str, **terms: Any) -> Audit:  # noqa: ANN401
    """Smooth noise for two rows, and the event that tells most of them by its exact law."""
    claims = terms.pop("claims", None) or claims_of(pair[0].event(1))
    event, share = best_region(pair, rows, claims, trials=_RUNS)
    return many(
        name, pair, rows, words, kind=Repeats, claims=claims, event=event, trials=_RUNS,
        reachable=share, **{"why": _POINT} | terms,
    )  # fmt: skip


def _student() -> Audit:
    noise = SmoothStudent.for_epsilon(2, **_WIDE)
    return _smooth("smooth-student", noise, weaker(noise))


def _smooth_laplace() -> Audit:
    beta = Fraction(1, 20)
    noise = SmoothLaplace(scale=1 / (2 - beta), beta=beta, epsilon=Fraction(2), **_WIDE)
    broken = replace(noise, scale=noise.scale * _FOUR_FIFTHS, epsilon=Fraction(3))
    words = "the tail beyond which the ratio passes e^ε is for the δ; the event is the middle"
    return _smooth("smooth-laplace", noise, broken, why=words)


def _lognormal() -> Audit:
    """At a ρ where the move is nearly all of it, and where one order, near 1, is what matters."""
    noise = SmoothLognormal.for_rho("0.08", beta=Fraction(1, 5000), **_WIDE)
    return _smooth(
        "smooth-lognormal", noise, replace(noise, scale=noise.scale * _FOUR_FIFTHS),
        claims=zcdp_claims(zcdp_loss(noise.event(1)).rho, (0.05, 0.4)),
        why="ρ bounds all orders at once, and an event spends it at one of them",
    )  # fmt: skip


def _propose() -> Audit:
    test = ProposeTestRelease.for_budget(3, "0.01", bound=8, low=-1000, high=1000)
    at, far = test.threshold, 2000
    cells = (8, *[8] * at, *[far] * 9), (0, *[8] * (at - 1), *[far] * 10)
    words = "a number of 8 as far from a larger reach as the threshold, and 0, one step nearer"
    return many("propose-test-release", test, cells, words, kind=Repeats, event=_passed)


def _barred() -> Audit:
    """Both draws at once: a level that the wider noise reaches, and a number in its best region.

    Where reaches grow by e^β, the level is just 16 higher, and all levels from there on have the
    ratio e^(16/bar).
    """
    noise = SmoothStudent.for_epsilon(1, **_WIDE)
    pair = Barred(noise=noise, bar=Fraction(16)), Barred(noise=weaker(noise), bar=Fraction(64, 5))
    rows = (_STEP, *_reaches(noise.beta, ahead=1)), (0, *_reaches(noise.beta, ahead=0))
    own = claims_of(noise.event(1))
    region, share = best_region((noise, weaker(noise)), rows, own, trials=_RUNS)
    level = pair[0].level(list(rows[0][1:]))

    def both(outputs: Floats) -> Floats:
        return np.asarray((outputs[:, 0] >= level) * region(outputs[:, 1:]), np.float64)

    (epsilon,), (whole,) = own.values(), claims_of(pair[0].event(1)).values()
    return many(
        "barred-smooth", pair, rows, "a number whose reaches are e^β longer, and one a reach away",
        kind=Repeats, event=both, trials=_RUNS, why=_POINT,
        reachable=(share * epsilon + whole - epsilon) / whole,
    )  # fmt: skip


def _passed(outputs: Floats) -> Floats:
    """The test passed, and the number is at least 8."""
    return np.asarray((outputs[:, 0] == 1) & (outputs[:, 1] >= 8), np.float64)


def _handed(name: str, pair: Any, cells: Pair, words: str) -> Audit:  # noqa: ANN401 - of a kind
    """A statistic that hands its number and its reaches to smooth noise."""
    rows = tuple(tuple(pair[0].handed(np.array(each)).tolist()) for each in cells)
    return _local(name, (pair[0].noise, pair[1].noise), rows, words)  # type: ignore[arg-type]


def _local_quantile() -> Audit:
    """The median jumps over a gap S; and a larger one comes nearer, so that the bound grows by e^β.

    With k values of S the larger gap W is k + 1 steps away from 0, and k from S. With
    W = S (e^(βk) - 1) it does not count there, and here it makes the bound e^β (1 - e^(-βk)) S.
    """
    noise = SmoothStudent.for_epsilon(2, low=0, high=_RANGE)
    near = 12
    far = _STEP + floor(_STEP * (exp(float(noise.beta) * near) - 1))
    values = (0,) * 60 + (_STEP,) * near + (far,) * (60 - near)
    pair = [LocalQuantile(tau=_HALF, noise=each) for each in (noise, weaker(noise))]
    words = f"60 values of 0, {near} of {_STEP}, {60 - near} of {far}, with and without one more"
    return _handed("local-quantile", pair, ((*values, far), values), words)


def _local_trimmed_mean() -> Audit:
    """The 803rd value is cut away as the 804th comes, and with it the one of the middle that is S.

    With β small the move is nearly all of ε: S / 403, where the bound is S / 402.
    """
    noise = _steady()
    pair = [LocalTrimmedMean(trim=_HALF / 2, noise=each) for each in (noise, weaker(noise))]
    values = (0,) * 602 + (_FAR,) * 201
    words = f"602 values of 0 and 201 of {_FAR}, with and without one more of 0"
    return _handed("local-trimmed-mean", pair, (values, (*values, 0)), words)


def _local_huber() -> Audit:
    """Values at both sides of a gap: one more on the right moves the balance across it."""
    noise = _steady()
    pair = [LocalHuber(clip=1, noise=each) for each in (noise, weaker(noise))]
    values = (0,) * 400 + (_FAR,) * 400
    words = f"400 values of 0 and 400 of {_FAR}, with and without one more of {_FAR}"
    return _handed("local-huber", pair, ((*values, _FAR), values), words)


def _steady() -> SmoothStudent:
    return SmoothStudent.for_epsilon(2, beta=Fraction(1, 50), low=0, high=4 * _FAR)


def _graph_number() -> Audit:
    edges = GraphNumber(statistic="edges", vertices=4, noise=Geometric(scale=_HALF))
    broken = GraphNumber(statistic="edges", vertices=4, noise=Geometric(scale=_HALF * _FOUR_FIFTHS))
    words = "graphs of 2 edges and of 1"
    return each("graph-number", (edges, broken), ((1, 2), (1,)), words, event=AtLeast(2))


def _weighted_cut() -> Audit:
    """A path of three vertices: its lighter edge comes or goes, and with it the whole cut."""
    pair = [
        WeightedCut(vertices=3, levels=4, base=0, noise=Geometric(scale=3 * _HALF * share))
        for share in (Fraction(1), _FOUR_FIFTHS)
    ]
    first, second = (0 * 3 + 1) * 4 + 3, (1 * 3 + 2) * 4 + 3
    words = "two edges of weight 3, the largest, and one of them"
    cells = (first, second), (first,)
    return each("weighted-cut", (pair[0], pair[1]), cells, words, event=AtLeast(3))


def _local_graph() -> Audit:
    vertices = 10
    noise = SmoothStudent.for_epsilon(2, beta=Fraction(1, 8), **_WIDE)
    pair = [
        LocalGraph(statistic="triangles", vertices=vertices, noise=each)
        for each in (noise, weaker(noise))
    ]
    edges = tuple(side * vertices + other for side in (0, 1) for other in range(2, vertices))
    words = "two vertices that share 8 others, joined and not joined: 8 triangles or none"
    return _handed("local-graph", pair, ((1, *edges), edges), words)


def _logistic() -> Audit:
    """A row of the second class among many of the first: it is misclassified whatever the slope."""
    others = 160
    honest = PerturbedLogistic.for_epsilon(
        3, columns=1, classes=2, reach=8, whole=1, rows=1, penalty=Fraction(5)
    )
    base = (8, 0, 1) * others
    at = brentq(lambda t: others * expit(2 * t) + float(honest.penalty) * t, -9, 0)
    return each(
        "perturbed-logistic", honest, ((*base, 8, 1, 1), base),
        f"{others} rows of the first class, with and without one of the second at the same place",
        width=2, moved=L1(1), trials=60_000, event=partial(_pulled, honest, others),
        reachable=float((1 - expit(2 * at)) / honest.scale) / 3,
        why="curvature and grid have shares of ε, and the row pulls with 0.95 of its weight",
    )  # fmt: skip


def _pulled(noise: PerturbedLogistic, others: int, outputs: Floats) -> Floats:
    """The log-ratio of the densities of the minimiser, with the row and without, is at least 2.4.

    Why: see `PerturbedLogistic.event`; each row is at (1, 1), so a slope and a curvature are one
    number times (1, 1), and a determinant is λ (λ + 2 · curvature).
    """
    weights = outputs / 2.0**noise.digits
    share, penalty = expit(weights.sum(axis=1)), float(noise.penalty)
    without = -(others * share)[:, None] - penalty * weights
    shorter = np.abs(without).max(axis=1) - np.abs(without + (1 - share)[:, None]).max(axis=1)
    bent = 2 * share * (1 - share)
    more = np.log1p(bent / (penalty + others * bent))
    found: Floats = shorter / float(noise.scale) + more - 2.4
    return found


AUDITS: Final[dict[str, Callable[[], Audit]]] = {
    "privtree": _privtree,
    "dawa-partition": _dawa,
    "fourier-cut": _fourier,
    "smooth-student": _student,
    "smooth-laplace": _smooth_laplace,
    "smooth-lognormal": _lognormal,
    "propose-test-release": _propose,
    "barred-smooth": _barred,
    "local-quantile": _local_quantile,
    "local-trimmed-mean": _local_trimmed_mean,
    "local-huber": _local_huber,
    "graph-number": _graph_number,
    "weighted-cut": _weighted_cut,
    "local-graph": _local_graph,
    "perturbed-logistic": _logistic,
}
