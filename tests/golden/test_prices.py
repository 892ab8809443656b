"""The published price list: every kind of event under every accountant that may authorise.

``prices.csv`` was computed apart from the product, with mpmath at 50 digits from the formula in its
last column. A change here is a change of a guarantee.
"""

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from noisegate.accounting.accountants import accountant_named
from noisegate.errors import Unsupported
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.event import (
    EVENTS,
    AboveThresholdEvent,
    BoxNoiseEvent,
    CrowdCountsEvent,
    DeclaredEvent,
    DeclaredZCDPEvent,
    DiscreteGaussianEvent,
    ExponentialEvent,
    GaussianEvent,
    GeometricEvent,
    Group,
    InPart,
    KeySelectionEvent,
    LaplaceEvent,
    NothingEvent,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    ProposeTestReleaseEvent,
    Repeated,
    Sequential,
    SmoothLaplaceEvent,
    SmoothLognormalEvent,
    SmoothStudentEvent,
    ThresholdedGaussianEvent,
    TopKEvent,
)

TENTH = Fraction(1, 10)
GEOMETRIC = GeometricEvent(scale=Fraction(10), sensitivity=L1(1))
GAUSSIAN = GaussianEvent(variance=Fraction(50), sensitivity=L2(squared=1))
DISCRETE = DiscreteGaussianEvent(variance=Fraction(50), sensitivity=L2(squared=1))
KEYS = KeySelectionEvent(epsilon=TENTH, delta=Fraction(1, 10**8))
LISTED = {
    "nothing": NothingEvent(),
    "geometric scale 10 on 1": GEOMETRIC,
    "geometric scale 10 on 3": GeometricEvent(scale=Fraction(10), sensitivity=L1(3)),
    "laplace scale 10 on 1": LaplaceEvent(scale=Fraction(10), sensitivity=L1(1)),
    "box scale 10 on 1": BoxNoiseEvent(scale=Fraction(10), sensitivity=LInf1(1)),
    "discrete gaussian variance 50 on 1": DISCRETE,
    "gaussian variance 50 on 1": GAUSSIAN,
    "exponential 0.1": ExponentialEvent(epsilon=TENTH),
    "top 3 at 0.1": TopKEvent(k=3, epsilon_each=TENTH),
    "permute and flip 0.1": PermuteAndFlipEvent(epsilon=TENTH),
    "above threshold 0.1 + 0.2": AboveThresholdEvent(
        epsilon_threshold=TENTH, epsilon_queries=2 * TENTH, cutoff=4
    ),
    "key selection 0.1, 1e-8": KEYS,
    "thresholded gaussian variance 50, 3 keys, 1e-8": ThresholdedGaussianEvent(
        variance=Fraction(50), keys=3, delta="1e-8"
    ),
    "crowd of 40 in 1 of 10 at 0.1": CrowdCountsEvent(probability=TENTH, crowd=40, epsilon=TENTH),
    "smooth student 10, beta 0.02": SmoothStudentEvent(scale=10, beta="0.02"),
    "smooth laplace 20, beta 0.005, at 0.1": SmoothLaplaceEvent(
        scale=20, beta="0.005", epsilon=TENTH
    ),
    "smooth lognormal 20, beta 0.01, sigma 0.2": SmoothLognormalEvent(
        scale=20, beta="0.01", sigma="0.2"
    ),
    "propose 0.1, release 0.2, 1e-8": ProposeTestReleaseEvent(
        epsilon_test=TENTH, epsilon_release=2 * TENTH, delta="1e-8"
    ),
    "declared 0.1": DeclaredEvent(epsilon=TENTH),
    "declared rho 0.01": DeclaredZCDPEvent(rho=Fraction(1, 100)),
    "geometric, then keys": Sequential(events=(GEOMETRIC, KEYS)),
    "geometric beside keys": Parallel(events=(GEOMETRIC, KEYS)),
    "geometric 7 times": Repeated(event=GEOMETRIC, count=7),
    "geometric for 3 units": Group(event=GEOMETRIC, size=3),
    "keys for 2 units": Group(event=KEYS, size=2),
    "discrete gaussian for 3 units": Group(event=DISCRETE, size=3),
    "geometric on 1 in 100": PoissonSampled(event=GEOMETRIC, probability=Fraction(1, 100)),
    "geometric in a part": InPart(event=GEOMETRIC, partition="wards", part="north"),
    "gaussian on 1 in 100": PoissonSampled(event=GAUSSIAN, probability=Fraction(1, 100)),
}
ACCOUNTANTS = ("pure", "zcdp", "renyi-8")
with (Path(__file__).parent / "prices.csv").open(encoding="utf-8", newline="") as file:
    PRICES = list(csv.DictReader(file))


def test_the_list_covers_every_event_under_every_accountant():
    assert {(row["event"], row["accountant"]) for row in PRICES} == {
        (event, accountant) for event in LISTED for accountant in ACCOUNTANTS
    }
    assert {event.name for event in LISTED.values()} == set(EVENTS)


@pytest.mark.parametrize("row", PRICES, ids=lambda row: f"{row['event']}: {row['accountant']}")
def test_a_price_is_the_listed_one(row):
    accountant, event = accountant_named(row["accountant"]), LISTED[row["event"]]
    if row["amount"] == "refused":
        with pytest.raises(Unsupported):
            accountant.price(event)
        return
    for found, text in zip(
        accountant.price(event).as_fractions(), (row["amount"], row["delta"]), strict=True
    ):
        listed = Fraction(text)
        # Listed numbers are exact or have 22 digits; a price exceeds the truth by under a grain.
        assert abs(found - listed) <= max(listed / 10**21, Fraction(1, 10**29))
