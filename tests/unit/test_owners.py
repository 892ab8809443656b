"""Several owners, one sum: masks cancel, drop-outs are borne, nobody shows its own numbers."""

import json
from fractions import Fraction
from itertools import combinations
from multiprocessing import Pipe
from threading import Thread

import numpy as np
import pytest
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.curator.owner import PRIME, Agreement, Owner, joined, pair_mask, split, stream
from noisegate.errors import NoisegateError, OverBudget, RequestConflict, SpecError, Unsupported
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.geometric import Geometric
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.asking import variance_of
from noisegate.releases.owners import OwnersRelease, aggregate, fourier, opened, plain, serve

SURE = Fraction(900)  # noise is 0, but for one draw in e^800


def agreement(owners=5, drop_outs=1, colluding=1, *, epsilon=SURE, block=None, session="may"):
    return Agreement(
        session=session, owners=owners, drop_outs=drop_outs, colluding=colluding,
        block=block or plain(4), per_unit=1, epsilon=epsilon,
    )  # fmt: skip


def series(agreed):
    return [
        np.arange(agreed.block.cells, dtype=np.int64) * 10 + number
        for number in range(agreed.owners)
    ]


def owner_of(agreed, number, budget=None, ledger=None):
    if ledger is None:
        ledger = open_ledger(":memory:")
        ledger.open_account(
            "o", parent=None, accountant="pure", budget=ApproxDP(budget or agreed.epsilon),
            unit="person",
        )  # fmt: skip
    return Owner(agreed, number, series(agreed)[number], ledger, "o")


class Session:
    """All steps by hand, so that a test can stop, look and meddle."""

    def __init__(self, agreed, budget=None):
        self.agreed = agreed
        self.owners = {n: owner_of(agreed, n, budget) for n in range(agreed.owners)}
        self.roster = {n: owner.advertise() for n, owner in self.owners.items()}
        self.pieces = {n: owner.share(self.roster) for n, owner in self.owners.items()}

    def contribute(self, *numbers):
        return {
            n: self.owners[n].contribute({s: p[n] for s, p in self.pieces.items() if s != n})
            for n in numbers
        }

    def reveal(self, stayed, *numbers):
        return {n: self.owners[n].reveal(stayed) for n in numbers}

    def open(self, masked, revealed):
        return opened(self.agreed, self.roster, masked, revealed, list(self.pieces))


def test_the_sum_comes_out_and_nothing_else_does():
    session = Session(agreement())
    masked = session.contribute(*range(5))
    found = session.open(masked, session.reveal(list(range(5)), *range(5)))
    assert found.tolist() == sum(series(session.agreed)).tolist()
    for number, vector in masked.items():  # by chance once in 2^58
        assert abs(vector.view(np.int64) - series(session.agreed)[number]).min() > 64


def test_an_owner_that_drops_out_is_left_out_of_the_sum():
    session = Session(agreement(7, 2, 1))
    masked = session.contribute(0, 1, 3, 4, 6)
    found = session.open(masked, session.reveal([0, 1, 3, 4, 6], 0, 1, 3, 4, 6))
    own = series(session.agreed)
    assert found.tolist() == sum(own[n] for n in (0, 1, 3, 4, 6)).tolist()


def test_no_mask_but_the_right_ones_opens_the_sum():
    session = Session(agreement())
    masked = session.contribute(*range(5))
    revealed = session.reveal(list(range(5)), *range(5))
    del masked[2]  # the sum of the others alone: their masks with 2 do not cancel
    with pytest.raises(Unsupported):
        session.open(masked, revealed)


def test_two_masks_of_one_owner_cannot_both_be_asked_for():
    """A lying aggregator: some are told that 4 stayed, others that it left; 2 T > n + colluding."""
    for owners, drop_outs, colluding in [(5, 1, 1), (5, 2, 0), (7, 2, 2), (9, 3, 2)]:
        agreed = agreement(owners, drop_outs, colluding)
        others = owners - 1
        honest = others - colluding
        for told_left in range(honest + 1):
            own, pairs = honest - told_left + colluding + 1, told_left + colluding
            assert own < agreed.threshold or pairs < agreed.threshold
    session = Session(agreement())
    session.contribute(*range(5))
    session.owners[0].reveal([0, 1, 2, 3, 4])
    with pytest.raises(RequestConflict):
        session.owners[0].reveal([0, 1, 2, 3])


def test_that_count_catches_an_agreement_with_too_low_a_threshold():
    owners, colluding, threshold = 5, 1, 3  # 2 T = n + colluding
    honest = owners - 1 - colluding
    assert any(
        honest - left + colluding + 1 >= threshold and left + colluding >= threshold
        for left in range(honest + 1)
    )
    with pytest.raises(SpecError):
        agreement(owners, owners - threshold, colluding)


def test_an_owner_goes_on_with_no_fewer_owners_than_agreed():
    agreed = agreement()
    owners = {n: owner_of(agreed, n) for n in range(5)}
    roster = {n: owner.advertise() for n, owner in owners.items()}
    with pytest.raises(Unsupported):
        owners[0].share({n: roster[n] for n in (0, 1, 2)})
    with pytest.raises(Unsupported):
        owners[1].share({**roster, 1: roster[2]})
    with pytest.raises(Unsupported):
        owners[2].share({**roster, 5: roster[1]})
    session = Session(agreed)
    with pytest.raises(Unsupported):
        session.owners[0].contribute({1: session.pieces[1][0]})
    session = Session(agreed)
    session.contribute(*range(5))
    with pytest.raises(Unsupported):
        session.owners[0].reveal([0, 1, 2])
    with pytest.raises(Unsupported):
        session.owners[1].reveal([0, 2, 3, 4])


def test_a_message_that_was_changed_is_noticed():
    session = Session(agreement())
    session.pieces[1][0] = session.pieces[1][0][:-1] + b"x"
    with pytest.raises(Unsupported, match="changed"):
        session.contribute(0)


def test_an_owner_pays_before_it_contributes_and_once_for_a_session():
    agreed = agreement(epsilon=Fraction(1))
    poor = Session(agreed, budget=Fraction(1, 2))
    with pytest.raises(OverBudget):
        poor.contribute(0)
    assert poor.owners[0].ledger.balance("o").spent.epsilon == 0
    rich = Session(agreed)
    rich.contribute(0)
    ledger = rich.owners[0].ledger
    assert ledger.balance("o").spent.epsilon == 1
    again = Session(agreed)
    again.owners[0].ledger = ledger
    with pytest.raises(RequestConflict):
        again.contribute(0)


def test_pieces_give_the_secret_to_as_many_as_agreed_and_say_nothing_to_fewer():
    secret = bytes(range(32))
    pieces = dict(enumerate(split(secret, 5, 3, SYSTEM)))
    for some in combinations(range(5), 3):
        assert joined({n: pieces[n] for n in some}) == secret
    # for two pieces and any other secret there is a polynomial with the same two pieces
    other = int.from_bytes(bytes(32))
    two = {1: pieces[0], 2: pieces[1]}
    slope = (two[2] - 2 * two[1] + other) * pow(2, -1, PRIME) % PRIME
    rest = (two[1] - other - slope) % PRIME
    for at, value in two.items():
        assert (other + rest * at + slope * at * at) % PRIME == value


def test_masks_of_a_pair_cancel_and_uses_have_streams_of_their_own():
    session = Session(agreement())
    one, other = session.owners[0], session.owners[1]
    total = pair_mask(one._masks, session.roster[1], (0, 1), 4) + pair_mask(
        other._masks, session.roster[0], (1, 0), 4
    )
    assert not total.any()
    assert stream(b"k" * 32, b"own", 4).tolist() != stream(b"k" * 32, b"pair 0 1", 4).tolist()


def test_the_noise_of_the_sum_is_that_of_all_who_stayed():
    """Mean square of 400 sums, within 6 standard errors of normal size: 1e-8."""
    agreed = agreement(4, 1, 1, epsilon=Fraction(1, 2), block=plain(400))
    session = Session(agreed)
    masked = session.contribute(*range(4))
    numbers = session.open(masked, session.reveal(list(range(4)), *range(4)))
    found = OwnersRelease(agreement=agreed, numbers=numbers, stayed=(0, 1, 2, 3))
    errors = numbers - sum(series(agreed))
    assert found.variance == pytest.approx(2 * variance_of(Geometric(scale=Fraction(2))))
    assert abs(np.mean(errors**2.0) / found.variance - 1) < 6 * np.sqrt(5 / 400)


def test_fourier_coefficients_of_the_sum_give_a_smooth_series_back():
    size = 24
    block = fourier(size, 3)
    agreed = agreement(3, 0, 1, block=block, epsilon=Fraction(10**6))
    assert agreed.moved == int(np.abs(block.matrix.toarray()).sum(axis=0).max())
    wave = np.rint(1000 + 500 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.int64)
    owners = {n: Owner(agreed, n, wave, owner_of(agreed, n).ledger, "o") for n in range(3)}
    session = Session.__new__(Session)
    session.agreed, session.owners = agreed, owners
    session.roster = {n: owner.advertise() for n, owner in owners.items()}
    session.pieces = {n: owner.share(session.roster) for n, owner in owners.items()}
    masked = session.contribute(0, 1, 2)
    numbers = session.open(masked, session.reveal([0, 1, 2], 0, 1, 2))
    found = OwnersRelease(agreement=agreed, numbers=numbers, stayed=(0, 1, 2))
    assert found.series() == pytest.approx(3 * wave, abs=8)
    assert found.margins().max() < 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"owners": 1}, {"owners": 4, "drop_outs": 2}, {"drop_outs": -1}, {"colluding": 3},
        {"epsilon": Fraction(0)}, {"epsilon": Fraction(10**9)}, {"session": ""},
    ],
)  # fmt: skip
def test_agreements_that_cannot_be_kept_are_refused(wrong):
    with pytest.raises(SpecError):
        agreement(**wrong)


def test_bad_series_are_refused():
    agreed = agreement()
    ledger = owner_of(agreed, 0).ledger
    for number, own in [(5, series(agreed)[0]), (0, np.zeros(3, np.int64)), (0, np.zeros(4))]:
        with pytest.raises(NoisegateError):
            Owner(agreed, number, own, ledger, "o")
    with pytest.raises(SpecError):
        fourier(10, 6)


def by_pipes(agreed, leaving):
    """Owners as threads behind pipes: the same messages, without the time to start processes."""
    pipes = {}
    for number in range(agreed.owners):
        here, there = Pipe()
        pipes[number] = here
        leave = {"leave_before": leaving.get(number)}
        Thread(target=serve, args=(there, owner_of(agreed, number)), kwargs=leave).start()
    try:
        return aggregate(agreed, pipes)
    finally:
        for pipe in pipes.values():
            pipe.close()


@pytest.mark.parametrize("step", ["advertise", "share", "contribute", "reveal"])
def test_a_session_bears_the_agreed_drop_outs_at_any_step(step):
    agreed = agreement()
    found = by_pipes(agreed, {3: step})
    expected = sum(series(agreed)[n] for n in found.stayed)
    assert found.numbers.tolist() == expected.tolist()
    assert (3 in found.stayed) == (step == "reveal")
    assert "dropped out" in str(found)


def test_a_session_with_more_drop_outs_says_nothing():
    with pytest.raises(Unsupported, match="nothing comes out"):
        by_pipes(agreement(), {1: "contribute", 3: "reveal"})


def test_owners_in_processes_of_their_own_add_up_at_the_command_line():
    asked = ["lab", "owners", "--owners", "4", "--colluding", "1", "--epsilon", "900", "--json"]
    done = CliRunner().invoke(app, asked)
    found = json.loads(done.stdout)
    assert found["stayed"] == [0, 1, 2]
    assert found["sum"] == pytest.approx(found["exact"], abs=1e-6)
    assert "any 1 owners together" in found["promise"]


def test_the_command_line_refuses_what_owners_cannot_bear():
    done = CliRunner().invoke(app, ["lab", "owners", "--owners", "3", "--drop-outs", "2"])
    assert done.exit_code != 0
