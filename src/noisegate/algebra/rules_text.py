"""Texts: what is known about results. Positions and lengths count characters (code points)."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

from noisegate.algebra.intervals import KEYS_MAX
from noisegate.algebra.rules_logic import condition
from noisegate.algebra.signature import Literals, Rule, any_nullable
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Key, Kind

REPLACED_MAX: Final = 4096  # characters that REPLACE and || read, so that no text grows on and on
GROWTH_MAX: Final = 16
WILDCARDS_MAX: Final = 4  # engines try all ways to place them
_CASED_MAX: Final = "\u0530"  # letters beyond Latin, Greek, Cyrillic: engines differ in their cases


def mapping(function: Callable[..., str | None] | None) -> Rule:
    """A text made of texts. ``function`` says what becomes of keys (None where it cannot)."""

    def rule(args: Sequence[Domain], literals: Literals) -> Domain:
        keys = None if function is None else _keys(function, args, literals)
        partial = any(arg.kind is Kind.INTEGER and not _is_place(arg) for arg in args)
        return Domain(kind=Kind.TEXT, keys=keys, nullable=any_nullable(args) or partial)

    return rule


def _is_place(arg: Domain) -> bool:
    """Whether an engine takes the whole number as a position."""
    size = arg.magnitude
    return size is not None and size < 1 << 31


def _keys(
    function: Callable[..., str | None], args: Sequence[Domain], literals: Literals
) -> tuple[Key, ...] | None:
    """The keys that follow where one argument has keys and the others are constants."""
    free = [i for i, literal in enumerate(literals) if literal is ...]
    if len(free) != 1 or args[free[0]].kind is not Kind.TEXT or None in literals:
        return None
    values: list[Any] = list(literals)
    found: dict[Key, None] = {}
    for key in args[free[0]].keys or ():
        values[free[0]] = key
        made = None if key is None else function(*values)
        if made is None:
            return None
        found[made] = None
    return tuple(found) if 0 < len(found) <= KEYS_MAX else None


def case_of(function: Callable[[str], str]) -> Callable[[str], str | None]:
    """Upper or lower case, letter by letter, where all agree on it."""

    def change(text: str) -> str | None:
        changed = [function(letter) for letter in text]
        agreed = all(
            letter < _CASED_MAX and letter not in "ßİıŉſǰ" and len(new) == 1
            for letter, new in zip(text, changed, strict=True)
        )
        return "".join(changed) if agreed else None

    return change


def stripped(function: Callable[[str, str], str]) -> Callable[[str], str | None]:
    """Without the spaces at an end; texts with other blanks are left to the engine."""
    return lambda text: None if not text.isascii() else function(text, " ")


def first_letters(text: str, count: int) -> str:
    """LEFT: a negative count leaves out that many at the end."""
    return text[:count]


def last_letters(text: str, count: int) -> str:
    """RIGHT: a negative count leaves out that many at the start."""
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def part(text: str, start: int, length: int | None = None) -> str | None:
    """SUBSTRING from ``start`` (1 is the first); other ways to count are left to the engine."""
    if start < 1 or (length is not None and length < 0):
        return None
    return text[start - 1 :] if length is None else text[start - 1 : start - 1 + length]


def replace(args: Sequence[Domain], literals: Literals) -> Domain:
    """Of the first 4,096 characters. What is put in is short, or no longer than what goes."""
    old, new = literals[1:]
    if len(new) > max(len(old), GROWTH_MAX):
        raise Unsupported(
            "REPLACE would put in a long text.",
            fix=f"Use at most {GROWTH_MAX} characters, or no more than it takes out.",
        )
    return mapping(_replaced)(args, literals)


def _replaced(text: str, old: str, new: str) -> str:
    return text[:REPLACED_MAX].replace(old, new) if old else text[:REPLACED_MAX]


def length(args: Sequence[Domain], _literals: Literals) -> Domain:
    """How many characters. There is no bound on it."""
    lengths = sorted({len(str(key)) for key in args[0].keys or () if key is not None})
    return Domain(
        kind=Kind.INTEGER,
        low=Fraction(0),
        keys=tuple(lengths) or None,
        nullable=args[0].nullable,
    )


def position(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Where a part begins in a text, counted from 1; 0 where it is not."""
    return Domain(kind=Kind.INTEGER, low=Fraction(0), nullable=any_nullable(args))


def like(args: Sequence[Domain], literals: Literals) -> Domain:
    """A constant pattern of % (any characters) and _ (one); an escape sign may be named."""
    pattern = literals[1]
    escape = literals[2] if len(literals) > 2 else None
    if escape is not None and len(escape) != 1:
        raise Unsupported("The ESCAPE of LIKE is not one character.", fix="Use ESCAPE '!'.")
    wildcards = places = 0
    while places < len(pattern):
        sign = pattern[places]
        if sign == escape:
            places += 1
            if places == len(pattern):
                raise Unsupported(
                    "The pattern of LIKE ends with its escape sign.", fix="Drop the sign."
                )
        elif sign == "%" and pattern[places - 1 : places] != "%":
            wildcards += 1
        places += 1
    if wildcards > WILDCARDS_MAX:
        raise Unsupported(
            "The pattern of LIKE has too many %.", fix=f"Use at most {WILDCARDS_MAX}, and AND."
        )
    return condition(args, literals)


def joined(*parts: str) -> str:
    """Texts one after the other, each cut to the characters that are read."""
    return "".join(part[:REPLACED_MAX] for part in parts)
