"""How far guesses of several tables are off: one whole number for each table.

A guess is public, such as what a model says. All numbers are whole; guesses may be ``fine`` times
finer than the tables, so that small ones are not rounded away.

>>> tables = [np.array([5, 1]), np.array([2, 2, 2])]
>>> guess = Distances.of([np.array([3, 3]), np.array([2, 2, 2])])
>>> guess.apply(tables).tolist()
[4, 0]
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.transforms.strategy import Whole

GUESS_MAX: Final = 1 << 60
WEIGHT_MAX: Final = 1 << 20
FINE_MAX: Final = 1 << 10


@final
@dataclass(frozen=True, slots=True)
class Distances:
    """For table i: weights[i] · (Σ |fine · exact - guess| - less[i]), clamped to ±2**60.

    ``guesses`` are the numbers of each guess, in little-endian bytes, which nothing can change.
    Guesses and ``less`` are in fine parts.
    """

    guesses: tuple[bytes, ...]
    weights: tuple[int, ...]
    less: tuple[int, ...]
    fine: int = 1

    def __post_init__(self) -> None:
        parts = self.guesses, self.weights, self.less
        if any(type(part) is not tuple for part in parts) or not self.guesses:
            raise Unsupported("Nothing is compared.", fix="Give a tuple for each part.")
        if len({len(part) for part in parts}) != 1:
            raise Unsupported("The guesses do not match.", fix="Give one weight for each guess.")
        if any(type(guess) is not bytes or not guess or len(guess) % 8 for guess in self.guesses):
            raise Unsupported("A guess is not stored as bytes.", fix="Use `Distances.of`.")
        if not all(_within(guess) for guess in self.guesses):
            raise Unsupported("A guess exceeds 60 bits.", fix="Use a larger quantisation step.")
        if any(type(n) is not int or not 1 <= n <= WEIGHT_MAX for n in self.weights):
            raise Unsupported(
                "A weight is not usable.", fix=f"Use whole numbers up to {WEIGHT_MAX}."
            )
        if type(self.fine) is not int or not 1 <= self.fine <= FINE_MAX:
            raise Unsupported("The subdivision is not usable.", fix=f"Use 1 to {FINE_MAX}.")
        if any(type(less) is not int or abs(less) > GUESS_MAX for less in self.less):
            raise Unsupported("The offset is not a whole number.", fix="Round it.")

    @classmethod
    def of(
        cls,
        guesses: Sequence[ArrayLike],
        *,
        weights: Sequence[int] | None = None,
        less: Sequence[int] | None = None,
        fine: int = 1,
    ) -> "Distances":
        """From arrays of whole numbers."""
        found = [np.asarray(guess) for guess in guesses]
        if any(guess.dtype.kind not in "iu" for guess in found):
            raise Unsupported(
                "A guess is not a whole number.",
                fix="Round it to the quantisation step.",
                about="whole",
            )
        return cls(
            guesses=tuple(guess.astype("<i8").tobytes() for guess in found),
            weights=tuple(weights) if weights is not None else (1,) * len(found),
            less=tuple(less) if less is not None else (0,) * len(found),
            fine=fine,
        )

    @property
    def cells(self) -> tuple[int, ...]:
        """How many cells each table has."""
        return tuple(len(guess) // 8 for guess in self.guesses)

    @property
    def l1(self) -> int:
        """How far all numbers move together, in L1, if every table moves by at most 1 in L1.

        Claim: fine · Σ weights. Why: |Σ|x - g| - Σ|y - g|| ≤ Σ|x - y|, by the triangle inequality
            in each cell; so number i moves by at most its reach. Clamping brings no two numbers
            further apart. Rounding: none, all is whole.
        """
        return sum(self.reaches)

    @property
    def l2_squared(self) -> int:
        """The same in L2, squared.

        Claim: Σ (fine · weight)². Why: number i moves by at most its reach.
        """
        return sum(reach**2 for reach in self.reaches)

    @property
    def reach(self) -> int:
        """How far any one number moves, if every table moves by at most 1 in L1."""
        return max(self.reaches)

    @property
    def reaches(self) -> tuple[int, ...]:
        """How far each number moves, if every table moves by at most 1 in L1: fine · weight."""
        return tuple(self.fine * weight for weight in self.weights)

    def apply(self, tables: Sequence[Whole]) -> Whole:
        """The exact numbers. Nothing wraps: halves are added apart, the rest is Python's own."""
        found = []
        rows = zip(tables, self.guesses, self.weights, self.less, strict=True)
        for table, guess, weight, less in rows:
            limit = GUESS_MAX // self.fine
            exact = np.clip(table, -limit, limit) * self.fine
            off = np.abs(exact - np.frombuffer(guess, "<i8"))
            total = int((off & 0xFFFFFF).sum()) + (int((off >> 24).sum()) << 24)
            found.append(max(-GUESS_MAX, min(GUESS_MAX, weight * (total - less))))
        return np.array(found, np.int64)

    def to_record(self) -> dict[str, Any]:
        """The guesses by their digests; equal exactly for equal questions."""
        digests = [sha256(guess).hexdigest() for guess in self.guesses]
        weights, less = list(self.weights), [str(each) for each in self.less]
        return {"distances": digests, "weights": weights, "less": less, "fine": self.fine}


def _within(guess: bytes) -> bool:
    found = np.frombuffer(guess, "<i8")
    return bool(found.min() >= -GUESS_MAX and found.max() <= GUESS_MAX)
