"""Bits that follow a script, and the tree of everything a sampler can do with them.

A sampler sees chance only through `Bits`. Handing it every script in turn and adding up the exact
weights gives its output law as fractions: no sample, no p-value. Scripts that run dry before the
outcome is settled are extended word by word until ``max_bits``; what is then still open is
returned as the undecided rest, a proven bound on the distance to the true law.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction

import mpmath
import numpy as np

from noisegate.noise.bits import Bits, Words, _holder

DIGITS = 60
SLACK = Fraction(1, 10**45)  # mpmath at 60 digits, rounded to a fraction: far above its error


def start_of(law, block):
    """The smallest |z| of a block of a `Staircase`, by its definition."""
    return (block << law.block_bits) if block >= 0 else ((-1 - block) << law.block_bits) + 1


class ScriptEnded(Exception):  # noqa: N818 - not an error: the tree grows here
    """The sampler asked for one more word than the script holds."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.width = width


class ScriptedBits(Bits):
    """Words from a list, in the order in which they are asked for."""

    def __init__(self, script: Iterable[int]) -> None:
        self._script = list(script)
        self.words_used = 0

    def words(self, count: int, width: int) -> Words:
        out = np.empty(count, _holder(width)[0])
        for lane in range(count):
            if self.words_used == len(self._script):
                raise ScriptEnded(width)
            word = self._script[self.words_used]
            assert 0 <= word < 1 << width, "the script does not fit the question"
            out[lane], self.words_used = word, self.words_used + 1
        return out


def exact_masses(
    sample: Callable[[Bits], Hashable], *, max_bits: int
) -> tuple[Counter[Hashable], Fraction]:
    """Exact probability of every outcome that ``max_bits`` bits can settle, and the rest."""
    masses: Counter[Hashable] = Counter()
    rest, stack = Fraction(0), [((), 0)]
    while stack:
        script, used = stack.pop()
        bits = ScriptedBits(script)
        try:
            outcome = sample(bits)
        except ScriptEnded as end:
            if used + end.width > max_bits:
                rest += Fraction(1, 1 << used)
            else:
                longer = used + end.width
                stack.extend(((*script, word), longer) for word in range(1 << end.width))
        else:
            assert bits.words_used == len(script), "the sampler left part of its script unread"
            masses[outcome] += Fraction(1, 1 << used)
    assert sum(masses.values()) + rest == 1
    return masses, rest


class RecordingBits(Bits):
    """Passes another source on and remembers every answer, for `ReplayedBits`."""

    def __init__(self, source: Bits) -> None:
        self._source = source
        self.record: list[tuple[int, int, Words]] = []

    def words(self, count: int, width: int) -> Words:
        answer = self._source.words(count, width)
        self.record.append((count, width, answer.copy()))
        return answer


class ReplayedBits(Bits):
    """The recorded answers again; another order of questions is an error."""

    def __init__(self, record: list[tuple[int, int, Words]]) -> None:
        self._record = iter(record)

    def words(self, count: int, width: int) -> Words:
        expected_count, expected_width, answer = next(self._record)
        assert (count, width) == (expected_count, expected_width)
        return answer.copy()


def as_fraction(value: object) -> Fraction:
    """An mpmath number as an exact fraction (it is a binary number)."""
    sign, mantissa, exponent, _ = mpmath.mpf(value)._mpf_
    return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** exponent


def mp(value: Fraction | int) -> mpmath.mpf:
    """A fraction as an mpmath number at the working precision."""
    value = Fraction(value)
    return mpmath.mpf(value.numerator) / value.denominator


def assert_masses_match(
    masses: Counter[Hashable], rest: Fraction, true_mass: Callable[[int], Fraction]
) -> None:
    """mass ≤ true mass ≤ mass + rest for each settled outcome and for its neighbours."""
    assert masses, "no outcome was settled"
    for k in {settled + side for settled in masses for side in (-1, 0, 1)}:
        claimed = true_mass(k)
        assert masses[k] <= claimed + SLACK, f"outcome {k} is too likely"
        assert claimed <= masses[k] + rest + SLACK, f"outcome {k} is too unlikely"
