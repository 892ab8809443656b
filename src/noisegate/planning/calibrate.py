"""From loss to noise and from noise to error, in both directions.

Closed forms are exact. Everything else is found by bisection on a test that is itself certified in
ball arithmetic, and cut to twelve decimal digits in the safe direction, so ledgers stay readable.

>>> geometric_scale(Fraction(1, 10), sensitivity=L1(1))
Fraction(10, 1)
>>> geometric_error(Fraction(10), confidence=Fraction(95, 100))
30

`inner_rho_down` says how much Gaussian noise about a sample a price buys: whatever costs the
account no more.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, floor, log, log1p, sqrt
from statistics import NormalDist
from typing import Final, TypeAlias, TypeVar

from noisegate.accounting import tails
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.search import digits_down, digits_up, largest, least
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, Real, fraction, positive, real, upper
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import DeclaredZCDPEvent, PoissonSampled
from noisegate.privacy.loss import ApproxDP

S = TypeVar("S", L1, L2)
_TINY: Final = 1e-200  # doubles go on far below and above

# --- loss to noise


def geometric_scale(epsilon: Number, *, sensitivity: L1) -> Fraction:
    """The scale of geometric or Laplace noise that costs ε.

    Claim: scale = sensitivity/ε. Adjacency: as the sensitivity. Why: [DMNS06], [GRS09].
    Rounding: none.
    """
    return _checked(sensitivity, L1).value / positive(epsilon, name="epsilon")


def discrete_gaussian_variance(rho: Number, *, sensitivity: L2) -> Fraction:
    """The σ² of (discrete) Gaussian noise that costs ρ.

    Claim: σ² = s²/(2ρ), any dimension. Adjacency: as the sensitivity. Why: [CKS20, Thm 4].
    Rounding: none.
    """
    return _checked(sensitivity, L2).squared / (2 * positive(rho, name="rho"))


def discrete_gaussian_variance_up(budget: ApproxDP, *, sensitivity: L2) -> Fraction:
    """The σ² that makes discrete Gaussian noise on a vector (ε, δ)-private, through zCDP.

    Claim: σ² = s²/(2ρ) for the largest ρ that implies (ε, δ). Why: [CKS20, Thm 4 and Prop. 12].
    Rounding: up.
    """
    from noisegate.privacy.conversion import rho_of_budget_down  # noqa: PLC0415 - seldom

    return digits_up(_checked(sensitivity, L2).squared / (2 * rho_of_budget_down(budget)))


def discrete_gaussian_count_delta_up(epsilon: Fraction, *, variance: Fraction) -> Fraction:
    """The exact δ of discrete Gaussian noise on one integer of sensitivity 1.

    Claim: δ = Pr[Y > εσ² - ½] - e^ε Pr[Y > εσ² + ½]. Adjacency: as the sensitivity.
    Why: the ratio of the masses at z passes e^ε exactly there [CKS20, Thm 7]. Rounding: up.
    """
    first = floor(epsilon * variance - Fraction(1, 2)) + 1

    def delta() -> Real:
        near = tails.discrete_gaussian_mass_from(variance, first)
        return near - real(epsilon).exp() * tails.discrete_gaussian_mass_from(variance, first + 1)

    return max(Fraction(0), upper(delta))


def gaussian_delta_up(epsilon: Fraction, *, variance: Fraction, sensitivity: L2) -> Fraction:
    """The exact δ of continuous Gaussian noise, with s the sensitivity.

    Claim: δ = Φ(s/2σ - εσ/s) - e^ε Φ(-s/2σ - εσ/s), any dimension. Adjacency: as the sensitivity.
    Why: [BW18, Thm 8]; rounding the noisy value to a grid is post-processing. Rounding: up.
    """
    if sensitivity.squared == 0:
        return Fraction(0)
    return max(Fraction(0), upper(lambda: _gaussian_delta(epsilon, variance / sensitivity.squared)))


def gaussian_variance_up(budget: ApproxDP, *, sensitivity: L2) -> Fraction:
    """The least σ² that makes continuous (then rounded) Gaussian noise (ε, δ)-private.

    Claim: the returned σ² satisfies `gaussian_delta_up` ≤ δ. Not for the discrete Gaussian.
    Why: [BW18, Thm 8]; δ falls as σ rises. Rounding: up.
    """

    def holds(variance: Fraction) -> bool:
        found = upper(lambda: _gaussian_delta(budget.epsilon, variance), digits_bits=bits)
        return found <= budget.delta

    require_delta(budget)
    wanted = _checked(sensitivity, L2).squared
    start = discrete_gaussian_variance_up(budget, sensitivity=L2(squared=1))
    bits = 64 + ceil(1 / budget.delta).bit_length()
    return digits_up(least(holds, guess=start) * wanted)


# --- noise to error


def geometric_error(scale: Number, *, confidence: Number, cells: int = 1) -> int:
    """The smallest t with |Z| ≤ t in all ``cells`` at once with this confidence.

    Claim: Pr[all |Z| ≤ t] = (1 - 2α^{t+1}/(1 + α))^cells ≥ confidence, not so for t - 1.
    Why: closed tail, independent cells. Rounding: up to a whole number.
    """
    exact = positive(scale, name="scale")
    return _least_error(tails.geometric_tail, exact, _confidence(confidence, cells), cells)


def geometric_scale_for_error(within: Number, *, confidence: Number, cells: int = 1) -> Fraction:
    """The largest scale, hence the smallest ε, that keeps the error within ``within``."""
    whole, checked = _whole(within), _confidence(confidence, cells)
    return _largest_noise(tails.geometric_tail, whole, checked, cells, guess=Fraction(whole + 1))


def discrete_gaussian_error(variance: Number, *, confidence: Number, cells: int = 1) -> int:
    """The smallest t with |Y| ≤ t in all ``cells`` at once; at most one above it if σ > 256.

    Claim: Pr[all |Y| ≤ t] ≥ confidence. Why: certified, see `discrete_gaussian_tail`.
    """
    exact = positive(variance, name="variance")
    return _least_error(tails.discrete_gaussian_tail, exact, _confidence(confidence, cells), cells)


def order_error(reach: Number, epsilon: Number, rho: Fraction | None, *, confidence: Number) -> int:
    """The ± of a number that a unit moves by ``reach``, bought by ε: where that buys a ρ, by it."""
    moved = positive(reach, name="reach")
    if rho is None:
        return geometric_error(moved / positive(epsilon, name="epsilon"), confidence=confidence)
    return discrete_gaussian_error(moved**2 / (2 * rho), confidence=confidence)


def discrete_gaussian_variance_for_error(
    within: Number, *, confidence: Number, cells: int = 1
) -> Fraction:
    """The largest σ², hence the smallest ρ, that keeps the error within ``within``."""
    whole, checked = _whole(within), _confidence(confidence, cells)
    guess = Fraction((whole + 1) ** 2, 4)
    return _largest_noise(tails.discrete_gaussian_tail, whole, checked, cells, guess=guess)


def laplace_error(scale: Number, *, confidence: Number, cells: int = 1) -> Fraction:
    """The smallest x with |Z| ≤ x in all cells: scale · ln(1/(1 - confidence^{1/cells})).

    Rounding: up, to twelve digits. Rounding the noise to a grid adds at most half a grid step.
    """
    checked = _confidence(confidence, cells)
    return digits_up(positive(scale, name="scale") * upper(lambda: _laplace_reach(checked, cells)))


def gaussian_error(variance: Number, *, confidence: Number, cells: int = 1) -> Fraction:
    """The smallest x with |Z| ≤ x in all cells, continuous Gaussian noise. Rounding: up."""
    exact = positive(variance, name="variance")
    checked = _confidence(confidence, cells)
    return least(
        lambda x: _kept(lambda: tails.gaussian_tail(exact, x), checked, cells),
        guess=Fraction(float(exact) ** 0.5),
    )


# --- certified searches

Tail: TypeAlias = Callable[[Fraction, int], Real]


@lru_cache(maxsize=4096)
def _least_error(tail: Tail, noise: Fraction, confidence: Fraction, cells: int) -> int:
    def holds(within: int) -> bool:
        return _kept(lambda: tail(noise, within), confidence, cells)

    at, step = _about(tail, noise, confidence, cells), 1
    if holds(at):
        low, high = at - 1, at
        while low >= 0 and holds(low):
            low, high, step = max(low - step, -1), low, 2 * step
    else:
        low, high = at, at + 1
        while not holds(high):
            low, high, step = high, high + step, 2 * step
    return bisect_left(range(high), x=True, lo=low + 1, key=holds)


def _about(tail: Tail, noise: Fraction, confidence: Fraction, cells: int) -> int:
    """About the least error, in doubles: where a certified search begins, whatever it is."""
    miss = float(1 - confidence)
    each = -expm1(log1p(-miss) / cells) if miss < 1 else 1.0
    if not (_TINY < each < 1 and _TINY < noise < 1 / _TINY):
        return 1
    if tail is tails.geometric_tail:
        return int(float(noise) * log(2 / (each * (1 + exp(-1 / float(noise))))))
    return int(-NormalDist().inv_cdf(each / 2) * sqrt(noise))


@lru_cache(maxsize=4096)
def _largest_noise(
    tail: Tail, within: int, confidence: Fraction, cells: int, *, guess: Fraction
) -> Fraction:
    def holds(noise: Fraction) -> bool:
        return _kept(lambda: tail(noise, within), confidence, cells)

    return largest(holds, guess=guess)


def _kept(tail: Callable[[], Real], confidence: Fraction, cells: int) -> bool:
    """Certified: all cells stay inside their tails' complement with this confidence."""
    miss = 1 - confidence
    bits = 64 + ceil(1 / miss).bit_length()

    def missed() -> Real:
        each = tail()
        if not each < 1:
            return real(1)  # the bound says nothing here
        return each if cells == 1 else -(cells * (-each).log1p()).expm1()

    return upper(missed, digits_bits=bits) <= miss


def _gaussian_delta(epsilon: Fraction, variance: Fraction) -> Real:
    """At sensitivity 1. Φ(x) = erfc(-x/√2)/2."""
    sigma = real(variance).sqrt()
    half, shift, root = 1 / (2 * sigma), real(epsilon) * sigma, real(2).sqrt()
    near, far = ((shift - half) / root).erfc(), ((shift + half) / root).erfc()
    return (near - real(epsilon).exp() * far) / 2


def _laplace_reach(confidence: Fraction, cells: int) -> Real:
    """ln(1/q) for the q with (1 - q)^cells = confidence."""
    return -(-(real(confidence).log() / cells).expm1()).log()


def require_delta(budget: ApproxDP) -> None:
    """Refuse a budget that promises nothing."""
    if budget.delta >= 1:
        raise SpecError(
            "δ is 1, which promises nothing.", fix="Use a δ such as 1e-6.", about="delta"
        )


def _whole(within: Number) -> int:
    """Noise on integers stays within 2.7 exactly if it stays within 2."""
    exact = fraction(within, name="within")
    if exact < 0:
        raise SpecError(f"within is {within}.", fix="Use an error of at least 0.", about="within")
    return floor(exact)


def _confidence(confidence: Number, cells: int) -> Fraction:
    exact = fraction(confidence, name="confidence")
    if not 0 < exact < 1:
        raise SpecError(
            f"confidence is {confidence}.", fix="Use a confidence such as 0.95.", about="confidence"
        )
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 1:
        raise SpecError(
            f"cells is {cells!r}.", fix="Use a whole number of cells of at least 1.", about="cells"
        )
    return exact


def _checked(sensitivity: S, kind: type[S]) -> S:
    """A bare number does not say in which norm it is."""
    if isinstance(sensitivity, kind):
        return sensitivity
    how = "L1(1)" if kind is L1 else "L2(squared=1)"
    raise SpecError(
        "The sensitivity is not of the kind that this noise takes.",
        fix=f"Give {kind.__name__}, for example {how}: a bare number does not name its norm.",
        about="sensitivity",
    )


_FEW_DIGITS: Final = 6  # so few that other machines find the same
_NEAR: Final = 1e-5  # of a goal, on its logarithm


def inner_rho_down(
    epsilon: Fraction, *, probability: Fraction, accountant: str = "zcdp"
) -> Fraction | None:
    """A ρ for the sample that costs at most what ρ' = ε²/2 does about all, nearly the largest.

    None where the account has no price for it: sampled noise has whole Rényi orders only.

    Claim: its price is at most that of ρ', in the account's own measure and in ρ. Why: an order is
        to be (ε, δ)-private by itself, which ρ' implies; the order of a Rényi account alone does
        not imply it.
    """
    goal = epsilon**2 / 2
    payers = [accountant_named(each) for each in {accountant, "zcdp"}]

    def past(rho: Fraction) -> float:
        """The logarithm of its price in parts of the goal; below 0 where it keeps the goal."""
        step = PoissonSampled(event=DeclaredZCDPEvent(rho=rho), probability=probability)
        return max(_past(payer.loss(step)[0], payer.loss(whole)[0]) for payer in payers)

    whole = DeclaredZCDPEvent(rho=goal)
    high = digits_down(Fraction(math.log1p(2 * goal / probability**2) / 2), _FEW_DIGITS)
    try:
        return _largest_rho(past, goal, max(goal, high))
    except Unsupported:
        return None


def _past(found: Fraction, most: Fraction) -> float:
    if not found:  # rounded to nothing
        return -1.0
    return math.log(found / most) if found > most else min(math.log(found / most), -1e-12)


def _largest_rho(past: Callable[[Fraction], float], low: Fraction, high: Fraction) -> Fraction:
    """The largest number that was tried and is not past 0: false position, on logarithms."""
    below, above, kept = past(low), past(high), 0
    while below < -_NEAR and above > 0:
        part = below / (below - above)
        middle = digits_down(Fraction(float(low) * float(high / low) ** part), _FEW_DIGITS)
        if not low < middle < high:
            break
        found = past(middle)
        if found < 0:  # an end that stays twice counts half
            low, below, above, kept = middle, found, above / (1 + (kept < 0)), -1
        else:
            high, above, below, kept = middle, found, below / (1 + (kept > 0)), 1
    return high if above < 0 else low
