"""Many exact choices by score at once: one winner for each stretch of candidates."""

import numpy as np

from noisegate.errors import SpecError
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, _ends, _Racer, _ranked
from noisegate.noise.chunks import Int64Array


def choose_each(contest: Contest, starts: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
    """The index of each stretch's winner; stretch i begins at ``starts[i]`` and ends at the next.

    Claim: candidate i wins its stretch with probability proportional to e^(factor · score_i) among
        that stretch, independently of the others. Why: as in `choose`: Gumbel noise, the largest
        wins; who is not clear of the best of its stretch races in ball arithmetic. Scores are taken
        relative to the best of their stretch, which changes no odds. Rounding: none.

    >>> from fractions import Fraction
    >>> choose_each(Contest(np.array([0, 900, 3, 950, 1]), Fraction(1)), np.array([0, 2]))
    array([1, 3])
    """
    size = contest.scores.size
    if starts.ndim != 1 or not starts.size or starts[0] != 0 or contest.multiplicity is not None:
        raise SpecError("The stretches do not match.", fix="Begin at 0; list every candidate.")
    lengths = np.diff(starts, append=size)
    if lengths.min() < 1:
        raise SpecError("A stretch has no candidate.", fix="Leave it out.")
    best = np.maximum.reduceat(contest.scores, starts)
    race = Contest(contest.scores - np.repeat(best, lengths), contest.factor)
    words = bits.words(size, 64)
    low, high = _ends(race, np.arange(size), words, "gumbel", 0)
    bar = np.repeat(np.maximum.reduceat(low, starts), lengths)
    live = np.flatnonzero(high >= bar)
    stretch = np.repeat(np.arange(starts.size), lengths)[live]
    firsts = np.flatnonzero(np.diff(stretch, prepend=-1))
    winners = live[firsts]
    for at in np.flatnonzero(np.diff(firsts, append=live.size) > 1).tolist():
        rivals = live[stretch == at].tolist()
        racers = [_Racer(race, i, "gumbel", int(words[i]), bits) for i in rivals]
        winners[at] = _ranked(racers)[0].index
    return winners
