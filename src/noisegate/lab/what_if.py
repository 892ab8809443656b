"""Before a budget is chosen: what a count costs, how sharp it is, how many of them fit."""

from fractions import Fraction

from noisegate.accounting.accountants import accountant_named
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.planning.budgets import questions, questions_optimal, sample_size
from noisegate.planning.calibrate import geometric_error, geometric_scale_for_error
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.privacy.loss import ApproxDP, decimal_up


def what_if(
    *,
    epsilon: Number | None,
    within: Number | None,
    confidence: Number,
    budget: Number,
    delta: Number,
) -> list[tuple[str, str]]:
    """Facts about counts of persons, each person being one row.

    >>> facts = dict(what_if(epsilon="0.1", within=None, confidence="0.95", budget=1, delta=0))
    >>> facts["error of one count"], facts["counts that fit, sums of ε"]
    ('± 30', '10')
    """
    if (epsilon is None) == (within is None):
        raise SpecError("Give epsilon or within.", fix="Use exactly one of the two.")
    sure, total = fraction(confidence, name="confidence"), ApproxDP(budget, delta)
    if within is None:
        scale = 1 / positive(epsilon if epsilon is not None else 0, name="epsilon")
    else:
        scale = geometric_scale_for_error(within, confidence=sure)
    each, event = 1 / scale, GeometricEvent(scale=scale, sensitivity=L1(1))
    rows = sample_size(bound=1, accuracy="0.01", epsilon=each, failure=1 - sure)
    facts = [
        ("price of one count", f"ε = {decimal_up(each)}"),
        ("noise", f"geometric, scale {decimal_up(scale)}"),
        ("error of one count", f"± {geometric_error(scale, confidence=sure):,}"),
        (
            "error of 100 counts at once",
            f"± {geometric_error(scale, confidence=sure, cells=100):,}",
        ),
        ("rows for a share within 1 %", f"{rows:,}"),
        (
            "counts that fit, sums of ε",
            f"{questions(event, total, accountant=accountant_named('pure')):,}",
        ),
    ]
    return facts + (_with_delta(event, total, each) if total.delta else [])


def _with_delta(event: GeometricEvent, total: ApproxDP, each: Fraction) -> list[tuple[str, str]]:
    concentrated = questions(event, total, accountant=accountant_named("zcdp"))
    optimal = questions_optimal(total, epsilon_each=each)
    return [
        ("… on a zcdp account", f"{concentrated:,}"),
        ("… at best, if fixed beforehand", f"{optimal:,}"),
    ]
