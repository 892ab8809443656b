"""Random losses against slow twins: mpmath at 60 digits, and hockey sticks by enumeration."""

import math
import os
from fractions import Fraction
from itertools import product

import mpmath
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noisegate.accounting.accountant import Charge
from noisegate.accounting.amplification import poisson
from noisegate.accounting.curves import (
    gaussian_moment,
    geometric_moment,
    geometric_renyi_up,
    laplace_renyi_up,
    pure_renyi_up,
    sampled_renyi_up,
)
from noisegate.accounting.pure import PureAccountant
from noisegate.accounting.renyi import RenyiAccountant
from noisegate.accounting.zcdp import ZCDPAccountant
from noisegate.planning.composition import (
    advanced_mixed_up,
    exponential_delta_up,
    optimal_delta_up,
    optimal_epsilon_up,
)
from noisegate.privacy.conversion import (
    epsilon_of_zcdp_up,
    group_of_approx,
    rho_of_budget_down,
)
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import (
    DeclaredEvent,
    DiscreteGaussianEvent,
    ExponentialEvent,
    GeometricEvent,
    Group,
    Parallel,
    PoissonSampled,
    Repeated,
    Sequential,
)
from noisegate.privacy.loss import ApproxDP

# Every run tries the same ones; `make fuzz` tries others.
QUICK, SLOW = (120, 50) if os.environ.get("NOISEGATE_EXPLORE") else (30, 12)
quick = settings(max_examples=QUICK)
slow = settings(max_examples=SLOW)


def fractions(low, high):
    return st.fractions(Fraction(low), Fraction(high), max_denominator=10**6)


epsilons = fractions("1/1000", 5)
rhos = fractions("1/100000", 5)
deltas = st.integers(1, 40).flatmap(
    lambda power: st.integers(1, 9).map(lambda digit: Fraction(digit, 10 ** (power + 1)))
)
orders = fractions("11/10", 64)


def precise(value):
    return mpmath.mpf(value.numerator) / value.denominator


def hockey_stick(here, there, total):
    lift = math.exp(total)
    return math.fsum(max(0.0, p - lift * q) for p, q in zip(here, there, strict=True))


def renyi(here, there, order):
    """D_a at mpmath's precision; masses of zero must agree."""
    terms = (p**order * q ** (1 - order) for p, q in zip(here, there, strict=True) if p)
    return mpmath.log(mpmath.fsum(terms)) / (order - 1)


# --- conversions


def best_epsilon(rho, delta):
    def bound(x):
        t = mpmath.exp(x)
        return (1 + t) * rho + mpmath.log(t / (1 + t)) - (mpmath.log1p(t) + mpmath.log(delta)) / t

    low, high = mpmath.mpf(-12), mpmath.mpf(14)
    for _ in range(110):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if bound(left) < bound(right) else (left, high)
    return max(mpmath.mpf(0), bound((low + high) / 2))


@slow
@given(rho=rhos, delta=deltas)
def test_zcdp_conversion_never_understates_the_best_order(rho, delta):
    with mpmath.workdps(60):
        best = best_epsilon(precise(rho), precise(delta))
        found = precise(epsilon_of_zcdp_up(rho, delta=delta))
        assert found >= best * (1 - mpmath.mpf(10) ** -30)
        assert found <= best * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(10) ** -12


@quick
@given(rho=rhos, delta=deltas)
def test_zcdp_conversion_covers_the_gaussian_it_describes(rho, delta):
    """Gaussian noise with Δ²/2σ² = ρ has a known exact δ, which must not exceed the claimed one."""
    epsilon = epsilon_of_zcdp_up(rho, delta=delta)
    with mpmath.workdps(60):
        shift = mpmath.sqrt(2 * precise(rho))
        middle = precise(epsilon) / shift
        exact = mpmath.ncdf(shift / 2 - middle) - mpmath.exp(precise(epsilon)) * mpmath.ncdf(
            -shift / 2 - middle
        )
        assert exact <= precise(delta)


@quick
@given(epsilon=epsilons, delta=deltas)
def test_the_rho_of_a_budget_never_exceeds_it(epsilon, delta):
    rho = rho_of_budget_down(ApproxDP(epsilon, delta))
    assert rho == 0 or epsilon_of_zcdp_up(rho, delta=delta) <= epsilon * (1 + Fraction(1, 10**9))


@quick
@given(epsilon=epsilons, delta=deltas, size=st.integers(1, 8))
def test_group_deltas_round_up(epsilon, delta, size):
    found = group_of_approx(ApproxDP(epsilon, delta), size=size)
    with mpmath.workdps(60):
        series = mpmath.fsum(mpmath.exp(k * precise(epsilon)) for k in range(size))
        exact = min(mpmath.mpf(1), series * precise(delta))
        assert exact * (1 - mpmath.mpf(10) ** -50) <= precise(found.delta)
        assert precise(found.delta) <= exact * (1 + mpmath.mpf(10) ** -20)


@quick
@given(
    here=st.lists(st.integers(1, 50), min_size=4, max_size=4),
    there=st.lists(st.integers(1, 50), min_size=4, max_size=4),
    epsilon=fractions(0, 2),
)
def test_an_approximately_private_pair_has_a_purely_private_core(here, there, epsilon):
    """The construction in `zcdp_of_approx`, carried out."""
    lift = math.exp(epsilon)
    p = [x / sum(here) for x in here]
    q = [x / sum(there) for x in there]
    delta = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
    assume(delta < 0.99)
    low_p = [min(a, lift * b) for a, b in zip(p, q, strict=True)]
    low_q = [min(b, lift * a) for a, b in zip(p, q, strict=True)]
    if sum(low_p) < sum(low_q):
        low_p, low_q, p, q = low_q, low_p, q, p
    floor = [b / lift for b in low_q]
    gap, room = sum(low_p) - sum(low_q), sum(low_p) - sum(floor)
    part = gap / room if room > 1e-15 else 0.0
    core = [(1 - part) * a + part * f for a, f in zip(low_p, floor, strict=True)]
    assert math.isclose(sum(core), sum(low_q), rel_tol=1e-9)
    assert sum(core) >= 1 - delta - 1e-12
    for a, b, whole in zip(core, low_q, p, strict=True):
        assert a <= whole * (1 + 1e-12)
        assert a <= lift * b * (1 + 1e-9)
        assert b <= lift * a * (1 + 1e-9)


# --- Rényi curves


@quick
@given(epsilon=epsilons, order=orders)
def test_the_pure_curve_is_randomised_response(epsilon, order):
    with mpmath.workdps(60):
        truth = 1 / (1 + mpmath.exp(-precise(epsilon)))
        exact = renyi([truth, 1 - truth], [1 - truth, truth], precise(order))
        assert precise(pure_renyi_up(epsilon, order)) >= exact * (1 - mpmath.mpf(10) ** -40)
        assert precise(pure_renyi_up(epsilon, order)) <= exact * (1 + mpmath.mpf(10) ** -12)


@slow
@given(ratio=fractions("1/100", 4), order=fractions("11/10", 12))
def test_the_laplace_curve_is_the_integral(ratio, order):
    with mpmath.workdps(30):
        t, a = precise(ratio), precise(order)

        def integrand(z):
            return mpmath.exp(-a * abs(z) - (1 - a) * abs(z - t)) / 2

        moment = mpmath.quad(integrand, [-mpmath.inf, 0, t, mpmath.inf])
        exact = mpmath.log(moment) / (a - 1)
        assert abs(precise(laplace_renyi_up(ratio, order)) - exact) <= mpmath.mpf(10) ** -12


def geometric_masses(scale, centre, reach):
    alpha = mpmath.exp(-1 / precise(scale))
    return [(1 - alpha) / (1 + alpha) * alpha ** abs(z - centre) for z in range(-reach, reach + 1)]


@slow
@given(scale=fractions("1/4", 3), shift=st.integers(1, 4), order=fractions("11/10", 6))
def test_the_geometric_curve_is_the_sum(scale, shift, order):
    with mpmath.workdps(40):
        here = geometric_masses(scale, 0, 400)
        there = geometric_masses(scale, shift, 400)
        exact = renyi(here, there, precise(order))
        found = precise(geometric_renyi_up(scale, Fraction(shift), order))
        assert abs(found - exact) <= mpmath.mpf(10) ** -25


@quick
@given(scale=fractions("1/4", 20), order=orders, parts=st.lists(st.integers(1, 4), min_size=2))
def test_spreading_a_change_over_coordinates_never_loses_more(scale, order, parts):
    whole = geometric_renyi_up(scale, Fraction(sum(parts)), order)
    spread = sum(geometric_renyi_up(scale, Fraction(part), order) for part in parts)
    assert spread <= whole + Fraction(1, 10**20)
    laplace = sum(laplace_renyi_up(part / scale, order) for part in parts)
    assert laplace <= laplace_renyi_up(sum(parts) / scale, order) + Fraction(1, 10**20)


def sampled_both_ways(base, moved, share, order):
    mixed = [(1 - share) * q + share * p for p, q in zip(moved, base, strict=True)]
    return max(renyi(mixed, base, order), renyi(base, mixed, order))


@slow
@given(
    scale=fractions("1/4", 3), shift=st.integers(1, 3), share=fractions("1/100", "99/100"),
    order=st.integers(2, 6),
)  # fmt: skip
def test_sampled_geometric_noise_stays_below_its_curve_both_ways(scale, shift, share, order):
    with mpmath.workdps(40):
        base, moved = geometric_masses(scale, 0, 300), geometric_masses(scale, shift, 300)
        exact = sampled_both_ways(base, moved, precise(share), order)
        moment = geometric_moment(scale, Fraction(shift))
        found = precise(sampled_renyi_up(moment, probability=share, order=order))
        assert exact - mpmath.mpf(10) ** -20 <= found <= exact + mpmath.mpf(10) ** -12


@slow
@given(
    variance=fractions("1/2", 6), shift=st.integers(1, 2), share=fractions("1/100", "99/100"),
    order=st.integers(2, 6),
)  # fmt: skip
def test_sampled_discrete_gaussian_noise_stays_below_its_curve_both_ways(
    variance, shift, share, order
):
    with mpmath.workdps(40):

        def masses(centre):
            weights = [
                mpmath.exp(-mpmath.mpf((z - centre) ** 2) / (2 * precise(variance)))
                for z in range(-80, 81)
            ]
            total = mpmath.fsum(weights)
            return [weight / total for weight in weights]

        exact = sampled_both_ways(masses(0), masses(shift), precise(share), order)
        rho = Fraction(shift * shift) / (2 * variance)
        found = sampled_renyi_up(gaussian_moment(rho), probability=share, order=order)
        assert exact <= precise(found) + mpmath.mpf(10) ** -20


# --- composition against enumerated mechanisms


@quick
@given(epsilon=fractions("1/50", 2), count=st.integers(1, 14), total=fractions(0, 6))
def test_optimal_composition_is_the_convolved_loss_of_randomised_response(epsilon, count, total):
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    losses = {0: 1.0}  # in units of ε, with the mass under the first hypothesis
    for _ in range(count):
        longer: dict[int, float] = {}
        for loss, mass in losses.items():
            longer[loss + 1] = longer.get(loss + 1, 0.0) + mass * truth
            longer[loss - 1] = longer.get(loss - 1, 0.0) + mass * (1 - truth)
        losses = longer
    exact = math.fsum(
        mass * -math.expm1(float(total - loss * epsilon))
        for loss, mass in losses.items()
        if loss * epsilon > total
    )
    found = float(optimal_delta_up(epsilon, count=count, total=total))
    assert math.isclose(found, exact, rel_tol=1e-9, abs_tol=1e-13)


@slow
@given(
    steps=st.lists(fractions("1/20", 1), min_size=1, max_size=3),
    top=st.integers(1, 3),
    total=fractions(0, 2),
)
def test_composition_bounds_cover_truncated_geometric_counts(steps, top, total):
    """Counts 0 and 1, geometric noise clamped to [0, top]: all transcripts enumerated."""

    def masses(count, epsilon):
        alpha = math.exp(-epsilon)
        inner = [(1 - alpha) / (1 + alpha) * alpha ** abs(m - count) for m in range(1, top)]
        first = alpha**count / (1 + alpha)
        last = alpha ** (top - count) / (1 + alpha)
        return [first, *inner, last]

    here = [math.prod(cell) for cell in product(*(masses(0, step) for step in steps))]
    there = [math.prod(cell) for cell in product(*(masses(1, step) for step in steps))]
    attained = max(hockey_stick(here, there, total), hockey_stick(there, here, total))
    largest = max(steps)
    bound = optimal_delta_up(largest, count=len(steps), total=total)
    assert attained <= float(bound) + 1e-12
    if total >= sum(steps):
        assert attained <= 1e-12
    if attained > 1e-9:
        losses = [ApproxDP(step) for step in steps]
        assert advanced_mixed_up(losses, delta=Fraction(attained)) >= total - Fraction(1, 10**9)


@quick
@given(epsilon=fractions("1/20", 2), count=st.integers(1, 60), delta=deltas)
def test_optimal_epsilon_is_tight(epsilon, count, delta):
    found = optimal_epsilon_up(epsilon, count=count, delta=delta)
    assert found <= count * epsilon
    assert optimal_delta_up(epsilon, count=count, total=found) <= delta
    if found > Fraction(1, 10**6):
        less = found * (1 - Fraction(1, 10**6))
        assert optimal_delta_up(epsilon, count=count, total=less) > delta


@slow
@given(
    scores=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1])), min_size=2, max_size=4
    ),
    epsilon=fractions("1/10", 2),
    count=st.integers(1, 3),
    total=fractions(0, 3),
)
def test_exponential_mechanisms_compose_within_their_own_theorem(scores, epsilon, count, total):
    """Scores move by at most 1 between neighbours; k independent runs, enumerated."""

    def law(values):
        weights = [math.exp(float(epsilon) * value / 2) for value in values]
        return [weight / sum(weights) for weight in weights]

    here, there = law([s for s, _ in scores]), law([s + move for s, move in scores])
    many_here = [math.prod(cell) for cell in product(here, repeat=count)]
    many_there = [math.prod(cell) for cell in product(there, repeat=count)]
    bound = float(exponential_delta_up(epsilon, count=count, total=total))
    assert hockey_stick(many_here, many_there, total) <= bound + 1e-12
    assert hockey_stick(many_there, many_here, total) <= bound + 1e-12
    with mpmath.workdps(30):
        for order in (1.5, 2, 8):
            divergence = renyi(list(map(mpmath.mpf, here)), list(map(mpmath.mpf, there)), order)
            assert divergence <= order * float(epsilon) ** 2 / 8 + 1e-12


@quick
@given(epsilon=fractions("1/20", 3), share=fractions("1/1000", 1))
def test_sampling_covers_randomised_response_on_presence(epsilon, share):
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    absent = [1 - truth, truth]
    present = [share * truth + (1 - share) * (1 - truth), share * (1 - truth) + (1 - share) * truth]
    outer = poisson(ApproxDP(epsilon), probability=share).epsilon
    worst = max(abs(math.log(float(p) / float(q))) for p, q in zip(present, absent, strict=True))
    assert worst <= float(outer) + 1e-12


# --- accountants

leaves = st.one_of(
    st.builds(
        lambda scale, size: GeometricEvent(scale=scale, sensitivity=L1(size)),
        fractions("1/2", 100), st.integers(0, 5),
    ),
    st.builds(lambda e: ExponentialEvent(epsilon=e), epsilons),
    st.builds(lambda e, d: DeclaredEvent(epsilon=e, delta=d), epsilons, deltas),
)  # fmt: skip
gaussians = st.builds(
    lambda variance, size: DiscreteGaussianEvent(variance=variance, sensitivity=L2(squared=size)),
    fractions(1, 1000), st.integers(0, 9),
)  # fmt: skip


def wrapped(inner):
    return st.one_of(
        st.builds(lambda parts: Sequential(events=tuple(parts)), st.lists(inner, max_size=3)),
        st.builds(lambda parts: Parallel(events=tuple(parts)), st.lists(inner, max_size=3)),
        st.builds(lambda e, k: Repeated(event=e, count=k), inner, st.integers(1, 5)),
        st.builds(lambda e, k: Group(event=e, size=k), inner, st.integers(1, 3)),
        st.builds(
            lambda e, p: PoissonSampled(event=e, probability=p), inner, fractions("1/100", 1)
        ),
    )


pure_trees = st.recursive(leaves, wrapped, max_leaves=6)
ACCOUNTANTS = (PureAccountant(), ZCDPAccountant(), RenyiAccountant(8))


@quick
@given(tree=pure_trees, more=leaves)
def test_every_accountant_adds_in_sequence_and_takes_the_largest_in_parallel(tree, more):
    for accountant in ACCOUNTANTS:
        one, other = accountant.price(tree), accountant.price(more)
        both = accountant.price(Sequential(events=(tree, more)))
        assert both <= one + other
        assert one + other <= both + Charge(2, 2)
        blocks = accountant.price(Parallel(events=(tree, more)))
        assert blocks == Charge(max(one.amount, other.amount), max(one.delta, other.delta))


@quick
@given(tree=pure_trees)
def test_concentrated_prices_never_exceed_half_the_squared_pure_price(tree):
    pure, zcdp = PureAccountant().price(tree), ZCDPAccountant().price(tree)
    epsilon, _ = pure.as_fractions()
    rho, _ = zcdp.as_fractions()
    assert rho <= epsilon**2 / 2 + Fraction(1, 10**25)


@quick
@given(event=gaussians, size=st.integers(1, 4), count=st.integers(1, 9))
def test_gaussian_groups_are_quadratic_and_repeats_linear_in_every_accountant(event, size, count):
    for accountant in (ZCDPAccountant(), RenyiAccountant(8)):
        once = accountant.price(event).amount
        many = accountant.price(Repeated(event=Group(event=event, size=size), count=count)).amount
        assert abs(many - once * size * size * count) <= size * size * count


@slow
@given(epsilon=fractions("1/10", 8), delta=deltas)
def test_limits_imply_their_budget(epsilon, delta):
    budget = ApproxDP(epsilon, delta)
    for accountant in (PureAccountant(), ZCDPAccountant()):
        limit = accountant.limit(budget)
        assert accountant.implied(limit, budget) <= budget
        half = Charge(limit.amount // 2, limit.delta // 2)
        assert accountant.implied(half, budget) <= accountant.implied(limit, budget)
