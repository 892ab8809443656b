"""A price that is a part of what is left: ``epsilon="rest"``, "1/10 of rest", "10% of rest".

The part is one of the account's own measure, so that ten tenths of it fit, whatever adds up there.
"""

import re
from fractions import Fraction
from typing import Any, Final, Self, final

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction

_REST: Final = re.compile(
    r"\s*(?:([^\s%_]+)\s*(%)?[\s_]+of[\s_]+)?(?:the[\s_]+)?rest\s*", re.IGNORECASE
)
_LONG: Final = 60  # letters
_NOTED: Final = "the price of an order for a part of the rest, "
_NOTE: Final = re.compile(re.escape(_NOTED) + r"([0-9a-f]{40}): ([0-9]{1,400}(?:/[0-9]{1,400})?)")


@final
class Rest(str):
    """A part of what is left, as it is written; "rest" is all of it."""

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
