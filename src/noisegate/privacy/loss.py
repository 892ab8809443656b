"""How much privacy is lost: pure, approximate, concentrated and Rényi, as exact rationals.

Losses of one kind add up (sequential composition) and are partially ordered. Theorems that lead
from one kind to another are in `conversion.py`, with their direction of rounding in the name.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Self, final

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, shown
from noisegate.frozen import dataclass


def _at_least_zero(value: Number, name: str) -> Fraction:
    exact = fraction(value, name=name)
    if exact < 0:
        raise SpecError(f"{name} is {shown(exact)}.", fix=f"Give {name} a value of at least 0.")
    return exact


def _probability(value: Number, name: str) -> Fraction:
    exact = _at_least_zero(value, name)
    if exact > 1:
        raise SpecError(f"{name} is {shown(exact)}.", fix=f"Give {name} a value from 0 to 1.")
    return exact


@final
@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(ε, δ)-differential privacy; δ = 0 is pure ε-differential privacy.

    Claim: for neighbours x, x' and every set S of outputs, Pr[A(x) ∈ S] ≤ e^ε Pr[A(x') ∈ S] + δ.
    Why: [DMNS06], [DKMMN06]; addition is basic composition, valid for adaptive questions.
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number = 0) -> None:
        object.__setattr__(self, "epsilon", _at_least_zero(epsilon, "epsilon"))
        object.__setattr__(self, "delta", _probability(delta, "delta"))

    def __add__(self, other: "ApproxDP") -> "ApproxDP":
        return ApproxDP(self.epsilon + other.epsilon, min(self.delta + other.delta, Fraction(1)))

    def __le__(self, other: "ApproxDP") -> bool:
        return self.epsilon <= other.epsilon and self.delta <= other.delta

    def __float__(self) -> float:
        """ε alone, for plots and quick looks."""
        return float(self.epsilon)

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        """Readable decimals: a loss rounds up, a balance (``"left"``) rounds down."""
        text = decimal_down if spec == "left" else decimal_up
        epsilon, delta = text(self.epsilon), text(self.delta)
        return f"ε = {epsilon}" if self.delta == 0 else f"(ε = {epsilon}, δ = {delta})"


@final
@dataclass(frozen=True, slots=True)
class ZCDP:
    """δ-approximate ρ-zero-concentrated differential privacy; δ = 0 is plain ρ-zCDP.

    Claim: Rényi divergences satisfy D_a(A(x) ‖ A(x')) ≤ a ρ for all a > 1, outside an event of
        probability δ. Why: [BS16, Def. 1.1 and 8.1]; addition is [BS16, Lemma 1.7 and 8.2].
    """

    rho: Fraction
    delta: Fraction

    def __init__(self, rho: Number, delta: Number = 0) -> None:
        object.__setattr__(self, "rho", _at_least_zero(rho, "rho"))
        object.__setattr__(self, "delta", _probability(delta, "delta"))

    def __add__(self, other: "ZCDP") -> "ZCDP":
        return ZCDP(self.rho + other.rho, min(self.delta + other.delta, Fraction(1)))

    def __le__(self, other: "ZCDP") -> bool:
        return self.rho <= other.rho and self.delta <= other.delta

    def __str__(self) -> str:
        text = f"ρ = {decimal_up(self.rho)}"
        return (
            f"{text} (zCDP)"
            if self.delta == 0
            else f"({text}, δ = {decimal_up(self.delta)}) (zCDP)"
        )


@final
@dataclass(frozen=True, slots=True)
class RenyiDP:
    """Rényi differential privacy on a fixed list of orders: D_a(A(x) ‖ A(x')) ≤ ε_a.

    Why: [Mir17]; addition is order by order [Mir17, Prop. 1].
    """

    orders: tuple[Fraction, ...]
    epsilons: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.orders) != len(self.epsilons) or not self.orders:
            raise SpecError("A Rényi curve needs one value per order.", fix="Give equal lengths.")
        if any(a <= 1 for a in self.orders) or list(self.orders) != sorted(set(self.orders)):
            raise SpecError("Rényi orders must be ascending and above 1.", fix="Sort the orders.")
        if any(value < 0 for value in self.epsilons):
            raise SpecError("A Rényi divergence is negative.", fix="Use values of at least 0.")

    def __add__(self, other: Self) -> "RenyiDP":
        if self.orders != other.orders:
            raise SpecError("The Rényi curves have different orders.", fix="Use one grid.")
        pairs = zip(self.epsilons, other.epsilons, strict=True)
        return RenyiDP(self.orders, tuple(a + b for a, b in pairs))

    def __le__(self, other: Self) -> bool:
        if self.orders != other.orders:
            raise SpecError("The Rényi curves have different orders.", fix="Use one grid.")
        return all(a <= b for a, b in zip(self.epsilons, other.epsilons, strict=True))


def decimal_up(value: Fraction) -> str:
    """A readable decimal that is never below the number: five places behind its first digit."""
    return _decimal(value, ceil)


def decimal_down(value: Fraction) -> str:
    """A readable decimal that is never above the number."""
    return _decimal(value, floor)


def _decimal(value: Fraction, whole: Callable[[Fraction], int]) -> str:
    if value == 0:
        return "0"
    places = 5
    while value * 10**places < 10**5:
        places += 1
    digits = str(whole(value * 10**places))
    if places > 9:  # 1.2345e-6
        mantissa = f"{digits[0]}.{digits[1:]}".rstrip("0").rstrip(".")
        return f"{mantissa}e-{places + 1 - len(digits)}"
    digits = digits.rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".")
