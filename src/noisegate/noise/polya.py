"""Shares of geometric noise: several parties add one each, and the sum is two-sided geometric.

The geometric law is infinitely divisible: a one-sided geometric number with ratio α is the sum of
m independent negative binomial ones of shape 1/m and the same ratio. So a share is the difference
of two of these, and m shares add up to exactly the noise of the geometric mechanism [GX17].
"""

from fractions import Fraction
from math import prod
from typing import Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, positive, real, shown
from noisegate.frozen import dataclass
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Size, whole
from noisegate.noise.geometric import SCALE_MIN
from noisegate.noise.law import Law, draw_by_inversion, enclose_probability
from noisegate.noise.table import table_for

PARTS_MAX: Final = 1 << 20
SHARE_SCALE_MAX: Final = 1 << 30
_TABLE_SCALE: Final = 64  # beyond, a table would be long, and draws are inverted one by one


@final
@dataclass(frozen=True)
class NegativeBinomial(Law):
    """Pr[k] = Γ(k + r) / (k! Γ(r)) · (1 - α)^r α^k for k ≥ 0, α = e^(-1/scale), r the shape.

    Claim: F(k) = I_{1-α}(r, k + 1), the regularised incomplete beta function. Why: [AS64, 26.5.24]
        for whole r, and for any r > 0 by the same integration by parts. Rounding: none; Arb
        encloses the function at any precision.
    """

    scale: Fraction
    shape: Fraction
    support = (0, None)

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if k < 0:
            return 0, 0
        return enclose_probability(
            lambda: (-(-real(1 / self.scale)).expm1()).beta_lower(
                real(self.shape), real(k + 1), regularized=True
            ),
            bits,
        )


def geometric_share(scale: Number, parts: int, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """One of ``parts`` independent shares whose sum is two-sided geometric noise of this scale.

    Claim: the sum of ``parts`` of them has the law of `discrete_laplace` exactly; the sum of more
        is that plus independent noise. Why: generating functions: ((1 - α) / (1 - α z))^(1/m) to
        the power m; the difference of two geometric numbers is two-sided geometric. Rounding: none;
        numbers are clamped to ±2**62, as all noise here.

    >>> geometric_share("1.5", 4, 3).dtype
    dtype('int64')
    """
    count = whole(parts, "parts", least=1, below=PARTS_MAX)
    exact = positive(scale, name="scale")
    if not SCALE_MIN <= exact <= SHARE_SCALE_MAX:
        raise SpecError(f"scale is {shown(exact)}.", fix=f"Use {SCALE_MIN} to {SHARE_SCALE_MAX}.")
    law = NegativeBinomial(exact, Fraction(1, count))
    shape = (size,) if isinstance(size, int) else tuple(size)
    draws = 2 * prod(shape)
    if law.scale <= _TABLE_SCALE:
        found = table_for(law).sample(draws, bits).astype(np.int64)
    else:
        words = bits.words(draws, 64).tolist()
        found = np.array([draw_by_inversion(law, word, 64, bits) for word in words], np.int64)
    plus, minus = found.reshape(2, *shape)
    return plus - minus  # type: ignore[no-any-return]
