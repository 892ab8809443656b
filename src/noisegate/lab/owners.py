"""A trial of sums without a trusted curator: hospitals as processes, some of which drop out."""

from fractions import Fraction
from typing import Final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from noisegate.curator.owner import Agreement
from noisegate.exact import Number, fraction
from noisegate.federated.network import trial
from noisegate.federated.release import OwnersRelease, fourier, plain

WEEKS: Final = 52


def admissions(owner: int) -> NDArray[np.int64]:
    """Made-up weekly admissions of one hospital: a winter wave on a level of its own."""
    weeks = np.arange(WEEKS)
    level, wave = 80 + 15 * owner, 30 + 4 * owner
    found: NDArray[np.float64] = np.rint(level + wave * np.cos(2 * np.pi * weeks / WEEKS))
    return found.astype(np.int64)


def run(
    *,
    owners: int = 6,
    drop_outs: int = 1,
    colluding: int = 2,
    epsilon: Number = 1,
    coefficients: int | None = None,
) -> tuple[OwnersRelease, NDArray[np.int64]]:
    """A session in which the agreed number of owners drop out, and the exact sum of the others."""
    agreement = Agreement(
        session=f"trial {uuid4().hex}",
        owners=owners,
        drop_outs=drop_outs,
        colluding=colluding,
        block=plain(WEEKS) if coefficients is None else fourier(WEEKS, coefficients),
        per_unit=1,
        epsilon=Fraction(fraction(epsilon, name="epsilon")),
    )
    series = [admissions(owner) for owner in range(owners)]
    leaving = {owners - 1 - number: "contribute" for number in range(drop_outs)}
    found = trial(agreement, series, leaving=leaving)
    return found, np.sum([series[owner] for owner in found.stayed], axis=0)
