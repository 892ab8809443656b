"""Secrecy of the sample: a step on a random part of the data loses less.

Each theorem belongs to one way of sampling and one adjacency; they are not interchangeable. In all
of them the sample must stay secret and be drawn with exact coins.

>>> float(round(poisson(ApproxDP(1), probability=Fraction(1, 100)).epsilon, 7))
0.0170369
"""

from fractions import Fraction
from typing import Final

from noisegate.accounting.sampled import sampled_rho_up
from noisegate.accounting.search import digits_up
from noisegate.errors import SpecError
from noisegate.exact import lower, real, upper
from noisegate.privacy.conversion import approx_of_zcdp, zcdp_of_approx
from noisegate.privacy.loss import ZCDP, ApproxDP

SAMPLED_DELTA: Final = Fraction(1, 10**10)  # what Gaussian noise about a sample is charged, of all
_DELTA_MAX: Final = Fraction(1, 2)  # of those in a sample
_DIGITS: Final = 6  # of an ε found in floats: so few that other machines charge the same
_RHO_MAX: Final = Fraction(10)  # of steps whose curve is looked at


def poisson(loss: ApproxDP, *, probability: Fraction) -> ApproxDP:
    """Each unit is in the sample independently with ``probability``.

    Claim: (ε, δ) on the sample is (ln(1 + p (e^ε - 1)), pδ) on the whole.
    Adjacency: add/remove, for the step and for the result.
    Why: [LQS12], [BBG18, Thm 8]; with P = (1 - p) Q + p P₁ and P₁ ≤ e^ε Q + δ the one
        direction is immediate, the other follows as 1/(1 - p + p e^-ε) ≤ 1 - p + p e^ε.
    Rounding: up.
    """
    return _amplified(loss, _checked(probability))


def poisson_zcdp(loss: ZCDP, *, probability: Fraction) -> ZCDP:
    """The same for steps that have a ρ, as Gaussian noise.

    Claim: ρ-zCDP on the sample is δ-approximate ρ'-zCDP on the whole, δ = `SAMPLED_DELTA`, for the
        ρ' of `sampled_rho_up`; or what `poisson_zcdp_of_approx` says, if that is less.
    Adjacency: add/remove, for the step and for the result. Rounding: up, ρ' to six digits.
    """
    found = poisson_zcdp_of_approx(loss, probability=probability)
    if loss.delta == 0 and 0 < loss.rho < _RHO_MAX and probability < 1:
        rho = sampled_rho_up(loss.rho, probability=probability, delta=SAMPLED_DELTA)
        found = min(found, ZCDP(rho, SAMPLED_DELTA), key=lambda each: each.rho)
    return found


def poisson_zcdp_of_approx(loss: ZCDP, *, probability: Fraction) -> ZCDP:
    """The same through (ε, δ), which was the only way before.

    Claim: δ₀-approximate ρ-zCDP on the sample is (δ + p δ₀)-approximate (ε'²/2)-zCDP on the whole,
        δ = `SAMPLED_DELTA`, ε' = ln(1 + p (e^ε - 1)), where ρ implies (ε, δ/p); or it is what it
        was, if that is less.
    Adjacency: add/remove, for the step and for the result.
    Why: `approx_of_zcdp`, `poisson`, `zcdp_of_approx`, one after the other. It never loses more
        than without a sample: given the others' coins the law with the unit is (1 - p) Q + p P,
        and Rényi divergences are quasi-convex, D_a((1 - p) Q + p P ‖ Q) ≤ D_a(P ‖ Q), likewise the
        other way, and over the others' coins; good parts mix as the laws do [EH14]. No ρ' = p² ρ
        holds at all orders: far out, the ratio of a sample's laws is p times that of P and Q.
    Rounding: up, ε' to six digits or seven.
    """
    share = _checked(probability)
    inside = approx_of_zcdp(loss, delta=min(SAMPLED_DELTA / share, _DELTA_MAX))
    outside = _amplified(inside, share)
    found = zcdp_of_approx(ApproxDP(digits_up(outside.epsilon, _DIGITS), outside.delta))
    return found if found.rho < loss.rho else loss


def fixed_size(loss: ApproxDP, *, sample: int, population: int) -> ApproxDP:
    """``sample`` units out of ``population``, uniformly and without replacement.

    Claim: (ε, δ) on the sample is (ln(1 + p (e^ε - 1)), pδ) on the whole, p = sample/population.
    Adjacency: change-one, for the step and for the result (the size of the table is public).
    Why: [BBG18, Thm 9]. Rounding: up.
    """
    _require_sizes(sample, population)
    if sample > population:
        raise SpecError(
            "The sample is larger than the table.",
            fix="Draw at most every unit once.",
            about="sample",
        )
    return _amplified(loss, Fraction(sample, population))


def inner_epsilon_down(epsilon: Fraction, *, probability: Fraction) -> Fraction:
    """The largest ε for the sample that keeps the whole within ``epsilon``.

    Claim: ln(1 + (e^ε' - 1)/p), the inverse of `poisson` and `fixed_size`. Rounding: down.
    """
    share = _checked(probability)
    if epsilon == 0 or share == 1:
        return epsilon
    return lower(lambda: (real(epsilon).expm1() / real(share)).log1p())  # noqa: PLW0108 - precision


def _amplified(loss: ApproxDP, share: Fraction) -> ApproxDP:
    if loss.epsilon == 0 or share == 1:
        return ApproxDP(loss.epsilon, share * loss.delta)
    epsilon = upper(lambda: (real(share) * real(loss.epsilon).expm1()).log1p())  # noqa: PLW0108 - precision
    return ApproxDP(epsilon, share * loss.delta)


def _checked(probability: Fraction) -> Fraction:
    if not 0 < probability <= 1:
        raise SpecError(
            f"probability is {probability}.",
            fix="Use a probability in (0, 1].",
            about="probability",
        )
    return probability


def _require_sizes(sample: int, population: int) -> None:
    for name, value in (("sample", sample), ("population", population)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(
                f"{name} is {value!r}.", fix=f"Use a whole {name} of at least 1.", about="size"
            )
