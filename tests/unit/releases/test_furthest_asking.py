"""The choice of the worst guess through the door, on trial, and from a transcript."""

from fractions import Fraction

import numpy as np
import pytest
from cells_ask import CellsAsk
from scipy.sparse import csr_array

from door import count_query, curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Price
from noisegate.errors import Bug, Unsupported
from noisegate.mechanisms.partitions.furthest import Furthest
from noisegate.privacy.event import DeclaredEvent, DeclaredZCDPEvent, ExponentialEvent
from noisegate.releases.ask.asking import DoorAsk
from noisegate.releases.ask.transcript import Listening, Told
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Matrix, Strategy
from refusals import about

CELLS = count_query(by="ward")  # 75, 25, 0
PAIRS = Matrix(csr_array(np.array([[1, 1, 0], [0, 1, 1], [2, 0, 1]])))
GUESSES = np.array([100, 25, 50])


def measured(guesses, *more, block=PAIRS):
    query = Query(CELLS.tally, Strategy(3, (block,)))
    choice = Furthest.for_epsilon(1, guesses=guesses, score_sensitivity=2)
    return Measurement(query=query, mechanisms=(choice, *more))


def test_the_event_counts_how_far_a_unit_moves_one_answer():
    assert measured((1, 2, 3)).event() == ExponentialEvent(epsilon=Fraction(1))
    alone = Groups(np.arange(3, dtype=np.int32), 3)
    assert measured((1, 2, 3), block=alone).event() == ExponentialEvent(epsilon=Fraction(1, 2))


@pytest.mark.parametrize("guesses", [(1,), (1, 2, 3, 4)])
def test_other_numbers_of_guesses_are_refused(guesses):
    with pytest.raises(Unsupported, check=about("guesses")):
        measured(guesses)


def test_it_is_one_choice_about_one_block():
    choice = Furthest(factor=1, guesses=(1, 2, 3))
    with pytest.raises(Unsupported):
        measured((1, 2, 3), choice)
    with pytest.raises(Unsupported):
        Measurement(query=CELLS, mechanisms=(choice,))


@pytest.mark.parametrize("gaussian", [False, True])
def test_a_share_buys_the_sharpest_choice_that_it_pays_for(gaussian):
    price = Price(amount=Fraction(80), gaussian=gaussian)
    accounts = {"accountant": "zcdp", "delta": "1e-6"} if gaussian else {}
    door = curator(budget=1000, **accounts)
    event = DeclaredZCDPEvent(rho=80) if gaussian else DeclaredEvent(epsilon=80)
    with door.allowance(event, question="q", request_id="1") as allowed:
        ask = Listening(DoorAsk(allowed.whole, CELLS, price, shape=(3,)))
        chosen = ask.furthest(PAIRS, GUESSES, Fraction(1, 2))
        used = (
            door.ledger.quote(allowed.used(), account="clinic").charges["clinic"].as_fractions()[0]
        )
    assert chosen == 2  # its guess is off by 100, the others by 0: e^-1000
    assert 40 * (1 - Fraction(1, 10**9)) <= used <= 40
    told = Told(price, shape=(3,), moved=1, rounds=tuple(ask.rounds))
    assert told.furthest(PAIRS, GUESSES, Fraction(1, 2)) == 2


def test_a_trial_pays_like_the_door():
    ask = CellsAsk([75, 25, 0], Fraction(80))
    assert ask.furthest(PAIRS, GUESSES, Fraction(1, 2)) == 2
    assert ask.spent.tolist() == [0.5] * 3
    with pytest.raises(Bug):
        ask.furthest(PAIRS, GUESSES, Fraction(2, 3))
