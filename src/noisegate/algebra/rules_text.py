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
            "REPLACE would insert a long text.",
            fix=f"Use at most {GROWTH_MAX} characters, or no more than it removes.",
        )
    return mapping(_replaced)(args, literals)


def _replaced(text: str, old: str, new: str) -> str:
    return text[:REPLACED_MAX].replace(old, new) if old else text[:REPLACED_MAX]


def length_of(size: Callable[[str], int]) -> Rule:
    """How many characters, or bytes. There is no bound on it."""

    def rule(args: Sequence[Domain], _literals: Literals) -> Domain:
        lengths = sorted({size(str(key)) for key in args[0].keys or () if key is not None})
        return Domain(
            kind=Kind.INTEGER,
            low=Fraction(0),
            keys=tuple(lengths) or None,
            nullable=args[0].nullable,
        )

    return rule


def reversed_letters(text: str) -> str | None:
    """REVERSE: engines keep the parts of a letter together."""
    return text[::-1] if text.isascii() else None


def split_part(text: str, sign: str, place: int) -> str | None:
    """SPLIT_PART counts from 1, or from −1 backwards; there is nothing beyond the last part."""
    if not sign:
        return None
    parts = text.split(sign)
    return parts[place - 1 if place > 0 else place] if 0 < abs(place) <= len(parts) else ""


def repeat(args: Sequence[Domain], literals: Literals) -> Domain:
    """The first 4,096 characters, a few times."""
    if literals[1] > GROWTH_MAX:
        raise Unsupported(
            "REPEAT would make a long text.",
            fix=f"Repeat up to {GROWTH_MAX} times.",
            about="length",
        )
    return mapping(lambda text, times: text[:REPLACED_MAX] * times)(args, literals)


def padded(join: Callable[[str, str], str]) -> Rule:
    """LPAD and RPAD: cut or filled to a constant length."""

    def pad(text: str, size: int, fill: str) -> str:
        more = size - len(text)
        return text[:size] if more <= 0 else join(text, (fill * more)[:more])

    def rule(args: Sequence[Domain], literals: Literals) -> Domain:
        if not 0 <= literals[1] <= REPLACED_MAX or not literals[2]:  # a length is a small INT
            raise Unsupported(
                "The length of a padded text is out of range, or the padding is empty.",
                fix=f"Use LPAD(x, 5, '0'), from 0 to {REPLACED_MAX} characters.",
                about="length",
            )
        return mapping(pad)(args, literals)

    return rule


def matches(args: Sequence[Domain], literals: Literals) -> Domain:
    """Whether a text, or a part of it, is of a constant pattern."""
    from noisegate.algebra.patterns import groups_of  # noqa: PLC0415 - patterns only

    groups_of(literals[1])
    if len(literals) > 2 and not set(literals[2]) <= set("cis"):
        raise Unsupported(
            "REGEXP_MATCHES has unsupported options.",
            fix="Use 'i' (ignore case), 'c', or 's' (. also matches the end of a line).",
            about="options",
        )
    return condition(args, literals)


def extract(args: Sequence[Domain], literals: Literals) -> Domain:
    """The first part of a text that matches, or a group of it; an empty text where none does."""
    from noisegate.algebra.patterns import groups_of  # noqa: PLC0415 - patterns only

    groups = groups_of(literals[1])
    if not 0 <= literals[2] <= groups:
        raise Unsupported(
            f"REGEXP_EXTRACT asks for group {literals[2]}, and the pattern has {groups}.",
            fix="Use 0 for the whole match, 1 for the first group.",
            about="pattern",
        )
    return mapping(None)(args, literals)


def regexp_replace(args: Sequence[Domain], literals: Literals) -> Domain:
    """The first match replaced, with 'g' all; of the first 4,096 characters."""
    from noisegate.algebra.patterns import groups_of, require_replacement  # noqa: PLC0415

    require_replacement(literals[2], groups_of(literals[1]))
    if len(literals[2]) > GROWTH_MAX:
        raise Unsupported(
            "REGEXP_REPLACE would insert a long text.", fix=f"Use at most {GROWTH_MAX} characters."
        )
    if len(literals) > 3 and not set(literals[3]) <= set("gcis"):
        raise Unsupported(
            "REGEXP_REPLACE has unsupported options.",
            fix="Use 'g' (all matches), 'i' (ignore case), 'c' or 's'.",
        )
    return mapping(None)(args, literals)


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
                    "The pattern of LIKE ends with its escape character.", fix="Remove it."
                )
        elif sign == "%" and pattern[places - 1 : places] != "%":
            wildcards += 1
        places += 1
    if wildcards > WILDCARDS_MAX:
        raise Unsupported(
            "The pattern of LIKE has too many %.",
            fix=f"Use at most {WILDCARDS_MAX}, or several patterns with AND.",
        )
    return condition(args, literals)


def joined(*parts: str) -> str:
    """Texts one after the other, each cut to the characters that are read."""
    return "".join(part[:REPLACED_MAX] for part in parts)
