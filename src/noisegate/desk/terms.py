"""What is said about paying, and how whatever was said is checked before it is used."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, final, get_args, get_origin

from noisegate.errors import SpecError
from noisegate.mechanisms.base import failure_of
from noisegate.transforms.checks import CAP_MAX

T = TypeVar("T")
_ROWS_MAX: Final = 1 << 40
USUAL: Final = Fraction(95, 100)  # confidence, where nobody says another


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is said about paying: by the caller, or by the SQL itself (OPTIONS, or a hint).

    ``choose`` names what shall be found privately where it is missing: bounds, caps.
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


def checked_terms(terms: Terms) -> Terms:
    """Refuse terms that are none, whether or not the question uses them."""
    if terms.confidence is not None:
        failure_of(terms.confidence)
    if terms.delta is not None and not 0 <= terms.delta < 1:
        raise SpecError("delta is not a probability.", fix="Use a small delta, for example 1e-6.")
    if terms.rows is not None and (type(terms.rows) is not int or not 1 <= terms.rows <= _ROWS_MAX):
        raise SpecError("rows is not a number of rows.", fix="Give the approximate number of rows.")
    for cap in (terms.rows_per_unit, terms.groups_per_unit):
        if cap is not None and (type(cap) is not int or not 1 <= cap <= CAP_MAX):
            raise SpecError(
                "A contribution bound per unit is out of range.",
                fix=f"Use a whole number from 1 to {CAP_MAX}.",
            )
    return terms


def require_known(terms: Mapping[str, object], order: type, *without: str) -> None:
    """Refuse a term that an order does not have, or that is said in another way."""
    known = {each.name for each in fields(order)} - {*without}
    if unknown := terms.keys() - known:
        raise SpecError(
            f"There is no option {min(unknown)!r}.",
            fix=f"Use {', '.join(sorted(known))}.",
            about="option",
        )


def checked(order: T) -> T:
    """The order, unless a value of it is of another kind than its field, a dataclass's, says.

    Whole numbers of other libraries, such as NumPy's, become Python's.
    """
    whole = {}
    for each in fields(order):  # type: ignore[arg-type]
        value = getattr(order, each.name)
        if not _fits(value, each.type):
            raise _misfit(each.name, value)
        if _is_whole(value):
            whole[each.name] = int(value)
    return replace(order, **whole) if whole else order  # type: ignore[type-var]


def require_texts(**said: object) -> None:
    """Refuse what is neither a text nor left out."""
    for name, value in said.items():
        if value is not None and not isinstance(value, str):
            raise SpecError(
                f"{name} is not a string.", fix="Write it in quotes, or leave it out.", about="text"
            )


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _misfit(name: str, value: object) -> SpecError:
    if isinstance(value, str):
        return SpecError(
            f"{name} is a single string.", fix=f"Use {name}=[{value!r}].", about="text"
        )
    return SpecError(f"The value of {name} is not usable.", fix="Give it as documented.")


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401, PLR0911 - a type as it is written
    """Whether a value can be meant; whatever else a type says is for those who read the value."""
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if kind is int:
        return _is_whole(value)
    if kind in (str, bool, NoneType):
        return isinstance(value, kind)
    if kind in (float, Fraction):
        return isinstance(value, Real)
    if get_origin(kind) is Mapping:
        return isinstance(value, Mapping)
    if get_origin(kind) in (Sequence, tuple):
        of = get_args(kind)[0] is str
        listed = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
        return listed and (not of or all(isinstance(each, str) for each in value))  # type: ignore[attr-defined]
    return True
