"""Crowds in samples that take some people more often than others.

>>> float(biased_delta(Fraction(1, 20), Fraction(1, 10), 80, Fraction(3, 10))) < 2e-7
True
>>> biased_crowd(Fraction(1, 20), Fraction(1, 10), ApproxDP("0.3", "1e-6"))
71
"""

from bisect import bisect_left
from fractions import Fraction

from noisegate.accounting.crowd import CROWD_MAX, checked, tail
from noisegate.errors import SpecError
from noisegate.exact import log_up, lower, real, upper
from noisegate.privacy.loss import ApproxDP


def biased_form(
    least: Fraction, most: Fraction, crowd: int, within: Fraction = Fraction(0), *, odd: int = 0
) -> ApproxDP:
    """The same where people are sampled with differing probabilities, from ``least`` to ``most``.

    Claim: holds for each person whose own probability lies there, if all who could take its place
        do too, but at most ``odd``, whose probabilities are arbitrary, even 0, 1 or known: with
        q = 1 - (1 - p')², ε = ln(1 - p' + p' e^within ((1 - p)/p) p'(2 - p')/(1 - p')²) and
        δ = e^(-((k - odd)/q) KL(q‖p')), p = ``least``, p' = ``most``. A person who is surely in
        the sample has no guarantee.
    Adjacency: add/remove one such person.
    Why: as `blended_delta`, with a place given up with odds of at most (1 - p)/p, x dominated by
        Bin(M, p'), and only the others with bounded probabilities changing places.
    Rounding: up.
    """
    checked(least, crowd, Fraction(1), within)
    checked(most, crowd, Fraction(1), within)
    if least > most or type(odd) is not int or not 0 <= odd < crowd:
        raise SpecError(
            "These probabilities give no bound.", fix="Use least <= most and odd below the crowd."
        )
    q = 1 - (1 - most) ** 2
    swap = (1 - least) / least * most * (2 - most) / (1 - most) ** 2
    return ApproxDP(
        upper(lambda: (real(1 - most) + real(most * swap) * real(within).exp()).log()),  # noqa: PLW0108 - precision
        tail(Fraction(crowd - odd), q, most),
    )


def biased_delta(least: Fraction, most: Fraction, crowd: int, epsilon: Fraction) -> Fraction:
    """The δ at ε of counts from a sample with probabilities from ``least`` to ``most``.

    Claim: a table of counts, those below ``crowd`` not shown, is (ε, δ)-differentially private with
        δ = e^(-(k/q) KL(q‖p')), q / (1 - q) = (e^ε - 1 + p') p / (p' (1 - p)), p = ``least``,
        p' = ``most``; needs ε ≥ ln(1 / (1 - p')), and q > p'.
    Adjacency: add/remove one person, who has one row. All coins are independent and secret.
    Why: let X of the M others of the person's cell be sampled, person j with p_j. Since
        (M - x) Pr[X = x] = Σ (1 - p_j) Pr[X without j = x] and (x + 1) Pr[X = x + 1] =
        Σ p_j Pr[X without j = x], Pr[X = x] ≤ ((1 - p)/p) (x + 1)/(M - x) Pr[X = x + 1]. A count
        y ≥ k is shown with the person, sampled with r, with chance (1 - r) Pr[X = y] +
        r Pr[X = y - 1], at most Pr[X = y] (1 - r + r ((1 - p)/p) y/(M + 1 - y)). That is at most
        e^ε Pr[X = y] where y ≤ q (M + 1), for r = p' is the worst where it is above Pr[X = y]. For
        the other y, r Pr[X = y - 1] is charged to δ: together at most the chance that N = M + 1
        people with probabilities of at most p' give max(k, q N) or more, e^(-N KL(max(k/N, q)‖p')),
        largest at N = k/q. What is hidden is likelier without the person. Leaving: with the
        person, everything is at least 1 - p' times as likely as without.
    Rounding: up. With p = p' it is `closed_form`.
    """
    if least > most:
        raise SpecError("The probabilities are out of order.", fix="Use least <= most.")
    for each in (least, most):
        checked(each, crowd, epsilon)
    if epsilon < log_up(1 / (1 - most)):
        raise SpecError(
            "Below this ε, a biased sample gives no guarantee.",
            fix=f"Use an ε of at least {float(log_up(1 / (1 - most))):.6g}.",
            about="epsilon",
        )
    grown = lower(lambda: real(epsilon).exp())
    odds = (grown - 1 + most) * least / (most * (1 - least))
    q = odds / (1 + odds)
    return Fraction(1) if q <= most else tail(Fraction(crowd), q, most)


def biased_crowd(least: Fraction, most: Fraction, target: ApproxDP) -> int:
    """The smallest crowd at which `biased_delta` keeps the target; it falls with the crowd."""

    def keeps(crowd: int) -> bool:
        return biased_delta(least, most, crowd, target.epsilon) <= target.delta

    high = 1
    while not keeps(high):
        high *= 2
        if high > CROWD_MAX:
            raise SpecError(
                "No crowd achieves this guarantee.",
                fix="Allow a larger ε or δ, or probabilities that differ less.",
            )
    return bisect_left(range(high), x=True, lo=high // 2 + 1, key=keeps)
