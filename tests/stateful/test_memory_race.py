"""A budget for arrays is one budget: for clones in threads, and in forked children not at all."""

import os
import warnings
from fractions import Fraction
from threading import Barrier, Thread

import numpy as np
import pytest
from sklearn.base import clone

import noisegate
from noisegate.errors import LedgerError, OverBudget
from noisegate.learners import StandardScaler

ROWS = np.linspace(0, 1, 60).reshape(30, 2)


def scaler(epsilon):
    return StandardScaler(epsilon=epsilon, bounds=(0, 1), memory=noisegate.memory(1))


def test_clones_in_threads_share_one_budget():
    """Four at once ask for a third each: three are paid for, whoever comes first."""
    asked, start, ends = scaler(Fraction(1, 3)), Barrier(4), []

    def fit(part):
        start.wait()
        try:
            ends.append(clone(asked).fit(ROWS[part::4]).cost_.epsilon)
        except OverBudget:
            ends.append(None)

    threads = [Thread(target=fit, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count(Fraction(1, 3)) == 3
    assert ends.count(None) == 1
    assert asked.memory.spent.epsilon == 1
    assert asked.memory.ledger.verify().ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_cannot_spend_the_budget_again():
    asked = scaler(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads
        child = os.fork()
    if child == 0:
        try:
            asked.fit(ROWS)
        except LedgerError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert asked.fit(ROWS).cost_.epsilon == 1
