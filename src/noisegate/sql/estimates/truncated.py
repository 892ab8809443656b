"""Counts that stay between 0 and a public maximum: truncated geometric noise.

A geometric draw that is cut to {0, …, top} is the truncated geometric mechanism on a count that
lies there (`mechanisms/additive/truncated_geometric.py`), so it is made of the same draw, after it:
the price is the same, and a count that was asked for without it is shown with it at no cost.
"""

from fractions import Fraction

import numpy as np

from noisegate.sql.laws.intervals import Interval
from noisegate.sql.laws.known import Bars
from noisegate.sql.laws.laws import Floats

_HALF = Fraction(1, 2)


def truncated_bars(values: Floats, bars: Bars, top: int) -> Bars:
    """Where counts in [0, top] lie whose noisy ``values`` were cut to that range.

    ``bars`` are those of the noise alone: the values before the cut, give or take a half-width.

    Claim: holds with the confidence 1 - β, for every count in [0, top], and follows from what is
        shown. Why: let t be the half-width at β and s that at 2β, so that a noise that is as likely
        above 0 as below exceeds s, on one side, with at most β. A count n that is s or less from
        the lower end is shown at most s too low, because nothing is shown below 0; so what is shown
        is within s with at least 1 - β. The same holds at the upper end, and t for all others:
        cutting moves no value away from a count within the range. What is shown as m leaves all n
        that are so near to it: of those below m the ones from m - s on, if that reaches the lower s
        of the range, else from m - t on, though not below s; and so above. Rounding: none.
    """

    def cut(confidence: Fraction) -> Interval:
        wide, failure = bars(confidence), 1 - confidence
        far = (wide.high - wide.low) / 2
        if failure < _HALF:
            narrow = bars(1 - 2 * failure)
            near = np.minimum(far, (narrow.high - narrow.low) / 2)
        else:
            near = np.zeros_like(far)
        shown = np.clip(values, 0, top)
        down = _reach(shown, near, far)
        up = _reach(top - shown, near, far)
        return Interval(np.maximum(shown - down, 0.0), np.minimum(shown + up, float(top)))

    return cut


def _reach(room: Floats, near: Floats, far: Floats) -> Floats:
    """How far a count may be from what is shown, towards an end that is ``room`` away."""
    found: Floats = np.where(room <= 2 * near, near, np.minimum(far, room - near))
    return found


def within_range(bars: Bars, top: int) -> Bars:
    """The same where bars hold more than noise: cut to what is known beforehand."""
    return lambda confidence: bars(confidence).clipped(0.0, float(top))
