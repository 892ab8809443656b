"""Two tables that differ in me, and what a mechanism says of both: the ratio that ε forbids.

K(DB - me) and K(DB + me) are the laws of a noisy count without and with my row. For every output
their ratio has to lie between e^-ε and e^ε; what lies beyond is forbidden, and shaded. Laws are in
closed form, and draws of the real mechanisms stand beside them.

>>> found = laws("geometric", epsilon=1)
>>> round(found.largest, 6), found.forbidden
(1.0, 0.0)
>>> laws("raw", epsilon=1).forbidden
1.0
>>> round(laws("exponential", epsilon=1).from_geometric, 12)
0.0
"""

from collections.abc import Callable
from fractions import Fraction
from math import exp, inf, log
from textwrap import wrap
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.inert import html
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.privacy.distance import L1

Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Callable[[int, float, NDArray[np.int64]], Floats]
COUNT: Final = 24  # people without me
TOP: Final = 48
DRAWS: Final = 20_000
EPSILON_MAX: Final = 5
_FLOOR: Final = 1e-5  # of the picture
_SHADE: Final = "#f6d5cf"
_WIDE, _HIGH, _LEFT, _TOP = 620, 260, 58, 16
_TOLD: Final = {
    "geometric": "two-sided geometric noise on a count",
    "truncated-geometric": "the same, clamped into 0 to 48",
    "exponential": "a choice among all counts by e^(-ε·|x - n|): the same law as geometric noise",
    "gaussian": "discrete Gaussian noise of ρ = ε²/2: tails cross the line, for a δ",
    "randomised-response": "whether I am there, told truly with e^ε/(1 + e^ε)",
    "rounded": "the count rounded to tens, without noise",
    "raw": "the count itself",
}
MECHANISMS: Final = tuple(_TOLD)


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ratio:
    """Both laws of a mechanism over the same outputs, and what of them ε forbids."""

    mechanism: str
    epsilon: float
    outputs: NDArray[np.int64]
    without: Floats
    with_me: Floats
    drawn: Floats | None

    @property
    def largest(self) -> float:
        """The largest |ln ratio|: the ε that it has, without a δ."""
        both = (self.without > 0) | (self.with_me > 0)
        if ((self.without > 0) != (self.with_me > 0))[both].any():
            return inf
        return float(np.abs(np.log(self.with_me[both] / self.without[both])).max())

    @property
    def forbidden(self) -> float:
        """The probability beyond the allowed ratio, in the worse direction: the δ at this ε."""
        grown = exp(self.epsilon) * (1 + 1e-12)
        pairs = (self.with_me, self.without), (self.without, self.with_me)
        found = max(float(np.maximum(a - grown * b, 0).sum()) for a, b in pairs)
        return found if found > 1e-12 else 0.0

    @property
    def from_geometric(self) -> float:
        """How far the law is from that of geometric noise, at most, over all outputs."""
        return float(np.abs(self.with_me - _geometric(COUNT + 1, self.epsilon, self.outputs)).max())

    @property
    def words(self) -> str:
        """What is seen, in a sentence."""
        said = f"{self.mechanism}: {_TOLD[self.mechanism]}."
        if self.forbidden:
            far = "infinite" if self.largest == inf else f"e^{self.largest:.3g}"
            return f"{said} The largest ratio is {far}; forbidden with chance {self.forbidden:.3g}."
        return f"{said} The largest ratio is e^{self.largest:.3g}, so nothing is forbidden."

    def __repr__(self) -> str:
        return self.words

    def _repr_svg_(self) -> str:
        return picture(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        rows = zip(self.outputs.tolist(), self.without.tolist(), self.with_me.tolist(), strict=True)
        far = self.largest
        return {
            "mechanism": self.mechanism, "epsilon": self.epsilon,
            "largest": None if far == inf else far, "forbidden": self.forbidden,
            "laws": [{"output": x, "without": p, "with": q} for x, p, q in rows],
        }  # fmt: skip


def laws(mechanism: str, *, epsilon: Number = 1, draws: int = 0) -> Ratio:
    """Both laws of a mechanism at an ε; with ``draws`` of the real one, if it has one."""
    if mechanism not in _LAWS:
        raise SpecError(
            f"There is no mechanism {mechanism!r} here.",
            fix=f"Use {', '.join(MECHANISMS)}.",
            about="mechanism",
        )
    price = float(positive(epsilon, name="epsilon"))
    if price > EPSILON_MAX:
        raise SpecError("ε is too large for a picture.", fix=f"Use at most {EPSILON_MAX}.")
    outputs = np.arange(2) if mechanism == "randomised-response" else np.arange(TOP + 1)
    law = _LAWS[mechanism]
    return Ratio(
        mechanism=mechanism, epsilon=price, outputs=outputs, without=law(COUNT, price, outputs),
        with_me=law(COUNT + 1, price, outputs),
        drawn=_drawn(mechanism, positive(epsilon, name="epsilon"), outputs, draws),
    )  # fmt: skip


def _geometric(count: int, epsilon: float, outputs: NDArray[np.int64]) -> Floats:
    alpha = exp(-epsilon)
    return (1 - alpha) / (1 + alpha) * alpha ** np.abs(outputs - count)


def _truncated(count: int, epsilon: float, outputs: NDArray[np.int64]) -> Floats:
    alpha, found = exp(-epsilon), _geometric(count, epsilon, outputs)
    found[0], found[-1] = alpha**count / (1 + alpha), alpha ** (TOP - count) / (1 + alpha)
    return found


def _exponential(count: int, epsilon: float, outputs: NDArray[np.int64]) -> Floats:
    """By its definition: weights e^(-ε |x - n|) over all counts, here 4,000 to each side."""
    every = np.arange(-4000, 4001)
    found: Floats = (
        np.exp(-epsilon * np.abs(outputs - count)) / np.exp(-epsilon * np.abs(every - count)).sum()
    )
    return found


def _gaussian(count: int, epsilon: float, outputs: NDArray[np.int64]) -> Floats:
    every = np.arange(-4000, 4001)
    found: Floats = (
        np.exp(-(epsilon**2) * (outputs - count) ** 2 / 2)
        / np.exp(-(epsilon**2) * (every - count) ** 2 / 2).sum()
    )
    return found


def _response(count: int, epsilon: float, outputs: NDArray[np.int64]) -> Floats:
    true = exp(epsilon) / (1 + exp(epsilon))
    return np.where(outputs == count - COUNT, true, 1 - true)


_LAWS: Final[dict[str, Law]] = {
    "geometric": _geometric, "truncated-geometric": _truncated, "exponential": _exponential,
    "gaussian": _gaussian, "randomised-response": _response,
    "rounded": lambda count, _, outputs: (outputs == (count + 5) // 10 * 10).astype(np.float64),
    "raw": lambda count, _, outputs: (outputs == count).astype(np.float64),
}  # fmt: skip


def _drawn(
    mechanism: str, epsilon: Fraction, outputs: NDArray[np.int64], draws: int
) -> Floats | None:
    """How often the real mechanism said what, with me."""
    exact = np.full(draws, COUNT + 1, np.int64)
    if mechanism in ("geometric", "exponential"):
        said = Geometric.for_epsilon(epsilon, sensitivity=L1(1)).sample(exact)
    elif mechanism == "truncated-geometric":
        truncated = TruncatedGeometric.for_epsilon(epsilon, top=TOP, sensitivity=L1(1))
        said = truncated.sample(exact)
    elif mechanism == "gaussian":
        said = DiscreteGaussian(variance=1 / epsilon**2).sample(exact)
    else:
        return None
    inside = said[(said >= outputs[0]) & (said <= outputs[-1])]
    return None if not draws else np.bincount(inside, minlength=outputs.size) / draws


# the picture


def picture(found: Ratio, *, standalone: bool = True) -> str:
    """An SVG on a logarithmic scale: both laws, the allowed band, and what is forbidden shaded."""
    size = found.outputs.size
    across = [_LEFT + (place + 0.5) * _WIDE / size for place in range(size)]
    side = _WIDE / size
    low, high = _FLOOR, 1.0

    def up(chance: float) -> float:
        part = (log(max(chance, low)) - log(low)) / (log(high) - log(low))
        return round(_TOP + _HIGH * (1 - part), 1)

    grown = exp(found.epsilon)
    parts = [f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDE}" height="{_HIGH}" fill="{_SHADE}"/>']
    for place, chance in enumerate(found.without.tolist()):
        left = round(across[place] - side / 2, 1)
        if chance > 0:
            top, bottom = up(min(1.0, chance * grown)), up(chance / grown)
            parts.append(
                f'<rect x="{left}" y="{top}" width="{side:.1f}" height="{max(0, bottom - top):.1f}"'
                ' fill="#ffffff"/>'
            )
        if chance > _FLOOR:
            parts.append(
                f'<path d="M{left + side * 0.15:.1f} {up(chance)}h{side * 0.7:.1f}" '
                'stroke="#2166ac" stroke-width="3"/>'
            )
    for place, chance in enumerate(found.with_me.tolist()):
        here = found.without[place]
        wrong = chance > here * grown * (1 + 1e-9) or chance < here / grown * (1 - 1e-9)
        colour, radius = ("#c0392b", 6) if wrong else ("#e08214", 4)
        if chance > _FLOOR or (wrong and here > _FLOOR):
            parts.append(
                f'<circle cx="{across[place]:.1f}" cy="{up(chance)}" r="{radius}" fill="{colour}"/>'
            )
        if found.drawn is not None and found.drawn[place] > _FLOOR:
            y = up(float(found.drawn[place]))
            parts.append(f'<path d="M{across[place] - 4:.1f} {y}h8m-4 -4v8" stroke="#1a1a1a"/>')
    parts += _scale(found, across, up)
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    return (
        f'<svg{space} style="background:#fff;color:#1a1a1a" viewBox="0 0 {_LEFT + _WIDE + 12} '
        f'{_TOP + _HIGH + 90}" role="img" font-family="sans-serif" font-size="12" '
        f'fill="currentColor" aria-label="{html(found.words)}">{"".join(parts)}</svg>'
    )


def _scale(found: Ratio, across: list[float], up: Callable[[float], float]) -> list[str]:
    """Axes and the key."""
    parts = [
        f'<text x="{_LEFT - 6}" y="{up(at) + 4}" text-anchor="end">{at:g}</text>'
        for at in (1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001)
    ]
    every = max(1, found.outputs.size // 10)
    parts += [
        f'<text x="{across[place]:.1f}" y="{_TOP + _HIGH + 16}" text-anchor="middle">'
        f"{found.outputs[place]}</text>"
        for place in range(0, found.outputs.size, every)
    ]
    y = _TOP + _HIGH + 38
    crosses = ", + real draws" if found.drawn is not None else ""
    parts.append(
        f'<path d="M{_LEFT} {y - 4}h18" stroke="#2166ac" stroke-width="3"/>'
        f'<text x="{_LEFT + 24}" y="{y}">K(DB - me)</text>'
        f'<circle cx="{_LEFT + 116}" cy="{y - 4}" r="4" fill="#e08214"/>'
        f'<text x="{_LEFT + 126}" y="{y}">K(DB + me){crosses}</text>'
        f'<rect x="{_LEFT + 290}" y="{y - 11}" width="18" height="13" fill="{_SHADE}"/>'
        f'<text x="{_LEFT + 314}" y="{y}">ratios that ε = {found.epsilon:g} forbids</text>'
    )
    parts += [
        f'<text x="{_LEFT}" y="{y + 22 + 16 * place}">{html(line)}</text>'
        for place, line in enumerate(wrap(found.words, 96))
    ]
    return parts
