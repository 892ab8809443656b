"""Parameters of estimators: what is usable, refused before anything is paid."""

from typing import Final

import numpy as np

from noisegate.errors import SpecError
from noisegate.learners.arrays import Rows
from noisegate.learners.matrix import Matrix

_ROUNDS_MAX: Final = 100
ROWS_MAX: Final = 1 << 40


def require_whole(value: object, name: str, least: int, most: int) -> int:
    """A whole number in a range."""
    if isinstance(value, np.integer):
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise SpecError(
            f"The value of {name} is not usable.", fix=f"Use a whole number from {least} to {most}."
        )
    return value


def require_rounds(max_iter: object) -> int | None:
    """How many steps, if that is said."""
    return None if max_iter is None else require_whole(max_iter, "max_iter", 1, _ROUNDS_MAX)


def require_seed(random_state: object) -> int:
    """The seed of public choices."""
    return require_whole(random_state, "random_state", 0, (1 << 32) - 1)


def require_one_of(value: object, name: str, known: tuple[str, ...]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in known:
        raise SpecError(f"The value of {name} is unknown.", fix=f"Use {', '.join(known)}.")
    return value


def require_rows(X: Rows) -> None:
    """Refuse a handle where rows are needed."""
    if isinstance(X, Matrix):
        raise SpecError(
            "The rows of a matrix stay private.",
            fix="Fit it, then predict arrays of new points.",
            about="rows",
        )
