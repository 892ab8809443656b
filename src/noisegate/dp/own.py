"""An audit of a mechanism of one's own, at the sensitivity that a gate would give it."""

from fractions import Fraction
from math import isqrt

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.runs import Draw
from noisegate.curator.own import OwnMechanism
from noisegate.dp.curve import Curve
from noisegate.errors import SpecError
from noisegate.privacy.distance import L1, L2
from noisegate.robust.own import claimed_epsilon

_CELL = 1_000  # what the first of both neighbours has, far from 0
_DELTAS = ("1e-2", "1e-4")


def audit_of(
    mechanism: OwnMechanism,
    sensitivity: L1 | L2,
    *,
    cells: int = 1,
    broken: OwnMechanism | None = None,
) -> Audit:
    """An audit of what the mechanism states, on two neighbours as far apart as one unit moves them.

    One cell differs, by all of the sensitivity. ``.run(dp.Extent(trials=20_000))`` gives a result
    for `Gate.measure`. ``broken`` is a copy that it should catch.
    """
    event = mechanism.event(sensitivity)
    pure = claimed_epsilon(event)
    claims = {0.0: pure} if pure is not None else {
        float(Fraction(each)): float(Curve(event).epsilon(each)) for each in _DELTAS
    }  # fmt: skip
    far = sensitivity.value if isinstance(sensitivity, L1) else isqrt(int(sensitivity.squared))
    if cells < 1 or far != int(far) or not far:
        raise SpecError(
            "The sensitivity is not a whole number, or there are no cells.",
            fix="Use dp.L1(3) or dp.L2(squared=9), and cells of at least 1.",
        )

    def on(asked: OwnMechanism, more: int) -> Draw:
        def runs(count: int) -> np.ndarray:
            exact = np.full(cells, _CELL, np.int64)
            exact[0] += more
            return np.stack([asked.sample(exact.copy(), sensitivity) for _ in range(count)])

        return runs

    def both(asked: OwnMechanism) -> tuple[Draw, Draw]:
        return on(asked, int(far)), on(asked, 0)

    return Audit(
        name=f"{mechanism.name} {mechanism.version}",
        claims=claims,
        neighbours=f"{cells} cells of {_CELL}, one of them {far} larger or not",
        draws=both(mechanism),
        broken=None if broken is None else both(broken),
        trials=20_000,
    )
