"""Exact numbers: what people write is what is meant, and bounds point the way they say."""

import os
import threading
import time
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import ctx

from noisegate import exact
from noisegate.errors import Bug, SpecError
from noisegate.exact import (
    enclose,
    exp_down,
    exp_up,
    fraction,
    log_down,
    log_up,
    lower,
    positive,
    real,
    sqrt_down,
    sqrt_up,
    upper,
)
from refusals import about


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        (1e300, Fraction(10**300)),
        (5e-324, Fraction(5, 10**324)),
        (-0.0, Fraction(0)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(-7), Fraction(-7)),
        (3, Fraction(3)),
        (Fraction(2, 7), Fraction(2, 7)),
        (Decimal("0.30"), Fraction(3, 10)),
        ("1/3", Fraction(1, 3)),
        (" 0.5 ", Fraction(1, 2)),
        ("1e-6", Fraction(1, 10**6)),
        ("1_000", Fraction(1000)),
        (".5", Fraction(1, 2)),
        ("-2.50", Fraction(-5, 2)),
        ("1e4200", Fraction(10**4200)),
        (10**4200, Fraction(10**4200)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_number_means_its_decimal_text(value, meant):
    assert fraction(value) == meant
    assert type(fraction(value)) is Fraction


REFUSED = [
    float("nan"),
    float("inf"),
    float("-inf"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("1e99999"),
    True,
    False,
    None,
    1j,
    b"1",
    [1],
    np.bool_(True),
    "",
    "abc",
    "nan",
    "inf",
    "0x10",
    "1,5",
    "--1",
    "1/0",
    "1/-3",
    "1e5/3",
    "1e10001",
    "1e-10001",
    "1e999999999",
    "-1e999999999",
    "1e-999999999",
    "1e99999999999999999999",
    "0e999999999",
    "1" * 5000,
    "0." + "1" * 5000,
    "1/" + "3" * 5000,
]


@pytest.mark.parametrize("value", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_finite_number_is_refused_quickly_with_a_fix(value):
    start = time.process_time()
    with pytest.raises(SpecError, check=about("number")) as refusal:
        fraction(value, name="sigma")
    assert time.process_time() - start < 1
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    "value", [0, -1, "-1e-300", 0.0, Fraction(-1, 3), -(10**4200)], ids=range(6)
)
def test_a_positive_number_is_above_zero(value):
    with pytest.raises(SpecError, check=about("positive")):
        positive(value, name="scale")


@pytest.mark.parametrize("value", ["1e-4200", "1/3", 10**4200], ids=range(3))
def test_any_number_above_zero_is_positive(value):
    assert positive(value, name="scale") == fraction(value)


FUNCTIONS = [
    (exp_down, exp_up, mpmath.exp),
    (log_down, log_up, mpmath.log),
    (sqrt_down, sqrt_up, mpmath.sqrt),
]
POINTS = ["1/1000000", "1/3", "0.9999999999999999999999999", "1", "2", "4", "10", "97/89", "300.5"]


@pytest.mark.parametrize(("down", "up", "true"), FUNCTIONS, ids=["exp", "log", "sqrt"])
@pytest.mark.parametrize("x", POINTS)
def test_bounds_stand_on_their_sides_and_close_together(down, up, true, x):
    x = Fraction(x)
    low, high = down(x), up(x)
    with mpmath.workdps(80):
        value = true(mpmath.mpf(x.numerator) / x.denominator)
        assert mpmath.mpf(low.numerator) / low.denominator <= value * (1 + mpmath.mpf(10) ** -70)
        assert mpmath.mpf(high.numerator) / high.denominator >= value * (1 - mpmath.mpf(10) ** -70)
    assert high - low <= abs(high) * Fraction(1, 1 << 90) + Fraction(1, 1 << 180)


@pytest.mark.parametrize(("x", "root"), [("4", 2), ("9/4", Fraction(3, 2)), ("0", 0)])
def test_exact_roots_come_out_exactly(x, root):
    assert sqrt_down(Fraction(x)) <= root <= sqrt_up(Fraction(x))
    assert sqrt_up(Fraction(0)) == 0


def test_logarithms_of_one_and_powers_of_zero_are_exact():
    assert log_up(Fraction(1)) == log_down(Fraction(1)) == 0
    assert exp_up(Fraction(0)) == exp_down(Fraction(0)) == 1


def test_bounds_can_be_told_apart_for_an_irrational_number():
    assert sqrt_down(Fraction(2)) ** 2 < 2 < sqrt_up(Fraction(2)) ** 2


@pytest.mark.parametrize("bits", [0, 1, 10, 64, 200, 1000])
@pytest.mark.parametrize("x", ["-7/3", "0", "1/1000", "1", "12345.678"])
def test_an_enclosure_of_a_rational_holds_it_within_two_units(bits, x):
    x = Fraction(x)
    lo, hi = enclose(lambda: real(x), bits=bits)
    assert lo <= x * 2**bits <= hi
    assert hi - lo <= 2


@pytest.mark.parametrize("bits", [-200, -64, -1, 0, 64])
def test_a_formula_without_a_value_is_never_enclosed(bits):
    with pytest.raises(Bug, check=about("enclosure")):
        enclose(lambda: real(0).log(), bits=bits)
    with pytest.raises(Bug, check=about("enclosure")):
        upper(lambda: real(-1).sqrt())


def test_cancellation_is_answered_with_more_precision():
    tiny = Fraction(1, 10**200)
    lo, hi = enclose(lambda: (real(1) + real(tiny)).log() / real(tiny), bits=64)
    assert lo <= 1 << 64
    assert hi >= (1 << 64) - 1
    assert hi - lo <= 2


@pytest.mark.parametrize("exponent", [-(10**9), -(10**12), -(10**30)])
def test_a_vanishing_exponential_is_bounded_at_once(exponent):
    start = time.process_time()
    assert 0 <= exp_down(Fraction(exponent)) < exp_up(Fraction(exponent)) <= Fraction(1, 1 << 1000)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("exponent", [10**9, 10**12, 10**30])
def test_an_overwhelming_exponential_is_refused_at_once(exponent):
    start = time.process_time()
    with pytest.raises((SpecError, Bug)):
        exp_up(Fraction(exponent))
    assert time.process_time() - start < 2


def test_the_working_precision_is_restored_after_success_and_failure():
    before = ctx.prec
    enclose(lambda: real(2).sqrt(), bits=500)
    assert ctx.prec == before

    def breaks():
        assert ctx.prec != before
        raise RuntimeError("inside")

    for evaluate in (
        lambda: enclose(breaks, bits=300),
        lambda: upper(breaks),
        lambda: lower(breaks),
    ):
        with pytest.raises(RuntimeError, match="inside"):
            evaluate()
        assert ctx.prec == before


def test_an_evaluation_inside_an_evaluation_keeps_the_outer_precision():
    def outer():
        precision = ctx.prec
        enclose(lambda: real(3).sqrt(), bits=999)
        assert ctx.prec == precision
        return real(2).sqrt()

    assert enclose(outer, bits=100) == enclose(lambda: real(2).sqrt(), bits=100)


def test_threads_at_different_precisions_all_get_right_bounds_undisturbed():
    wrong, barrier, before = [], threading.Barrier(8), ctx.prec

    def root_of_two():
        precision = ctx.prec
        time.sleep(0)  # an invitation to every other thread
        root = real(2).sqrt()
        if ctx.prec != precision:
            wrong.append((precision, ctx.prec))
        return root

    def work(start):
        barrier.wait()
        for turn in range(60):
            bits = 20 + (start * 37 + turn * 91) % 900
            lo, hi = enclose(root_of_two, bits=bits)
            if not (lo * lo <= 2 << 2 * bits <= hi * hi and hi - lo <= 2):
                wrong.append((start, bits))

    threads = [threading.Thread(target=work, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert ctx.prec == before


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_of_its_parent():
    """The lock is held by another thread at the moment of the fork."""
    held, release = threading.Event(), threading.Event()

    def hold():
        with exact._arb_lock:
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(5)
    pid = os.fork()
    if pid == 0:
        ok = enclose(lambda: real(1).exp(), bits=10) == (2783, 2784)
        os._exit(0 if ok else 1)
    deadline = time.monotonic() + 10
    done, status = os.waitpid(pid, os.WNOHANG)
    while not done and time.monotonic() < deadline:
        time.sleep(0.02)
        done, status = os.waitpid(pid, os.WNOHANG)
    release.set()
    thread.join()
    if not done:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert done, "the child waits for a lock that nobody will release"
    assert os.waitstatus_to_exitcode(status) == 0
