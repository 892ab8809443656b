"""A mechanism of one's own: its audit, and a gate's count or sum made noisy by it."""

from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.runs import Draw
from noisegate.curator.own import OwnMechanism, record_of
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.plan import Plan
from noisegate.dp.curve import Curve
from noisegate.dp.filters import pure_epsilon
from noisegate.errors import SpecError
from noisegate.privacy.distance import L1, L2
from noisegate.robust.own import Audited, OwnExpected, own_job

if TYPE_CHECKING:
    from noisegate.gate import Gate

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
    for `measure`, which takes it for this mechanism alone: of the same name, version, author and
    parameters. ``broken`` is a copy that it should catch.
    """
    event = mechanism.event(sensitivity)
    pure = pure_epsilon(event)
    claims = {0.0: float(pure)} if pure is not None else {
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
        about=record_of(mechanism),
    )


def measure(
    gate: "Gate",
    sql: str,
    mechanism: OwnMechanism,
    *,
    audit: Audited | None = None,
    seconds: int = 60,
    fresh: bool = False,
) -> Answer:
    """Run a mechanism of your own on one count or sum over declared groups of a gate.

    ``dp.measure(gate, "SELECT ward, COUNT(*) FROM visits GROUP BY ward", TwoLaws(1))``: the
    mechanism sees exact numbers, so the policy has to allow it: own_mechanisms under [allow].
    It is charged first, for the event that it states at the sensitivity of the question. The
    promise is its author's, and every plan, answer and card says so.

    Args:
        gate: One of this process; a service has no way to it.
        sql: One COUNT or SUM, by declared groups.
        mechanism: A frozen dataclass: see `noisegate.dp.OwnMechanism`.
        audit: What an audit of it found (`audit_of`), to be told with the answer.
        seconds: How long it may take; one that is late gives no answer.
        fresh: Pay for a new draw.
    """
    desk = Desk(gate.door, gate.rules)
    return desk.run(own_job(desk, sql, mechanism, audit=audit, seconds=seconds), fresh=fresh)


def measure_plan(
    gate: "Gate", sql: str, mechanism: OwnMechanism, *, audit: Audited | None = None
) -> Plan[OwnExpected]:
    """Price, sensitivity and claim of `measure`. Free, and reads no row."""
    desk = Desk(gate.door, gate.rules)
    return desk.plan(own_job(desk, sql, mechanism, audit=audit))
