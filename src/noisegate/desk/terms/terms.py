"""What is said about paying, and how whatever was said is checked before it is used."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

from noisegate.errors import SpecError
from noisegate.mechanisms.base import failure_of
from noisegate.transforms.checks import CAP_MAX

_ROWS_MAX: Final = 1 << 40
TRUNCATED: Final = "truncated"
USUAL: Final = Fraction(95, 100)  # confidence, where nobody says another


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is said about paying: by the caller, or by the SQL itself (OPTIONS, or a hint).

    ``choose`` names what shall be found privately where it is missing: bounds, caps. With the
    ``noise`` "truncated", counts stay between 0 and ``top``.
    """

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    within: Fraction | None = None
    relative: Fraction | None = None
    confidence: Fraction | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    rows: int | None = None
    choose: tuple[str, ...] | None = None
    noise: str | None = None
    top: int | None = None


def checked_terms(terms: Terms) -> Terms:
    """Refuse terms that are none, whether or not the question uses them."""
    if terms.confidence is not None:
        failure_of(terms.confidence)
    if terms.delta is not None and not 0 <= terms.delta < 1:
        raise SpecError("delta is not a probability.", fix="Use a small delta, for example 1e-6.")
    if terms.rows is not None and (type(terms.rows) is not int or not 1 <= terms.rows <= _ROWS_MAX):
        raise SpecError("rows is not a number of rows.", fix="Give the approximate number of rows.")
    if terms.noise not in (None, TRUNCATED):
        raise SpecError(
            f"There is no noise {terms.noise!r}.", fix=f'Use noise="{TRUNCATED}".', about="noise"
        )
    wrong = terms.top is not None and (type(terms.top) is not int or not 1 <= terms.top < _ROWS_MAX)
    if wrong or (terms.top is not None and terms.noise is None):
        raise SpecError(
            "top is the largest count that is possible, for truncated noise.",
            fix=f'Use noise="{TRUNCATED}" with a whole top, such as 1000.',
            about="top",
        )
    for cap in (terms.rows_per_unit, terms.groups_per_unit):
        if cap is not None and (type(cap) is not int or not 1 <= cap <= CAP_MAX):
            raise SpecError(
                "A contribution bound per unit is out of range.",
                fix=f"Use a whole number from 1 to {CAP_MAX}.",
            )
    return terms


def require_texts(**said: object) -> None:
    """Refuse what is neither a text nor left out."""
    for name, value in said.items():
        if value is not None and not isinstance(value, str):
            raise SpecError(
                f"{name} is not a string.", fix="Write it in quotes, or leave it out.", about="text"
            )
