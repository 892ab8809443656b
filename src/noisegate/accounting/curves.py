"""Rényi curves: the divergence D_a of one step between neighbours, rounded up.

A curve is computed through its moment E[(P/Q)^a] under Q, which is exp((a - 1) D_a): moments of
sampled steps are then plain binomial sums.

>>> float(round(pure_renyi_up(Fraction(1), Fraction(2)), 6))
0.735326
"""

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from noisegate.exact import Real, real, upper

Moment: TypeAlias = Callable[[Fraction], Real]


def zcdp_renyi(rho: Fraction, order: Fraction) -> Fraction:
    """Claim: ρ-zCDP is D_a ≤ aρ at every order [BS16, Def. 1.1]. Rounding: none."""
    return order * rho


def pure_renyi_up(epsilon: Fraction, order: Fraction) -> Fraction:
    """The Rényi curve of any ε-private step.

    Claim: D_a ≤ ln((e^{aε} + e^{(1-a)ε})/(1 + e^ε))/(a - 1), with equality for randomised response.
    Adjacency: any. Why: every ε-private pair is post-processing of randomised response
        [KOV15]; the same bound is [BS16, Prop. 3.3]. Rounding: up.
    """
    return _divergence_up(lambda a: _pure_moment(epsilon, a), order) if epsilon else Fraction(0)


def laplace_renyi_up(ratio: Fraction, order: Fraction) -> Fraction:
    """The Rényi curve of Laplace noise, ``ratio`` = L1 sensitivity / scale.

    Claim: D_a ≤ ln(a e^{(a-1)t}/(2a-1) + (a-1) e^{-at}/(2a-1))/(a - 1).
    Adjacency: as the sensitivity. Why: [Mir17, Prop. 6] for one coordinate. The curve is a
        logarithm of a sum of exponentials of t, hence convex in t, and 0 at 0, hence superadditive:
        spreading the change over several coordinates never gives more. Rounding: up.
    """
    return _divergence_up(laplace_moment(ratio), order) if ratio else Fraction(0)


def geometric_renyi_up(scale: Fraction, sensitivity: Fraction, order: Fraction) -> Fraction:
    """The Rényi curve of two-sided geometric noise on an integer vector.

    Claim: with r = 1/scale, α = e^-r, q = e^{-(2a-1)r} and an integer shift n,
        E[(P/Q)^a] = e^{(a-1)rn} (1 + (1-α) q/(1-q))/(1+α) + e^{-arn} (1 - (1-α)/(1-q))/(1+α).
    Adjacency: as the sensitivity. Why: sum the masses over z ≤ 0, 0 < z < n and z ≥ n. Both
        coefficients are positive (q < α), so ln E is convex in n and 0 at n = 0, hence
        superadditive and rising on whole numbers, as for `laplace_renyi_up`. Rounding: up.
    """
    if sensitivity == 0:
        return Fraction(0)
    return _divergence_up(geometric_moment(scale, sensitivity), order)


def sampled_renyi_up(moment: Moment, *, probability: Fraction, order: int) -> Fraction:
    """The Rényi curve of a step on a Poisson sample, at a whole order a.

    The step is additive symmetric noise, or any that is ρ-zCDP, for the moments of ρ.

    Claim: D_a ≤ ln(Σ_k C(a,k) (1-p)^{a-k} p^k E[(P/Q)^k])/(a - 1).
    Adjacency: add/remove.
    Why: given the sample of all others, the unit's presence decides between Q and P, two copies
        of the noise one sensitivity apart; mixing over the others only lowers D_a. With r = P/Q and
        u = 1 - p + pr, the direction D_a((1-p)Q + pP ‖ Q) is the binomial expansion of E_Q[u^a].
        The other direction is no larger: the reflection z ↦ shift - z swaps P and Q, so E_Q[g(r)]
        = E_Q[r g(1/r)], and with v = 1 - p + p/r it remains to see that
        u^a - u^{1-a} + r (v^a - v^{1-a}) ≥ 0. For r > 1 that reads u k(u) ≥ r k(1/v) for
        k(x) = x^{a-1} - x^{-a}; it is an equality at a = 1, and k(u)/k(1/v) =
        (uv)^{-1/2} sinh((a-½) ln u)/sinh((a-½) ln(1/v)) rises with a because u ≥ 1/v.
        [MTZ19] is the case of the continuous Gaussian; the argument needs only the
        reflection, which discrete Gaussian, geometric and Laplace noise have too. That the other
        direction is no larger needs no reflection where the moments are e^{k(k-1)ρ} both ways:
        steps 2 to 4 at the head of `sampled.py`, without a cut. Rounding: up.
    """
    if probability == 1:
        return _divergence_up(moment, Fraction(order))
    return upper(lambda: _sampled_moment(moment, probability, order).log() / (order - 1))


def gaussian_moment(rho: Fraction) -> Moment:
    """exp(a (a - 1) ρ): exact for the Gaussian, a bound for the discrete one [CKS20, Prop. 5]."""
    return lambda a: real(a * (a - 1) * rho).exp()


def laplace_moment(ratio: Fraction) -> Moment:
    """The moment behind `laplace_renyi_up`."""

    def moment(a: Fraction) -> Real:
        up, down = real((a - 1) * ratio).exp(), real(-a * ratio).exp()
        return real(a / (2 * a - 1)) * up + real((a - 1) / (2 * a - 1)) * down

    return moment


def geometric_moment(scale: Fraction, sensitivity: Fraction) -> Moment:
    """The moment behind `geometric_renyi_up`; a change of an integer vector is 0 or at least 1."""
    rate, shift = 1 / scale, max(sensitivity, Fraction(1))

    def moment(a: Fraction) -> Real:
        alpha, q = real(-rate).exp(), real(-(2 * a - 1) * rate).exp()
        rise = 1 + (1 - alpha) * q / (1 - q)
        fall = 1 - (1 - alpha) / (1 - q)
        up, down = real((a - 1) * rate * shift).exp(), real(-a * rate * shift).exp()
        return (rise * up + fall * down) / (1 + alpha)

    return moment


def _pure_moment(epsilon: Fraction, order: Fraction) -> Real:
    up, down = real(order * epsilon).exp(), real((1 - order) * epsilon).exp()
    return (up + down) / (1 + real(epsilon).exp())


def _divergence_up(moment: Moment, order: Fraction) -> Fraction:
    return max(Fraction(0), upper(lambda: moment(order).log() / real(order - 1)))


def _sampled_moment(moment: Moment, probability: Fraction, order: int) -> Real:
    """Σ_k C(a,k) (1-p)^{a-k} p^k moment(k); the moments of order 0 and 1 are 1."""
    odds = real(probability / (1 - probability))
    weight = real(1 - probability) ** order
    total = weight
    for k in range(1, order + 1):
        weight = weight * odds * real(Fraction(order - k + 1, k))
        total += weight * moment(Fraction(k)) if k > 1 else weight
    return total
