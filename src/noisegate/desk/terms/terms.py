"""What is said about paying, and how whatever was said is checked before it is used.

>>> from noisegate.releases.recipes.tree import Tree
>>> require_options("tree", Tree, {"branching": 2.5})
Traceback (most recent call last):
    ...
noisegate.errors.SpecError: branching is '2.5'. Use a whole number, or leave it out.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Self, TypedDict, final, get_args, get_origin, get_type_hints

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import MISSING, dataclass, fields
from noisegate.mechanisms.base import failure_of
from noisegate.transforms.checks import CAP_MAX


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PartOf:
    """One of several disjoint parts of a table: by the rule of all parts, and a key.

    Which units are in it, and what it is charged, is for the door alone (`curator/partition.py`):
    an order holds words, and an event that somebody else wrote is never taken for one.

    Attributes:
        by: A column with declared keys, or conditions in order: a row is in the first that is true.
        key: Which part: the key of the column, or the condition.
        table: The table that is split, if several have the column.
        several: "first", where one unit may have rows in several parts: it counts in the first.
    """

    by: tuple[str, ...]
    key: str
    table: str = ""
    several: str = ""


class PartTerms(TypedDict, total=False):
    """A part as a dict; see `PartOf`."""

    by: str | list[str]
    key: str
    table: str
    several: str


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


# options by name, held against the fields of what takes them, before anything is paid


_FAR: Final = 1 << 63  # numbers beyond it are not sizes of anything
_WORDS: Final[Mapping[Any, str]] = MappingProxyType({
    bool: "True or False", int: "a whole number", float: "a number", tuple: "lists of numbers",
})  # fmt: skip


def require_options(name: str, kind: type, options: Mapping[str, Any]) -> None:
    """Refuse options that ``kind``, a dataclass, has no field for, lacks, or has another type for.

    Texts, and exact numbers such as shares, are left to those who read them.
    """
    known = {each.name: each for each in fields(kind)}
    listed = f"Its options: {', '.join(sorted(known)) or 'none'}."
    if unknown := options.keys() - known.keys():
        raise SpecError(f"{name!r} has no option {min(unknown)!r}.", fix=listed, about="option")
    for option, each in known.items():
        if option not in options and each.default is MISSING:
            raise SpecError(f"{name!r} needs the option {option!r}.", fix=listed, about="missing")
    hints = get_type_hints(kind)
    for option, value in options.items():
        if not _is_of(hints[option], value):
            raise SpecError(
                f"{option} is {str(value)[:40]!r}.", fix=f"{_fix(hints[option])}.", about="value"
            )


def _is_of(hint: Any, value: Any) -> bool:  # noqa: ANN401 - a type as it is written, any value
    if isinstance(hint, UnionType):
        return any(_is_of(each, value) for each in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_of(get_args(hint)[0], each) for each in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) < _FAR
    if hint is int:
        return type(value) is int and abs(value) < _FAR
    return hint not in (bool, NoneType) or isinstance(value, hint)


def _fix(hint: Any) -> str:  # noqa: ANN401 - a type as it is written
    plain, *rest = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return f"Use {_WORDS[get_origin(plain) or plain]}{', or leave it out' if rest else ''}"


# a price that is a part of what is left: ``epsilon="rest"``, "1/10 of rest", "10% of rest"


_REST: Final = re.compile(
    r"\s*(?:([^\s%_]+)\s*(%)?[\s_]+of[\s_]+)?(?:the[\s_]+)?rest\s*", re.IGNORECASE
)
_LONG: Final = 60  # letters
_NOTED: Final = "the price of an order for a part of the rest, "
_NOTE: Final = re.compile(re.escape(_NOTED) + r"([0-9a-f]{40}): ([0-9]{1,400}(?:/[0-9]{1,400})?)")


@final
class Rest(str):
    """A part of what is left, as it is written; "rest" is all of it.

    The part is one of the account's own measure, so that ten tenths of it fit, whatever adds up.
    """

    __slots__ = ()

    @classmethod
    def of(cls, share: Fraction) -> Self:
        """The part that is this share."""
        return cls("rest" if share == 1 else f"{share} of rest")

    @property
    def share(self) -> Fraction:
        """How much of what is left."""
        return Fraction(self.partition(" of ")[0]) if " " in self else Fraction(1)


@final
class Part(Fraction):
    """The ε that a part of what was left came to. ``order`` is a digest of the order, as said.

    The ledger keeps both beside each other once it is paid (`noted`): less is left by then, and
    none of its entries need have that price, where an order is several of them.
    """

    __slots__ = ("order",)
    order: str

    def __new__(cls, epsilon: Fraction, order: str) -> Self:  # noqa: D102 - see above
        self = super().__new__(cls, epsilon)
        self.order = order
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (Fraction(self), self.order)

    @property
    def note(self) -> str:
        """What the ledger keeps of it."""
        return f"{_NOTED}{self.order}: {Fraction(self)}"


def noted(text: object) -> tuple[str, Fraction] | None:
    """The order and its ε, of a note of the ledger; None where it is about something else."""
    found = _NOTE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else (found[1], Fraction(found[2]))


def rest_of(value: Any) -> Rest | None:  # noqa: ANN401 - as people write it
    """The part of the rest that is meant, if one is.

    >>> rest_of("10% of rest"), rest_of("Rest"), rest_of("0.1")
    ('1/10 of rest', 'rest', None)
    """
    found = _REST.fullmatch(value) if isinstance(value, str) and len(value) <= _LONG else None
    if found is None:
        return None
    share = fraction(found[1] or 1, name="epsilon") / (100 if found[2] else 1)
    if not 0 < share <= 1:
        raise SpecError(
            "A part of the rest is above 0 and at most all of it.",
            fix='Use "rest", "1/10 of rest" or "10% of rest".',
            about="rest",
        )
    return Rest.of(share)


def price_of(value: Number, name: str = "epsilon") -> Fraction | Rest:
    """A price as an order holds it: an exact number, or a part of the rest."""
    return value if isinstance(value, Part) else rest_of(value) or fraction(value, name=name)
