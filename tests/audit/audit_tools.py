"""What statistical audits share: a lower bound on ε from counted events, and a false-alarm budget.

An audit fixes two neighbours and an event before it draws. It reports a violation only if the lower
confidence bound on ε exceeds the claim, which an honest mechanism does with probability at most its
share of the budget. A broken copy must be reported: that is the proof of power.
"""

from noisegate.audit.confidence import epsilon_lower


class FalseAlarmBudget:
    """The whole suite may raise one false alarm in a million runs; each audit draws its share."""

    def __init__(self, total=1e-6, share=1e-9):
        self._left, self._share = total, share

    def share(self):
        if self._left < self._share:
            raise AssertionError("The false-alarm budget is spent: use fewer audits.")
        self._left -= self._share
        return self._share


BUDGET = FalseAlarmBudget()


def count_event(sample, event, *, trials):
    """How often an event occurs in independent draws."""
    return sum(bool(event(sample())) for _ in range(trials))


def passes(epsilon, hits, hits_neighbour, *, trials, delta=0.0):
    """Whether the audit finds no violation of (ε, δ). False alarms: once in 10⁹ runs."""
    found = epsilon_lower(hits, hits_neighbour, trials=trials, alpha=BUDGET.share(), delta=delta)
    return found <= epsilon
