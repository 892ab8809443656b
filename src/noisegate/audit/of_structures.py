"""Audits of partitions, trees, waves, graphs, noise by what rows allow, and minimisers."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import count, takewhile
from math import cos, exp, floor, pi
from typing import Any, Final

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.claims import claims_of
from noisegate.audit.confidence import Floats
from noisegate.audit.distinguisher import Score
from noisegate.audit.registry import at_least, each, weaker
from noisegate.mechanisms.dawa_partition import DawaPartition
from noisegate.mechanisms.fourier_cut import FourierCut
from noisegate.mechanisms.geometric import Geometric
from noisegate.mechanisms.graph_numbers import GraphNumber, LocalGraph
from noisegate.mechanisms.local_quantile import LocalQuantile
from noisegate.mechanisms.perturbed_logistic import PerturbedLogistic
from noisegate.mechanisms.privtree import PrivTree
from noisegate.mechanisms.propose import ProposeTestRelease
from noisegate.mechanisms.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.privacy.distance import L1

_FOUR_FIFTHS: Final = Fraction(4, 5)
_HALF: Final = Fraction(1, 2)
_RANGE: Final = 1 << 30
_STEP: Final = 1 << 12  # how far one step moves the number
_THREE_FIFTHS: Final = Fraction(3, 5)
_TWO_FIFTHS: Final = "two fifths too little noise"
_POINT: Final = "the density of Student's t passes e^ε at one point, and no event is a point"
_WIDE: Final[dict[str, int]] = {"low": -_RANGE, "high": _RANGE}


def _privtree() -> Audit:
    tree = PrivTree(scale=Fraction(1), decay=1, threshold=0, depth=2, shape=(4,))
    pair = tree, weaker(tree, scale=_FOUR_FIFTHS)
    cells = (1, 0, 0, 0), (0, 0, 0, 0)
    words = "1 row in the first of 4 cells, and none: every box on the path is at its steepest"
    return each(
        "privtree", pair, cells, words, width=3, moved=L1(1), trials=60_000,
        event=lambda outputs: outputs[:, :2].min(1),
    )  # fmt: skip


def _dawa() -> Audit:
    """One stretch against two: it wins if its noise reaches that of both, and 0 or 2 more.

    With ratio α of the noise, that is 1 / (1 + α)² and α² of it: all of ε. Any third way to cut
    costs a penalty of 194 more.
    """
    part = DawaPartition.for_epsilon(2, penalty=194)
    pair = part, weaker(part, scale=_FOUR_FIFTHS)
    words = "cells (0, 3, 100, 100) and (0, 2, 100, 100): the whole becomes dearer, its halves not"
    return each(
        "dawa-partition", pair, ((0, 3, 100, 100), (0, 2, 100, 100)), words, width=2, moved=L1(1),
        event=lambda outputs: (outputs == [0, -1]).all(1).astype(np.float64), trials=12_000,
    )  # fmt: skip


def _fourier() -> Audit:
    """A series whose slow waves grow with the row and whose fast waves shrink."""
    size, first, moved = 24, 7, L1(1)
    slow, fast = (
        [sum(cos(2 * pi * wave * at / size) for wave in waves) for at in range(size)]
        for waves in (range(1, first), range(first, size // 2 + 1))
    )
    base = [round(1000 * one - 20 * other) for one, other in zip(slow, fast, strict=True)]
    terms: Any = {"cuts": (1, first), "weights": (1 << 20,) * 4, "grain": 1 << 10}
    plain = FourierCut.for_epsilon(2, noises=(0, 0), **terms)
    tails, reach = plain.tails(np.array(base)), plain.reach(moved)
    later = int(tails[0] - tails[1] + Fraction(9, 5) * reach)  # so that the second is rare
    cut = FourierCut.for_epsilon(2, noises=(0, later), **terms)
    return each(
        "fourier-cut", (cut, weaker(cut, factor=Fraction(3))),
        ((base[0] + 1, *base[1:]), tuple(base)),
        "24 cells with slow and fast waves, and a row more in the first", moved=moved,
        event=at_least(first), trials=12_000, reachable=0.6,
        broken_words="two thirds too little noise",
        why="a row makes one length longer and one shorter, each by 0.6 of the bound on both",
    )  # fmt: skip


def _reaches(beta: Fraction, *, ahead: int) -> tuple[int, ...]:
    """A_0, A_1, … that grow by e^β with each step: the smooth bound is then the first of them."""
    grown = (_STEP * exp(float(beta) * (k + ahead)) for k in count())
    return tuple(floor(each) for each in takewhile(lambda each: each < 2 * _RANGE, grown))


def _smooth(name: str, noise: Any, broken: Any, **terms: Any) -> Audit:  # noqa: ANN401 - of a kind
    """A number that moves by all of its reach, while the bound on it grows by e^β."""
    cells = (0, *_reaches(noise.beta, ahead=0)), (_STEP, *_reaches(noise.beta, ahead=1))
    words = "a number and one that is a whole reach away, where reaches are e^β longer"
    return each(name, (noise, broken), cells, words, **terms)


def _left(noise: SmoothStudent, reach: int) -> Score:
    """From 0 to two widths below it: there Student's t tells most about a move by one reach."""
    least = -2 * float(noise.scale) * reach
    return lambda outputs: ((outputs[:, 0] >= least) & (outputs[:, 0] <= 0)).astype(np.float64)


def _student() -> Audit:
    noise = SmoothStudent.for_epsilon(3, beta=Fraction(1, 20), **_WIDE)
    return _smooth(
        "smooth-student", noise, weaker(noise, scale=_THREE_FIFTHS), trials=12_000,
        event=_left(noise, _STEP), reachable=0.91, why=_POINT, broken_words=_TWO_FIFTHS,
    )  # fmt: skip


def _smooth_laplace() -> Audit:
    beta = Fraction(1, 20)
    noise = SmoothLaplace(scale=1 / (2 - beta), beta=beta, epsilon=Fraction(2), **_WIDE)
    broken = replace(noise, scale=noise.scale * Fraction(7, 10), epsilon=Fraction(3))
    words = "three tenths too little noise"
    return _smooth("smooth-laplace", noise, broken, trials=16_000, broken_words=words)


def _lognormal() -> Audit:
    noise = SmoothLognormal.for_rho("0.5", beta=Fraction(1, 20), **_WIDE)
    return _smooth(
        "smooth-lognormal", noise, weaker(noise, scale=Fraction(1, 4)), trials=400,
        claims=claims_of(noise.event(1), [Fraction(1, 10)]), reachable=0.45,
        event=lambda outputs: _STEP / 2 - outputs[:, 0],
        broken_words="a quarter of the noise",
        why="ρ is a bound for all orders; at one δ the noise spends half of what follows from it",
    )  # fmt: skip


def _propose() -> Audit:
    test = ProposeTestRelease.for_budget(3, "0.01", bound=8, low=-1000, high=1000)
    pair = test, weaker(test, test_scale=_FOUR_FIFTHS, scale=_FOUR_FIFTHS)
    at, far = test.threshold, 2000
    cells = (8, *[8] * at, *[far] * 9), (0, *[8] * (at - 1), *[far] * 10)
    words = "a number of 8 as far from a larger reach as the threshold, and 0, one step nearer"
    return each("propose-test-release", pair, cells, words, width=2, trials=24_000, event=_passed)


def _passed(outputs: Floats) -> Floats:
    """The test passed, and the number is at least 8."""
    return np.asarray((outputs[:, 0] == 1) & (outputs[:, 1] >= 8), np.float64)


def _local_quantile() -> Audit:
    noise = SmoothStudent.for_epsilon(3, beta=Fraction(1, 20), **_WIDE)
    median, broken = (
        LocalQuantile(tau=_HALF, noise=each) for each in (noise, weaker(noise, scale=_THREE_FIFTHS))
    )
    values = (0,) * 300 + (_STEP,) * 300
    words = f"300 values of 0 and as many of {_STEP}, without and with one more: the median jumps"
    return each(
        "local-quantile", (median, broken), (values, (*values, _STEP)), words, trials=8_000,
        event=_left(noise, _STEP), reachable=0.95, broken_words=_TWO_FIFTHS, why=_POINT,
    )  # fmt: skip


def _graph_number() -> Audit:
    edges = GraphNumber(statistic="edges", vertices=4, noise=Geometric(scale=_HALF))
    broken = GraphNumber(statistic="edges", vertices=4, noise=Geometric(scale=_HALF * _FOUR_FIFTHS))
    words = "graphs of 2 edges and of 1"
    return each("graph-number", (edges, broken), ((1, 2), (1,)), words, event=at_least(2))


def _local_graph() -> Audit:
    vertices, shared = 10, 8
    noise = SmoothStudent.for_epsilon(3, beta=Fraction(1, 20), **_WIDE)
    honest, broken = (
        LocalGraph(statistic="triangles", vertices=vertices, noise=each)
        for each in (noise, weaker(noise, scale=_THREE_FIFTHS))
    )
    edges = tuple(side * vertices + other for side in (0, 1) for other in range(2, vertices))
    words = "two vertices that share 8 others, not joined and joined: no triangle or 8"
    return each(
        "local-graph", (honest, broken), (edges, (1, *edges)), words, trials=5_000,
        event=_left(noise, shared), reachable=0.95, broken_words=_TWO_FIFTHS, why=_POINT,
    )  # fmt: skip


def _logistic() -> Audit:
    honest = PerturbedLogistic.for_epsilon(
        4, columns=1, classes=2, reach=8, whole=1, rows=1, penalty=Fraction(1, 10)
    )
    pair = honest, weaker(honest, scale=Fraction(1, 10), blur=Fraction(1, 10))
    return each(
        "perturbed-logistic", pair, ((8, 1, 1), ()), "one row of the second class, and none",
        width=2, moved=L1(1), trials=8_000, boosted=True, reachable=0.5,
        broken_words="a tenth of the noise",
        why="a row pulls with all its weight only where it is surely misclassified",
    )  # fmt: skip


AUDITS: Final[dict[str, Callable[[], Audit]]] = {
    "privtree": _privtree,
    "dawa-partition": _dawa,
    "fourier-cut": _fourier,
    "smooth-student": _student,
    "smooth-laplace": _smooth_laplace,
    "smooth-lognormal": _lognormal,
    "propose-test-release": _propose,
    "local-quantile": _local_quantile,
    "graph-number": _graph_number,
    "local-graph": _local_graph,
    "perturbed-logistic": _logistic,
}
