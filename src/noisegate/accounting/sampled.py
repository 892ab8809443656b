"""The ρ of a step about a secret sample, from the Rényi curve of the step.

Fix two neighbours and the coins of all other units. P and Q are the laws of the step with the unit
and without it, r = P/Q; the unit is in the sample with probability p, so the laws of the whole are
M = (1 - p) Q + p P and Q, and u = M/Q = 1 - p + p r. The step is ρ-zCDP: for k ≥ 2,
E_Q[r^k] ≤ e^{k(k-1)ρ}, and E_Q[r^{1-k}] likewise.

1. *Cut.* Let ρ imply (ln T, δ)-privacy. Then P' = min(P, T₁ Q) and Q' = min(Q, T₂ P) both have mass
   1 - δ for some T₁, T₂ ≤ T. (The mass falls continuously with the cut, and at T at most δ is lost.
   If even T₁ = 1 loses less than δ, the pair is (0, δ)-private and loses nothing else.) Scaled to
   mass 1 they are the good parts of the claim, as is their mixture for M. From here on r is P'/Q';
   it lies in [1/T, T], E_Q[r] = 1, and
   (E_Q[r^k] - 1)/(k(k-1)) ≤ g_k = ((e^{k(k-1)ρ} - 1)/(k(k-1)) + δ)/(1 - δ):
   where r > T₁ the cut only lowers r^k. Where y = T₂ r < 1 it adds T₂^{-k} (y - y^k) Q, which is at
   most (k - 1)(1 - y) Q, and the (1 - y) Q sum up to the lost δ. With P and Q exchanged,
   (E_Q[r^{1-k}] - 1)/(k(k-1)) ≤ g_k.
2. *Two derivatives.* Let f_s be 0 with its derivative at r = 1, and r^s its second derivative. As
   E_Q[r] = 1, E_Q[f_{k-2}] and E_Q[f_{-k-1}] are those quotients, at most g_k. So are E_Q[f_{-1}]
   and E_Q[f_{-2}] at most g_2, since r^{-1} ≤ (2 + r^{-3})/3 and r^{-2} ≤ (1 + 2 r^{-3})/3. Beyond
   some J, r ≤ T gives r^{k-2} ≤ T^{k-J} r^{J-2}, and r ≥ 1/T the same for r^{-k-1}: let
   g_k = T^{k-J} g_J there. g rises with k.
3. *M against Q* at a whole order a ≥ 2: u^a has the second derivative a(a-1) p² u^{a-2}, and
   u^{a-2} is a binomial sum of r^i, so E_Q[u^a] ≤ 1 + a(a-1) p² s_a, s_a = E[g_{Y+2}] for a
   binomial Y of a - 2 trials.
4. *Q against M*: u^{1-a} has the second derivative a(a-1) p² u^{-a-1}, and 1/u ≤ 1 - p + p/r, so
   the sum is one over r^{-X}, X of a + 1 trials, at most E[g_{max(X-1, 2)}] ≤ s_a, as X is Y and
   three more trials. Nothing was asked of the noise: the sum of [MTZ19] holds for all ρ-zCDP.
5. *Orders between*: u^x is convex in x, so s between two whole orders is at most that of the upper
   one; between 1 and 2 it is g_2, by 1/u ≤ 1 - p + p/r again. So is ln E_Q[u^a] convex in a: with
   ratios to a(a-1) of at most c at n and m, the chord gives c (1 + (m-n)²/(4n(n-1))) between.
6. *All others*: no order passes the largest log-ratio, ln(1 - p + pT), so ρ' is enough from order
   ln(1 - p + pT)/ρ' on.

The laws over the others' coins are mixtures of such pairs, whose good parts mix, and D_a of pairs
with a common coin is at most the largest.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Final

from noisegate.accounting.search import digits_up
from noisegate.exact import Real, real, upper
from noisegate.privacy.conversion import epsilon_of_zcdp_up

_DIGITS: Final = 6  # of numbers found in floats: so few that other machines charge the same
_BITS: Final = 48  # of bounds at single orders
_TERMS: Final = 128  # the largest J
_DENSE: Final = 8  # from here on, orders are so many parts of themselves apart


@lru_cache(maxsize=256)
def sampled_rho_up(rho: Fraction, *, probability: Fraction, delta: Fraction) -> Fraction:
    """The ρ' of a ρ-zCDP step about a Poisson sample, outside an event of probability ``delta``.

    Claim: the whole is δ-approximate ρ'-zCDP, for 0 < p < 1. Adjacency: add/remove, for the step
        and for the result. Why: the head of this file. Rounding: up, to six digits.
    """
    cut = digits_up(epsilon_of_zcdp_up(rho, delta=delta), _DIGITS)
    g = _quotients(rho, delta, count=min(max(2, int((cut / rho + 1) / 2)), _TERMS) - 1)
    most = upper(lambda: (real(probability) * real(cut).expm1()).log1p(), digits_bits=_BITS)  # noqa: PLW0108
    order, weight, found = 2, probability**2 * g[0], probability**2 * g[0]
    ratio = _log1p_up(2 * weight) / 2
    while most > order * found:
        n, start, below = order, order * (order - 1), ratio
        order += max(1, order // _DENSE)
        whole = order * (order - 1)
        weight = probability**2 * _mean_up(g, order - 2, probability=probability, cut=cut)
        ratio = _log1p_up(whole * weight) / whole
        chord = max(below, ratio) * (1 + Fraction((order - n) ** 2, 4 * start))
        found = max(found, min(chord, _log1p_up(start * weight) / start))
    return digits_up(found, _DIGITS)


def _quotients(rho: Fraction, delta: Fraction, *, count: int) -> list[Fraction]:
    """g_2, g_3, … up to g_J."""
    found = []
    for k in range(2, count + 2):
        pairs = k * (k - 1)
        bound = upper(lambda n=pairs: real(n * rho).expm1() / n, digits_bits=_BITS)  # type: ignore[misc]
        found.append((bound + delta) / (1 - delta))
    return found


def _mean_up(g: list[Fraction], trials: int, *, probability: Fraction, cut: Fraction) -> Fraction:
    """E[g_{Y+2}] for a binomial Y; beyond J, the whole sum of T^Y stands for its end."""

    def total() -> Real:
        odds, weight = real(probability / (1 - probability)), real(1 - probability) ** trials
        found = weight * real(g[0])
        for i in range(1, min(trials + 1, len(g))):
            weight = weight * odds * (trials - i + 1) / i
            found += weight * real(g[i])
        if trials >= len(g):
            rise = (1 + real(probability) * real(cut).expm1()) ** trials
            found += rise * real((1 - len(g)) * cut).exp() * real(g[-1])
        return found

    return upper(total, digits_bits=_BITS)


def _log1p_up(value: Fraction) -> Fraction:
    return upper(lambda: real(value).log1p(), digits_bits=_BITS)
