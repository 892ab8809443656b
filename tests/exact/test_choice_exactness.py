"""Choices: the winners are those of the exact noisy scores, however close the race."""

from fractions import Fraction
from importlib import import_module
from itertools import permutations

import mpmath
import numpy as np
import pytest
from bit_tree import RecordingBits, ReplayedBits, ScriptedBits, as_fraction, mp

from noisegate.noise.bits import SYSTEM
from noisegate.noise.choice import Contest, choose, choose_times

choice_module = import_module("noisegate.noise.choice")
TOP = (1 << 64) - 1
LATER = [0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x1111111111111111] * 8


@pytest.fixture(autouse=True)
def _precise():
    with mpmath.workdps(70):
        yield


def noisy_score(contest, index, word, noise):
    """The slow twin: the exact score plus noise of U = (word + ½) / 2**64."""
    exponential = -mpmath.log((mpmath.mpf(word) + 0.5) / 2**64)
    count = 1 if contest.multiplicity is None else int(contest.multiplicity[index])
    sample = exponential if noise == "exponential" else -mpmath.log(exponential)
    return mp(contest.factor * int(contest.scores[index])) + mpmath.log(count) + sample


def ranking(contest, words, noise):
    live = range(contest.scores.size)
    if contest.multiplicity is not None:
        live = [i for i in live if contest.multiplicity[i]]
    keys = {i: noisy_score(contest, i, word, noise) for i, word in zip(live, words, strict=True)}
    return sorted(keys, key=keys.get, reverse=True)


def random_contest(size, rng_words, *, factor, counted):
    scores = (rng_words(size) % np.uint64(30)).astype(np.int64) - 15
    counts = (rng_words(size) % np.uint64(4)).astype(np.int64) if counted else None
    if counts is not None:
        counts[:3] = 1 << 40
    return Contest(scores, Fraction(factor), counts)


def system_words(size):
    return SYSTEM.words(size, 64)


@pytest.mark.parametrize("factor", ["0", "1/1000", "1/3", "5"])
@pytest.mark.parametrize(
    ("noise", "counted"), [("gumbel", False), ("gumbel", True), ("exponential", False)]
)
@pytest.mark.parametrize("k", [1, 3])
def test_winners_are_the_largest_exact_noisy_scores(factor, noise, counted, k):
    for _ in range(20):
        contest = random_contest(12, system_words, factor=factor, counted=counted)
        recording = RecordingBits(SYSTEM)
        winners = choose(contest, k=k, noise=noise, bits=recording).tolist()
        words = recording.record[0][2].tolist()
        assert winners == ranking(contest, words, noise)[:k]


@pytest.mark.parametrize(
    ("noise", "counted"), [("gumbel", False), ("gumbel", True), ("exponential", False)]
)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("chunk", [4, 40])  # a race in parts; several races at once, and a rest
def test_each_of_many_choices_is_that_of_its_own_words(noise, counted, k, chunk, monkeypatch):
    monkeypatch.setattr(choice_module, "CHUNK", chunk)
    contest = random_contest(12, system_words, factor="1/3", counted=counted)
    recording = RecordingBits(SYSTEM)
    winners = choose_times(contest, 7, k=k, noise=noise, bits=recording)
    words = np.concatenate([part[2] for part in recording.record]).reshape(7, -1)
    for row, own in zip(winners.tolist(), words.tolist(), strict=True):
        assert row == ranking(contest, own, noise)[:k]


@pytest.mark.parametrize(
    ("noise", "counted"), [("gumbel", False), ("gumbel", True), ("exponential", False)]
)
@pytest.mark.parametrize("k", [1, 4])
def test_with_every_candidate_in_the_exact_race_the_same_bits_choose_the_same(
    noise, counted, k, monkeypatch
):
    contests = [random_contest(9, system_words, factor="1/4", counted=counted) for _ in range(40)]
    recordings = [RecordingBits(SYSTEM) for _ in contests]
    fast = [
        choose(contest, k=k, noise=noise, bits=bits).tolist()
        for contest, bits in zip(contests, recordings, strict=True)
    ]
    racers = []

    class Counted(choice_module._Racer):
        def __init__(self, *args):
            racers.append(args)
            super().__init__(*args)

    monkeypatch.setattr(choice_module, "_ULP", np.inf)
    monkeypatch.setattr(choice_module, "_Racer", Counted)
    slow = [
        choose(contest, k=k, noise=noise, bits=ReplayedBits(bits.record)).tolist()
        for contest, bits in zip(contests, recordings, strict=True)
    ]
    live = sum(bits.record[0][0] for bits in recordings)
    assert len(racers) == live, "floats still sorted somebody out"
    assert fast == slow


def rival_word(contest, word, noise):
    """The word that puts candidate 1 level with candidate 0, as closely as 64 bits allow."""
    lead = contest.factor * int(contest.scores[0] - contest.scores[1])
    if noise == "gumbel":
        count = (
            1
            if contest.multiplicity is None
            else Fraction(int(contest.multiplicity[1]), int(contest.multiplicity[0]))
        )
        exponential = -mpmath.log((mpmath.mpf(word) + 0.5) / 2**64)
        level = mpmath.exp(-exponential * mpmath.exp(-mp(lead)) * mp(count))
    else:
        level = (mpmath.mpf(word) + 0.5) / 2**64 * mpmath.exp(-mp(lead))
    return int(mpmath.floor(level * 2**64))


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize(
    "word", [1 << 20, 1 << 45, (1 << 62) + 12345, (1 << 63) + 987, TOP - (1 << 30)]
)
@pytest.mark.parametrize("lead", [0, 1, 7])
def test_close_races_are_decided_by_the_exact_scores(noise, word, lead):
    contest = Contest(np.array([lead, 0]), Fraction(1, 5))
    level = rival_word(contest, word, noise)
    for distance in [2, 3, 5, 17, *(1 << j for j in range(5, 40, 4))]:
        for rival in (level - distance, level + distance):
            if not 0 < rival < TOP:
                continue
            keys = [noisy_score(contest, i, w, noise) for i, w in enumerate((word, rival))]
            # U within half a word of the middle: clear only if no continuation can turn the race
            ends = [
                sorted(noisy_score(contest, i, w + d, noise) for d in (-0.5, 0.5))
                for i, w in enumerate((word, rival))
            ]
            if ends[0][0] > ends[1][1] or ends[1][0] > ends[0][1]:
                bits = ScriptedBits([word, rival])
                winner = choose(contest, noise=noise, bits=bits).tolist()
                assert winner == [int(keys[1] > keys[0])]


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize("word", [0, 12345, 0x7123456789ABCDEF, TOP])
def test_equal_words_are_decided_by_the_bits_that_follow(noise, word):
    contest, bits = Contest(np.array([5, 5]), Fraction(1)), ScriptedBits([word, word, 7, 1 << 60])
    assert choose(contest, noise=noise, bits=bits).tolist() in ([0], [1])
    assert bits.words_used == 4


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize("extreme", [0, 1, TOP - 1, TOP])
def test_extreme_words_never_push_others_out(noise, extreme, k):
    """A word of 0 or 2**64 - 1 leaves its noise unbounded; far below the rest it must not win."""
    hopeless = Contest(np.array([0, -1, -(10**6)]), Fraction(1))
    script = [1 << 63, 1 << 63, extreme, *LATER]
    assert choose(hopeless, k=k, noise=noise, bits=ScriptedBits(script)).tolist() == [0, 1][:k]


@pytest.mark.parametrize(("noise", "best"), [("gumbel", TOP), ("exponential", 0)])
def test_the_luckiest_word_wins_a_level_race(noise, best):
    level = Contest(np.zeros(4, np.int64), Fraction(1))
    script = [1 << 63, 1 << 62, best, 1 << 61, *LATER]
    assert choose(level, noise=noise, bits=ScriptedBits(script)).tolist() == [2]


def test_candidates_of_multiplicity_zero_never_win():
    contest = Contest(np.array([100, 0, 0]), Fraction(1), np.array([0, 1, 1]))
    for _ in range(50):
        assert set(choose(contest, k=2).tolist()) == {1, 2}


def test_stated_errors_cover_the_measured_ones_sixteen_times_over():
    """The float noise at the middle of its word, against 70 digits."""
    words = np.concatenate(
        [
            SYSTEM.words(1500, 64),
            SYSTEM.words(500, 64) >> np.uint64(20),
            ~(SYSTEM.words(500, 64) >> np.uint64(20)),
            np.array([(1 << 63) - 1, 1 << 63, (1 << 63) + 1], np.uint64),
            # U near 1/e, where -ln(-ln U) crosses zero
            np.uint64(6786177901268885504) + np.arange(0, 10**6, 20_000, dtype=np.uint64),
        ]
    )
    for noise in ("gumbel", "exponential"):
        value, error = choice_module._rough_noise(words, noise)
        for word, v, e in zip(words.tolist(), value.tolist(), error.tolist(), strict=True):
            edge = mpmath.mpf(word) / 2**64  # floats evaluate at the end that the bounds start from
            exponential = -mpmath.log(edge)
            true = exponential if noise == "exponential" else -mpmath.log(exponential)
            assert abs(v - true) <= e / 16


EDGES = [*range(1, 9), 1 << 10, 1 << 20, 1 << 40, (1 << 62) + 7]


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize("word", [*EDGES, *(TOP - edge for edge in EDGES)])
def test_stated_errors_cover_both_ends_of_what_a_word_leaves_open(noise, word):
    """U may be anywhere in [word, word + 1) / 2**64; at the extremes that is most of the error."""
    with np.errstate(all="ignore"):  # as `choose` does: the branch not taken may divide by zero
        value, error = choice_module._rough_noise(np.array([word], np.uint64), noise)
    for end in (word, word + 1):
        exponential = -mpmath.log(mpmath.mpf(end) / 2**64)
        true = exponential if noise == "exponential" else -mpmath.log(exponential)
        assert abs(mpmath.mpf(float(value[0])) - true) <= float(error[0])


def test_whole_noisy_scores_stay_within_their_stated_errors():
    counts = np.array([1, 3, 1 << 50, (1 << 62) + 1])
    scores = np.array([0, -17, -(1 << 60), -(1 << 40)])
    for factor in (Fraction(1, 3), Fraction(10**9, 7), Fraction(1, 10**12)):
        contest = Contest(scores, factor, counts)
        words = SYSTEM.words(4, 64)
        value, error = choice_module._rough(
            contest, np.arange(4), words, "gumbel", int(contest.scores.max())
        )
        for i, word in enumerate(words.tolist()):
            true = noisy_score(contest, i, word, "gumbel")
            assert abs(mpmath.mpf(float(value[i])) - true) <= float(error[i])


def permute_and_flip(weights):
    """The exact law of permute-and-flip by walking all orders: accept i with weights[i] ≤ 1."""
    n, law = len(weights), [Fraction(0)] * len(weights)
    orders = list(permutations(range(n)))
    for order in orders:
        left = Fraction(1, len(orders))
        for i in order:
            law[i] += left * weights[i]
            left *= 1 - weights[i]
    return law


def test_the_largest_exponential_noisy_score_follows_permute_and_flip():
    """∫ over the winner's noise, by 70 digits, against the walk of all permutations."""
    gaps = [Fraction(0), Fraction(1, 2), Fraction(3, 2), Fraction(7, 4)]
    weights = [as_fraction(mpmath.exp(-mp(g))) for g in gaps]
    expected = permute_and_flip(weights)
    for i, gap in enumerate(gaps):
        # candidate i's key is x = E - gap; it must exceed 0 - noise of the best's lower end
        def density(x, i=i, gap=gap):
            others = mpmath.mpf(1)
            for j, other in enumerate(gaps):
                if j != i:
                    others *= 1 - mpmath.exp(-(x + mp(other)))
            return mpmath.exp(-(x + mp(gap))) * others

        won = mpmath.quad(density, [0, 1, 4, 20, 200])
        assert abs(won - mp(expected[i])) < mpmath.mpf(10) ** -20


def test_the_oracle_of_the_literature_holds_for_permute_and_flip():
    weights = [as_fraction(mpmath.exp(-mp(Fraction(g) / 2))) for g in ("0", "1", "3", "3.5")]
    law = [round(float(mass), 6) for mass in permute_and_flip(weights)]
    assert law == [0.585573, 0.265103, 0.084507, 0.064818]
