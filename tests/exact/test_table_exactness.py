"""Table draws have the claimed law: the whole tree of bits, for every law, on both paths."""

from fractions import Fraction
from functools import cache, partial

import mpmath
import numpy as np
import pytest
from bit_tree import DIGITS, ScriptedBits, as_fraction, assert_masses_match, exact_masses, mp

from noisegate.exact import real
from noisegate.noise import table as table_module
from noisegate.noise.binomials import Binomial
from noisegate.noise.coins import Coin
from noisegate.noise.continuous import Gaussian, Laplace, Rounded, StudentT
from noisegate.noise.gaussian import Staircase
from noisegate.noise.geometric import Digit, Ratio, Top
from noisegate.noise.law import Certified, Law, draw_by_inversion, invert
from noisegate.noise.table import Table, Widths

SMALL = Widths(first=4, key=7, more=4)
OTHERS = [Widths(first=3, key=5, more=3), Widths(first=4, key=6, more=5)]
MAX_BITS = 27  # at most 2 open prefixes per boundary: 100 boundaries leave 200 · 2**-27 < 2**-19


def coin_mass(p, k):
    p = as_fraction(p) if isinstance(p, mpmath.mpf) else p
    return {0: 1 - p, 1: p}.get(k, Fraction(0))


def ratio_power(ratio, times):
    if ratio.coin is not None:
        return (1 - ratio.coin) ** times
    with mpmath.workdps(DIGITS):
        return as_fraction(mpmath.exp(-mp(times / ratio.scale)))


def digit_mass(ratio, unit, width, k):
    if not 0 <= k < 1 << width:
        return Fraction(0)
    total = sum(ratio_power(ratio, unit * r) for r in range(1 << width))
    return ratio_power(ratio, unit * k) / total


def top_mass(ratio, unit, signed, k):
    if not signed:
        return (1 - ratio_power(ratio, unit)) * ratio_power(ratio, unit * k) if k >= 0 else 0
    alpha, steps = ratio_power(ratio, 1), k if k >= 0 else -1 - k
    side = Fraction(1) / (1 + alpha) if k >= 0 else alpha / (1 + alpha)
    return side * (1 - ratio_power(ratio, unit)) * ratio_power(ratio, unit * steps)


@cache
def gaussian_mass(variance, k):
    with mpmath.workdps(DIGITS):
        weights = [mpmath.exp(-mp(Fraction(j * j) / (2 * variance))) for j in range(-60, 61)]
        return as_fraction(mpmath.exp(-mp(Fraction(k * k) / (2 * variance))) / sum(weights))


def binomial_mass(trials, p, k):
    if not 0 <= k <= trials:
        return Fraction(0)
    return mpmath.binomial(trials, k).__int__() * p**k * (1 - p) ** (trials - k)


def laplace_cdf(x):
    return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2


def student_cdf(degrees, x):
    half = mpmath.betainc(
        mpmath.mpf(degrees) / 2, 0.5, 0, degrees / (degrees + x * x), regularized=True
    )
    return half / 2 if x < 0 else 1 - half / 2


def rounded_mass(cdf, scale, k):
    with mpmath.workdps(DIGITS):
        low, high = ((mpmath.mpf(k) + side) / mp(scale) for side in (-0.5, 0.5))
        return as_fraction(cdf(high) - cdf(low))


def irrational(name, compute):
    return Certified((name, "test"), compute)


HALF_ROOT = irrational("1/sqrt2", lambda: 1 / real(2).sqrt())
EXP_MINUS_3 = Certified.exp_minus(Fraction(3))
with mpmath.workdps(DIGITS):
    HALF_ROOT_MP, EXP_MINUS_3_MP = 1 / mpmath.sqrt(2), mpmath.exp(-3)

SCALE_ONE, SCALE_THIRD, SCALE_FOUR = (Ratio(scale=Fraction(s)) for s in ("1", "1/3", "4"))
COIN_THIRD, COIN_QUARTER = Ratio(coin=Fraction(1, 3)), Ratio(coin=Fraction(1, 4))

LAWS: list[tuple[str, Law, object]] = [
    *[
        (f"coin {p}", Coin(p), partial(coin_mass, p))
        for p in map(
            Fraction, ("0", "1", "1/2", "1/4", "3/4", "1/3", "3/7", "1/1000", "65535/65536")
        )
    ],
    ("coin 1/√2", Coin(HALF_ROOT), partial(coin_mass, HALF_ROOT_MP)),
    ("coin e^-3", Coin(EXP_MINUS_3), partial(coin_mass, EXP_MINUS_3_MP)),
    *[
        (
            f"digit {ratio} {unit} {width}",
            Digit(ratio, unit, width),
            partial(digit_mass, ratio, unit, width),
        )
        for ratio, unit, width in [
            (SCALE_ONE, 1, 1),
            (SCALE_FOUR, 1, 3),
            (SCALE_FOUR, 4, 2),
            (COIN_THIRD, 1, 3),
            (Ratio(scale=Fraction(1 << 40)), 1, 3),
        ]
    ],
    *[
        (
            f"top {ratio} {unit} {signed}",
            Top(ratio, unit, signed),
            partial(top_mass, ratio, unit, signed),
        )
        for ratio in (SCALE_ONE, SCALE_THIRD, COIN_THIRD, COIN_QUARTER)
        for unit in (1, 2)
        for signed in (True, False)
    ],
    *[
        (f"gaussian {v}", Staircase(v), partial(gaussian_mass, v))
        for v in map(Fraction, ("1/10", "1/2", "1", "7/2"))
    ],
    *[
        (f"binomial {n} {p}", Binomial(n, p), partial(binomial_mass, n, p))
        for n, p in [(1, Fraction(1, 2)), (5, Fraction(1, 3)), (9, Fraction(7, 8))]
    ],
    *[
        (f"rounded {shape} {scale}", Rounded(shape, scale), partial(rounded_mass, cdf, scale))
        for shape, cdf in [
            (Laplace(), laplace_cdf),
            (Gaussian(), mpmath.ncdf),
            (StudentT(4), partial(student_cdf, 4)),
            (StudentT(5), partial(student_cdf, 5)),
        ]
        for scale in (Fraction(1, 2), Fraction(4, 3))
    ],
]
LAWS = [(name, law, cache(mass)) for name, law, mass in LAWS]  # asked for on both paths
NAMED = {name: (law, mass) for name, law, mass in LAWS}
HEAVY = {law for _, law, _ in LAWS if isinstance(law, Rounded) and isinstance(law.shape, StudentT)}


@pytest.fixture
def inversions(monkeypatch):
    """How often a draw was left to inversion."""
    calls = []

    def counted(*args, **kwargs):
        calls.append(args)
        return draw_by_inversion(*args, **kwargs)

    monkeypatch.setattr(table_module, "draw_by_inversion", counted)
    return calls


class Remembered(Law):
    """The same law, asking for each enclosure once: the tree asks thousands of times."""

    def __init__(self, law):
        self.start, self.support, self.cdf = law.start, law.support, cache(law.cdf)

    def cdf(self, k, bits):
        raise AssertionError("replaced per instance")


def tree_of(law, widths, *, by_cells):
    table = Table(Remembered(law), widths)
    if by_cells:
        table._fill()
    # Polynomial tails have many boundaries at every depth: a shorter tree, a wider stated rest.
    max_bits = 15 if law in HEAVY else MAX_BITS
    return exact_masses(lambda bits: int(table.sample(1, bits)[0]), max_bits=max_bits)


@pytest.mark.long
@pytest.mark.parametrize("by_cells", [False, True], ids=["search", "cells"])
@pytest.mark.parametrize(("name", "law", "true_mass"), LAWS, ids=[name for name, _, _ in LAWS])
def test_every_path_through_a_table_adds_up_to_the_law(name, law, true_mass, by_cells, inversions):
    masses, rest = tree_of(law, SMALL, by_cells=by_cells)
    assert rest <= (Fraction(1, 1 << 5) if law in HEAVY else Fraction(1, 1 << 19))
    assert_masses_match(masses, rest, true_mass)
    assert inversions, "no path reached a boundary, so ties were not exercised"


@pytest.mark.parametrize("widths", OTHERS, ids=str)
@pytest.mark.parametrize("by_cells", [False, True], ids=["search", "cells"])
@pytest.mark.parametrize("name", ["coin 3/7", "gaussian 1", "binomial 5 1/3"])
def test_the_widths_of_the_stages_do_not_change_the_law(name, widths, by_cells):
    law, true_mass = NAMED[name]
    masses, rest = tree_of(law, widths, by_cells=by_cells)
    assert rest <= Fraction(1, 1 << 17)
    assert_masses_match(masses, rest, true_mass)


class Vague(Law):
    """A law that is less sure than it could be: enclosures two units wide, now up and now down."""

    def __init__(self, law):
        self.start, self.support, self._law = law.start, law.support, law

    def cdf(self, k, bits):
        low, high = self._law.cdf(k, bits)
        if high - low == 2 or high == 0 or low == 1 << bits:
            return low, high
        if (k + bits) % 2 and high + 1 <= 1 << bits:
            return high - 1, high + 1
        return max(low - 1, 0), max(low + 1, high)


@pytest.mark.parametrize("by_cells", [False, True], ids=["search", "cells"])
@pytest.mark.parametrize(
    "name", ["coin 1/2", "coin 1/3", "coin 3/7", "coin e^-3", "gaussian 1", "binomial 5 1/3"]
)
def test_enclosures_as_wide_as_promised_are_narrow_enough(name, by_cells):
    """Only lo ≤ F ≤ hi and hi - lo ≤ 2 are promised, so only they may be relied upon."""
    law, true_mass = NAMED[name]
    masses, rest = tree_of(Vague(law), SMALL, by_cells=by_cells)
    assert rest <= Fraction(1, 1 << 18)
    assert_masses_match(masses, rest, true_mass)


@pytest.mark.parametrize("p", ["0", "1", "1/2", "1/4", "5/16"])
def test_a_coin_whose_bias_ends_in_the_key_is_settled_without_a_rest(p):
    masses, rest = tree_of(Coin(Fraction(p)), SMALL, by_cells=True)
    assert rest == 0
    assert masses[1] == Fraction(p)


@pytest.mark.parametrize(
    "law", [Coin(Fraction(2, 7)), Top(SCALE_ONE, 1, True), Staircase(Fraction(9))]
)
def test_cells_and_search_give_the_same_outcome_for_the_same_bits(law):
    searching, filled = Table(law, SMALL), Table(law, SMALL)
    filled._fill()
    for key in range(1 << SMALL.key):
        more = [5] * 12
        head, tail = divmod(key, 1 << (SMALL.key - SMALL.first))
        first, second = ScriptedBits([key, *more]), ScriptedBits([head, tail, *more])
        decided_by_cell = filled._cells[head] != np.iinfo(filled._cells.dtype).min
        if decided_by_cell:
            second = ScriptedBits([head])
        assert searching.sample(1, first)[0] == filled.sample(1, second)[0]


@pytest.mark.parametrize(
    ("name", "law", "true_mass"), LAWS[::3], ids=[name for name, _, _ in LAWS[::3]]
)
def test_inversion_answers_only_when_the_whole_interval_has_one_outcome(name, law, true_mass):
    width = 6
    for v in range(1 << width):
        outcome = invert(law, v, width)
        if outcome is None:
            continue
        deeper = {invert(law, v << 3 | low, width + 3) for low in range(8)}
        assert deeper == {outcome}


def test_the_full_size_table_decides_each_cell_as_the_law_does():
    law = Staircase(Fraction(25))
    table = Table(law)
    cells = table._fill()
    undecided = np.iinfo(cells.dtype).min
    inside = np.flatnonzero(cells != undecided)
    for cell in inside[:: max(1, inside.size // 500)]:
        k = int(cells[cell])
        assert law.cdf(k - 1, 16)[0] <= cell
        assert cell + 1 <= law.cdf(k, 16)[1]
        assert invert(law, int(cell) << 48, 64) == k
        assert invert(law, (int(cell) + 1 << 48) - 1, 64) == k


def test_a_law_whose_outcomes_outgrow_the_small_type_is_drawn_in_a_wide_one():
    law = Rounded(Laplace(), Fraction(1))
    table = Table(law)
    table._fill()
    assert table._cells.dtype == np.int16
    deep = [0, 0] + [0] * 1200 + [1 << 63]  # U below 2**-76800: far beyond the table and int16
    outcome = int(table.sample(1, ScriptedBits(deep))[0])
    with mpmath.workdps(DIGITS):
        expected = int(
            mpmath.floor(-(16 + 48 + 64 * 1200 + 1) * mpmath.log(2) + mpmath.log(2) + 0.5)
        )
    assert outcome == expected
    assert outcome < np.iinfo(np.int16).min
