"""Several owners, one sum: masks cancel, drop-outs are borne, nobody shows its own numbers."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from multiprocessing import Pipe
from threading import Thread

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.curator.owner import (
    PRIME,
    Agreement,
    Owner,
    joined,
    named,
    pair_mask,
    split,
    stream,
)
from noisegate.desk.terms.price import variance_of
from noisegate.errors import (
    InsecureBits,
    NoisegateError,
    OverBudget,
    RequestConflict,
    SpecError,
    Unsupported,
)
from noisegate.federated.network import aggregate, opened, serve
from noisegate.federated.release import OwnersRelease, fourier, plain
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.strategy import Groups
from refusals import about

SURE = Fraction(900)  # noise is 0, but for one draw in e^800


SWAPPED = Groups(np.array([1, 0, 2, 3], np.int32), 4)


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


def passed_on(letters, reader):
    return {n: texts[reader] for n, texts in letters.items() if reader in texts}


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
        proofs = {n: self.owners[n].agree(stayed) for n in numbers}
        return {n: self.owners[n].reveal(passed_on(proofs, n)) for n in numbers}

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


def two_views(owners, threshold, colluding):
    """Whether two views can find enough proofs: of those who collude both, of the others one."""
    honest = owners - colluding
    return any(min(one, honest - one) + colluding >= threshold for one in range(honest + 1))


def test_two_views_cannot_both_be_agreed_on():
    for owners, drop_outs, colluding in [(5, 1, 1), (5, 2, 0), (7, 2, 2), (9, 3, 2)]:
        assert not two_views(owners, agreement(owners, drop_outs, colluding).threshold, colluding)


def test_an_owner_agrees_once_and_reveals_once():
    session = Session(agreement())
    session.contribute(*range(5))
    proofs = {n: session.owners[n].agree(range(5)) for n in range(5)}
    with pytest.raises(RequestConflict):
        session.owners[0].agree(range(4))
    session.owners[0].reveal(passed_on(proofs, 0))
    with pytest.raises(RequestConflict):
        session.owners[0].reveal(passed_on(proofs, 0))
    early = Session(agreement())
    early.contribute(*range(5))
    with pytest.raises(RequestConflict):
        early.owners[0].reveal({})


VICTIM, A, B, E, F = range(5)
HEARD = {VICTIM: {A, B}, A: {0, 2, 3, 4}, B: {0, 1, 3, 4}, E: {0, 1, 2, 4}, F: {0, 1, 2, 3}}
STAYED = {VICTIM: [0, 1, 2], A: [0, 1, 3], B: [0, 2, 3], E: [0, 3, 4], F: [0, 3, 4]}


def attacked():
    """A lying aggregator, nobody colluding: each owner is told something else, to bare owner 0."""
    session = Session(agreement(5, 2, 0))
    masked = {
        n: owner.contribute({s: session.pieces[s][n] for s in HEARD[n]})
        for n, owner in session.owners.items()
    }
    return session, masked, {n: session.owners[n].agree(STAYED[n]) for n in range(5)}


def test_an_aggregator_that_tells_owners_different_things_learns_nothing():
    for pick in (lambda _: True, lambda n: n in (E, F), lambda _: False):
        session, _, proofs = attacked()
        for n, owner in session.owners.items():
            told = {s: text for s, text in passed_on(proofs, n).items() if pick(s)}
            with pytest.raises(Unsupported, check=about("participants", "too-few")):
                owner.reveal(told)


def test_without_proofs_that_attack_bares_one_owner(monkeypatch):
    monkeypatch.setattr("noisegate.curator.owner.compare_digest", lambda *_: True)
    monkeypatch.setattr(Owner, "_require_enough", lambda *_, **__: None)
    session, masked, proofs = attacked()
    shown = {
        n: owner.reveal({s: t for s, t in passed_on(proofs, n).items() if s in STAYED[n]})
        for n, owner in session.owners.items()
    }
    total = masked[VICTIM] - stream(
        joined({n: each.own[VICTIM] for n, each in shown.items()}), b"own", 4
    )
    for other in (A, B):
        key = joined({n: each.pairs[other] for n, each in shown.items() if other in each.pairs})
        secret, heard = X25519PrivateKey.from_private_bytes(key), named({VICTIM, A, B})
        total += pair_mask(secret, session.roster[VICTIM], (other, VICTIM), heard, 4)
    assert total.view(np.int64).tolist() == series(session.agreed)[VICTIM].tolist()


def test_one_owner_that_heard_others_or_was_told_of_others_stops_the_rest():
    heard_less = Session(agreement())
    heard_less.contribute(0, 1, 2, 3)
    heard_less.owners[4].contribute({n: heard_less.pieces[n][4] for n in (0, 1, 2)})
    told_less = Session(agreement())
    told_less.contribute(*range(5))
    for session, told in ((heard_less, [0, 1, 2, 4]), (told_less, range(5))):
        proofs = {n: session.owners[n].agree(told) for n in (0, 1, 2)}
        proofs[4] = session.owners[4].agree([0, 1, 2, 4])
        with pytest.raises(Unsupported, check=about("participants")):
            session.owners[0].reveal(passed_on(proofs, 0))


def test_a_proof_is_for_one_reader_from_one_sender():
    def ready():
        session = Session(agreement())
        session.contribute(*range(5))
        return session, {n: session.owners[n].agree(range(5)) for n in range(5)}

    for wrong in (
        lambda proofs: {1: proofs[1][2], 2: proofs[2][0], 3: proofs[3][0]},  # another reader's
        lambda proofs: {1: proofs[0][1], 2: proofs[2][0], 3: proofs[3][0]},  # sent back
        lambda proofs: {1: proofs[2][0], 2: proofs[2][0], 3: proofs[3][0]},  # another sender's
        lambda proofs: {n: proofs[n][0] for n in (1, 2)},  # too few
        lambda proofs: {1: proofs[1][0], 2: proofs[2][0], 7: b""},  # nobody's
    ):
        session, proofs = ready()
        with pytest.raises(Unsupported):
            session.owners[0].reveal(wrong(proofs))
    session, proofs = ready()
    assert session.owners[0].reveal({n: proofs[n][0] for n in (1, 2, 3)}).own.keys() == {*range(5)}


# what can show, counted out: all that honest owners may have heard, for each view that is proved


def shows(heard, view, honest, *, key=lambda each: each):
    """The groups whose sums show. A mask stays if it is in one vector only and nobody undid it.

    Who heard nobody did not contribute.
    """
    listed, stayed = view
    masks, there = {}, {n for n in honest if heard[n]}
    for n in there:
        for other in heard[n] & honest - {n}:
            if not {n, other} & (listed - stayed):
                masks.setdefault((frozenset((n, other)), key(heard[n])), set()).add(n)
    groups = {n: {n} for n in there}
    for held in masks.values():
        joint = set().union(*(groups[n] for n in held))
        groups.update(dict.fromkeys(joint, joint))
    hidden = (there - stayed) | {n for held in masks.values() if len(held) == 1 for n in held}
    return [group for group in groups.values() if not group & hidden]


def lists(owners, least, *, inside=None, own=()):
    whole = range(owners) if inside is None else inside
    return [
        frozenset(each)
        for size in range(least, len(whole) + 1)
        for each in combinations(whole, size)
        if set(own) <= set(each)
    ]


def least_shown(owners, drop_outs, colluding, **more):
    """The smallest group whose sum shows, whatever the aggregator told whom."""
    threshold, honest = owners - drop_outs, frozenset(range(owners - colluding))
    found = set()
    for listed in lists(owners, threshold):
        for stayed in lists(owners, threshold, inside=sorted(listed)):
            for proving in combinations(sorted(stayed & honest), threshold - colluding):
                rest = sorted(honest - set(proving))
                choices = [[frozenset(), *lists(owners, threshold, own=[n])] for n in rest]
                for other in product(*choices):
                    heard = dict.fromkeys(proving, listed) | dict(zip(rest, other, strict=True))
                    groups = shows(heard, (listed, stayed), honest, **more)
                    found |= {len(group) for group in groups}
    return min(found)


@pytest.mark.parametrize("agreed", [(3, 1, 0), (4, 1, 1), (5, 1, 2), (5, 2, 0)])
def test_no_sum_shows_of_fewer_honest_owners_than_agreed(agreed):
    owners, drop_outs, colluding = agreed
    assert least_shown(*agreed) == owners - drop_outs - colluding


def test_that_count_catches_an_agreement_with_too_low_a_threshold():
    owners, colluding, threshold = 5, 1, 3  # 2 T = n + colluding
    assert two_views(owners, threshold, colluding)
    assert least_shown(owners, owners - threshold, colluding) < threshold - colluding
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
        session.owners[0].agree([0, 1, 2])
    with pytest.raises(Unsupported):
        session.owners[1].agree([0, 2, 3, 4])


def test_a_message_that_was_changed_is_noticed():
    session = Session(agreement())
    session.pieces[1][0] = session.pieces[1][0][:-1] + b"x"
    with pytest.raises(Unsupported, check=about("changed")):
        session.contribute(0)


@pytest.mark.parametrize(
    "other",
    [{"epsilon": Fraction(40)}, {"drop_outs": 0}, {"colluding": 0}, {"block": SWAPPED}],
)
def test_owners_with_different_agreements_do_not_go_on(other):
    agreed = agreement(epsilon=Fraction(1))
    session = Session.__new__(Session)
    mixed = agreement(**({"epsilon": Fraction(1)} | other))
    session.owners = {n: owner_of(mixed if n else agreed, n) for n in range(5)}
    session.roster = {n: owner.advertise() for n, owner in session.owners.items()}
    session.pieces = {n: owner.share(session.roster) for n, owner in session.owners.items()}
    for n in range(5):
        with pytest.raises(Unsupported, check=about("changed")):
            session.contribute(n)
        assert session.owners[n].ledger.balance("o").spent.epsilon == 0


def test_that_check_catches_messages_without_the_name_of_the_agreement(monkeypatch):
    monkeypatch.setattr(Agreement, "name", lambda _: b"")
    with pytest.raises(pytest.fail.Exception):
        test_owners_with_different_agreements_do_not_go_on({"epsilon": Fraction(40)})


def test_a_step_that_failed_is_the_last():
    session = Session(agreement())
    session.pieces[1][0] = b"x" * 148
    with pytest.raises(Unsupported):
        session.contribute(0)
    for step in (session.owners[0].contribute, session.owners[0].agree, session.owners[0].reveal):
        with pytest.raises(RequestConflict):
            step({})


@pytest.mark.parametrize("bad", [b"short", bytes(32)])
def test_keys_that_are_none_are_refused_before_any_charge(bad):
    for place in ("masks", "messages"):
        owners = {n: owner_of(agreement(), n) for n in range(5)}
        roster = {n: owner.advertise() for n, owner in owners.items()}
        roster[1] = replace(roster[1], **{place: bad})
        with pytest.raises(Unsupported, check=about("key")):
            owners[0].share(roster)


def test_a_durable_ledger_wants_the_noise_of_the_system(tmp_path):
    class TestBits(type(SYSTEM)):
        pass

    ledger = open_ledger(str(tmp_path / "l.db"))
    with pytest.raises(InsecureBits):
        Owner(agreement(), 0, series(agreement())[0], ledger, "o", TestBits())


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
    all_five, four = named(range(5)), named(range(4))
    mine = pair_mask(one._masks, session.roster[1], (0, 1), all_five, 4)
    assert not (mine + pair_mask(other._masks, session.roster[0], (1, 0), all_five, 4)).any()
    assert (mine + pair_mask(other._masks, session.roster[0], (1, 0), four, 4)).all()
    assert named([1, 0]) == named({0, 1}) != named([0], [1])
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


@pytest.mark.parametrize("step", ["advertise", "share", "contribute", "agree", "reveal"])
def test_a_session_bears_the_agreed_drop_outs_at_any_step(step):
    agreed = agreement()
    found = by_pipes(agreed, {3: step})
    expected = sum(series(agreed)[n] for n in found.stayed)
    assert found.numbers.tolist() == expected.tolist()
    assert (3 in found.stayed) == (step in ("agree", "reveal"))
    said = f"{agreed.block.cells} periods ± {found.margins().max():.1f} at 95 %"
    assert f"dropped out), {said}" in str(found)


def test_a_session_with_more_drop_outs_says_nothing():
    with pytest.raises(Unsupported, check=about("too-few")):
        by_pipes(agreement(), {1: "contribute", 3: "reveal"})


def test_a_sum_is_drawn_with_its_margins_below_its_price():
    pytest.importorskip("altair")
    agreed = agreement(epsilon=Fraction(1))
    made = OwnersRelease(agreement=agreed, numbers=np.array([5, 60, 70, 80]), stayed=(0, 1, 2, 3))
    spec = made.plot(0.9).to_dict()
    (rows,) = spec["datasets"].values()
    off = made.margins(0.9).tolist()
    ends = zip([5, 60, 70, 80], off, strict=True)
    assert [(row["sum"], row["low"], row["high"]) for row in rows] == [
        pytest.approx((value, value - wide, value + wide)) for value, wide in ends
    ]
    assert spec["title"]["text"] == ["Sum of 4 of 5 owners"]
    assert " ".join(spec["title"]["subtitle"]).startswith("Price ε = 1.")


def test_owners_in_processes_of_their_own_add_up_at_the_command_line(tmp_path):
    drawn = tmp_path / "sum.svg"
    asked = ["lab", "owners", "--owners", "4", "--colluding", "1", "--epsilon", "900", "--json",
             "--save", str(drawn)]  # fmt: skip
    done = CliRunner().invoke(app, asked)
    found = json.loads(done.stdout)
    assert found["stayed"] == [0, 1, 2]
    assert found["sum"] == pytest.approx(found["exact"], abs=1e-6)
    assert "any 1 owners together" in found["promise"]
    assert "Sum of 3 of 4 owners" in drawn.read_text()


def test_the_command_line_refuses_what_owners_cannot_bear():
    done = CliRunner().invoke(app, ["lab", "owners", "--owners", "3", "--drop-outs", "2"])
    assert done.exit_code != 0
