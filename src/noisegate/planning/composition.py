"""What several private steps lose together.

Basic composition and its parallel form are what accounts are kept with. The sharper theorems need
the number of steps and their ε fixed beforehand: they report, and price blocks planned in advance.

>>> float(round(optimal_epsilon_up(Fraction(1, 10), count=100, delta=Fraction(1, 10**6)), 6))
4.774568
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil

from noisegate.errors import Bug, SpecError
from noisegate.exact import Real, lower, real, upper
from noisegate.privacy.loss import ApproxDP


def sequential(losses: Iterable[ApproxDP]) -> ApproxDP:
    """Steps on the same units, each free to depend on the answers before it.

    Claim: ε and δ add up. Adjacency: any. Why: [DR14, Thm 3.16]. Rounding: none.
    """
    return sum(losses, start=ApproxDP(0))


def advanced_mixed_up(losses: Iterable[ApproxDP], *, delta: Fraction) -> Fraction:
    """Advanced composition of steps with different ε and δ, all fixed beforehand.

    Claim: the steps are (√(2 ln(1/δ') Σεᵢ²) + Σ εᵢ tanh(εᵢ/2), δ' + Σδᵢ)-private. Adjacency: any.
    Why: the loss of a step lies in [-ε, ε] and has mean at most ε (e^ε - 1)/(e^ε + 1); Azuma's
        inequality for unequal ranges [DRV10], [KOV15]. Rounding: up.
    """
    counts = Counter((part.epsilon, part.delta) for part in losses if part.epsilon or part.delta)
    slack = delta - sum((own * count for (_, own), count in counts.items()), Fraction(0))
    if slack <= 0:
        raise SpecError(
            "The steps' own δ leaves nothing for composition.",
            fix="Allow a larger δ.",
            about="delta",
        )
    squares = sum((step * step * count for (step, _), count in counts.items()), Fraction(0))

    def total() -> Real:
        means = [real(count * step) * real(step / 2).tanh() for (step, _), count in counts.items()]
        return (real(2 * squares) * real(1 / slack).log()).sqrt() + sum(means)

    return upper(total) if squares else Fraction(0)


def optimal_delta_up(epsilon: Fraction, *, count: int, total: Fraction) -> Fraction:
    """The least δ at which k adaptive ε-private steps are (total, δ)-private.

    Claim: δ = Σ_l C(k,l) [e^{(k-l)ε} - e^{total + lε}]₊ / (1 + e^ε)^k, attained by randomised
        response and by geometric noise on counts. Adjacency: any. Why: [KOV15], [MV16, Thm 1.4].
    Rounding: up.
    """
    _require(epsilon, count, Fraction(1))
    # so many of the terms l = 0, 1, … are positive: those with (k - l) ε > total + lε
    active = max(0, min(count + 1, ceil((count - total / epsilon) / 2)))
    if active == 0:
        return Fraction(0)

    def delta() -> Real:
        here, there = _tails(epsilon, count, active)
        return here - real(total).exp() * there

    return min(Fraction(1), upper(delta))


def optimal_epsilon_up(
    epsilon: Fraction, *, count: int, delta: Fraction, delta_each: Fraction = Fraction(0)
) -> Fraction:
    """The least ε at which k adaptive (ε, δ_each)-private steps are (·, δ)-private.

    Claim: the inverse of `optimal_delta_up`; a δ of each step enters as
        1 - δ = (1 - δ_each)^k (1 - δ'). Adjacency: any. Why: [KOV15], [MV16, Thm 1.4].
    Rounding: up; the result is checked against `optimal_delta_up`.
    """
    _require(epsilon, count, Fraction(1))
    left = _delta_left(delta, delta_each, count)
    if left == 0:
        return count * epsilon
    if optimal_delta_up(epsilon, count=count, total=Fraction(0)) <= left:
        return Fraction(0)
    return _rise_until(
        _optimal_epsilon_guess(epsilon, count, left),
        lambda total: optimal_delta_up(epsilon, count=count, total=total) <= left,
        ceiling=count * epsilon,
    )


def exponential_delta_up(epsilon: Fraction, *, count: int, total: Fraction) -> Fraction:
    """The least δ for k exponential mechanisms of range ε, all chosen beforehand.

    Claim: δ = max over l of Σ_i C(k,i) p^{k-i} (1-p)^i [e^{kt - iε} - e^total]₊ with
        t = (total + (l+1)ε)/(k+1) clipped to [0, ε], p = (e^-t - e^-ε)/(1 - e^-ε).
    Adjacency: any; not for adaptively chosen mechanisms. Why: [DDR20]. Rounding: up.
    Cost: of the order of count² operations.
    """
    _require(epsilon, count, Fraction(1))
    shifts = {
        min(max((total + (part + 1) * epsilon) / (count + 1), Fraction(0)), epsilon)
        for part in range(count + 1)
    }
    return min(Fraction(1), max(_exponential_delta(epsilon, count, total, t) for t in shifts))


def exponential_epsilon_up(epsilon: Fraction, *, count: int, delta: Fraction) -> Fraction:
    """The inverse of `exponential_delta_up` to 2^-20 of the basic bound. Rounding: up."""
    _require(epsilon, count, delta)
    step = count * epsilon / (1 << 20)

    def holds(steps: int) -> bool:
        return exponential_delta_up(epsilon, count=count, total=steps * step) <= delta

    return step * bisect_left(range(1 << 20), x=True, lo=1, key=holds)


def _tails(epsilon: Fraction, count: int, active: int) -> tuple[Real, Real]:
    """Σ_{l < active} C(k,l) p^{k-l} (1-p)^l and the same with p and 1 - p exchanged."""
    rise = real(epsilon).exp()
    truth = rise / (1 + rise)
    here, there = truth**count, (1 - truth) ** count
    sums = here, there
    for part in range(1, active):
        step = real(Fraction(count - part + 1, part))
        here, there = here * step / rise, there * step * rise
        sums = sums[0] + here, sums[1] + there
    return sums


def _optimal_epsilon_guess(epsilon: Fraction, count: int, delta: Fraction) -> Fraction:
    """On each piece between (k - 2l) ε and the next, δ = A - e^total B can be solved for total."""

    def lacks(active: int) -> bool:
        corner = (count - 2 * active) * epsilon
        return optimal_delta_up(epsilon, count=count, total=corner) > delta

    active = bisect_left(range(count // 2 + 1), x=True, lo=1, key=lacks)

    def total() -> Real:
        here, there = _tails(epsilon, count, active)
        return ((here - real(delta)) / there).log()

    return max(Fraction(0), min(upper(total), count * epsilon))


def _rise_until(
    start: Fraction, holds: Callable[[Fraction], bool], *, ceiling: Fraction
) -> Fraction:
    """The first of start, start + tiny, start + 2 tiny, … for which the certified test holds."""
    step = Fraction(1, 1 << 64) * max(start, Fraction(1))
    for _ in range(128):
        if start >= ceiling or holds(start):
            return min(start, ceiling)
        start, step = start + step, 2 * step
    raise Bug("A composition bound was not found.", fix="Report ε, the number of steps and δ.")


def _delta_left(delta: Fraction, delta_each: Fraction, count: int) -> Fraction:
    if not 0 <= delta_each < 1:
        raise SpecError("delta_each is not a small probability.", fix="Use 0 <= delta_each < 1.")
    if delta_each == 0:
        return delta
    left = lower(lambda: 1 - real(1 - delta) / real(1 - delta_each) ** count)
    if left < 0:
        raise SpecError(
            f"δ is {float(delta):.3g}, less than the steps' own δ together.",
            fix=f"Allow at least {float(count * delta_each):.3g}, or use fewer steps.",
            about="own-delta",
        )
    return left


def _exponential_delta(epsilon: Fraction, count: int, total: Fraction, shift: Fraction) -> Fraction:
    active = max(0, min(count + 1, ceil((count * shift - total) / epsilon)))
    if active == 0 or shift == epsilon:
        return Fraction(0)

    def delta() -> Real:
        fall = real(-epsilon).exp()
        high = (real(-shift).exp() - fall) / (1 - fall)
        odds = (1 - high) / high
        mass, ratio, goal = high**count, real(count * shift).exp(), real(total).exp()
        sum_ = mass * (ratio - goal)
        for part in range(1, active):
            mass = mass * odds * real(Fraction(count - part + 1, part))
            ratio = ratio * fall
            sum_ += mass * (ratio - goal)
        return sum_

    return upper(delta)


def _require(epsilon: Fraction, count: int, slack: Fraction) -> None:
    if epsilon <= 0:
        raise SpecError(f"epsilon is {epsilon}.", fix="Use an epsilon above 0.")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SpecError(f"count is {count!r}.", fix="Use a whole count of at least 1.")
    if not 0 < slack <= 1:
        raise SpecError(f"δ is {slack}.", fix="Use a δ in (0, 1].", about="delta")
