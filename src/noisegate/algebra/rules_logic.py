"""Comparison, logic, choice and casts: what is known about results. NULL is as in SQL."""

from collections.abc import Sequence
from datetime import date, datetime
from math import floor
from typing import Final

from noisegate.algebra.intervals import (
    KEYS_MAX,
    Span,
    doubled,
    ends,
    fits,
    hull,
    is_unknown,
    known,
    listed_keys,
    number,
    scales,
    truth,
    whole,
)
from noisegate.algebra.signature import Literals, Rule, any_nullable, common_kind
from noisegate.errors import Unsupported
from noisegate.frozen import replace
from noisegate.privacy.domain import Domain, Key, Kind

DAY: Final = 86_400 * 10**6  # in microseconds


def condition(args: Sequence[Domain], _literals: Literals) -> Domain:
    """AND, OR, NOT and tests of one text by another: missing where an argument is."""
    return truth(nullable=any_nullable(args))


def comparison(args: Sequence[Domain], literals: Literals) -> Domain:
    """Values of one kind, side by side."""
    common_kind(args, literals)
    return truth(nullable=any_nullable(args))


def certain(_args: Sequence[Domain], _literals: Literals) -> Domain:
    """IS NULL, IS TRUE: never missing."""
    return truth(nullable=False)


def extreme(*, of_least: bool) -> Rule:
    """LEAST and GREATEST pass over missing arguments, so only constants bound the result."""

    def rule(args: Sequence[Domain], literals: Literals) -> Domain:
        kind = common_kind(args, literals)
        pairs = list(zip(args, literals, strict=True))
        real = [arg for arg, value in pairs if value is not None] or args
        low, high = hull(span_as(arg, kind) for arg in real)
        sure = [
            span_as(arg, kind) for arg, value in pairs if value is not ... and value is not None
        ]
        nullable = all(arg.nullable for arg in args)
        if sure and of_least:
            high = min(span[1] for span in sure)
        elif sure:
            low = max(span[0] for span in sure)
        return _made(
            kind, (low, high), nullable=nullable, keys=_union(args, literals), scale=_scale(real)
        )

    return rule


def coalesce(args: Sequence[Domain], literals: Literals) -> Domain:
    """The first value that is not missing."""
    nullable = all(arg.nullable for arg in args)
    return _one_of(args, literals, nullable=nullable)


def nullif(args: Sequence[Domain], literals: Literals) -> Domain:
    """The first value, missing where it equals the second; a constant is not a group of it then.

    Claim: every value that is not missing, and was a key of the first, is a key still. Why: only
    the constant leaves the list, and wherever the first equals it the result is missing.
    """
    common_kind(args, literals)
    keys = args[0].keys
    if keys is not None and type(literals[1]) in (str, int, bool):
        keys = tuple(key for key in keys if key != literals[1])
    return replace(args[0], keys=keys, nullable=True)


def case(args: Sequence[Domain], literals: Literals) -> Domain:
    """Conditions and values by turns, then the value otherwise."""
    for place in range(0, len(args) // 2 * 2, 2):
        kind = args[place].kind
        if kind is not Kind.BOOLEAN and literals[place] is not None:
            raise Unsupported(
                f"CASE needs a condition, not {kind.value}.",
                fix="Compare it, for example WHEN x = 1.",
            )
    places = case_values(len(args))
    values = [args[i] for i in places]
    nullable = len(args) % 2 == 0 or any_nullable(values)
    return _one_of(values, [literals[i] for i in places], nullable=nullable)


def case_values(count: int) -> list[int]:
    """Which of the arguments of CASE are values."""
    return [*range(1, count, 2), *([count - 1] if count % 2 else [])]


def span_as(arg: Domain, kind: Kind) -> Span:
    """The bounds of a value after it has become ``kind``."""
    if kind is Kind.NUMBER:
        return doubled(arg)
    low, high = ends(arg)
    if kind is arg.kind or kind not in (Kind.DATE, Kind.TIMESTAMP):
        return low, high
    if kind is Kind.TIMESTAMP:
        return low * DAY, high * DAY
    return tuple(end if is_unknown(end) else floor(end / DAY) for end in (low, high))


def _one_of(values: Sequence[Domain], literals: Literals, *, nullable: bool) -> Domain:
    kind = common_kind(values, literals)
    real = [v for v, given in zip(values, literals, strict=True) if given is not None]
    span = hull([span_as(value, kind) for value in real or values])
    keys, scale = _union(values, literals), _scale(real)
    return _made(kind, span, nullable=nullable, keys=keys, scale=scale)


def _union(values: Sequence[Domain], literals: Literals) -> tuple[Key, ...] | None:
    """The groups of all values, where all are of one kind and have some."""
    real = [v for v, given in zip(values, literals, strict=True) if given is not None]
    found: dict[Key, None] = {}
    for value in real:
        if value.keys is None or value.kind is not real[0].kind:
            return None
        found |= dict.fromkeys(value.keys)
    return tuple(found) if 0 < len(found) <= KEYS_MAX else None


def _scale(values: Sequence[Domain]) -> int | None:
    return max(scales(values) or (), default=None)


def _made(
    kind: Kind,
    span: Span,
    *,
    nullable: bool,
    keys: tuple[Key, ...] | None,
    scale: int | None = None,
) -> Domain:
    if kind is Kind.BOOLEAN:
        return truth(nullable=nullable)
    if kind is Kind.NUMBER:
        return number(span, nullable=nullable, scale=scale)
    if kind is Kind.INTEGER:
        return whole(span, nullable=nullable, keys=keys)
    low, high = known(span) if kind.is_ordered else (None, None)
    return Domain(kind=kind, low=low, high=high, keys=keys, nullable=nullable)


def _refused(target: Kind, arg: Domain) -> Unsupported:
    return Unsupported(
        f"A cast from {arg.kind.value} to {target.value} is not supported.",
        fix="Cast to text first, or extract a part, for example EXTRACT(year FROM x).",
    )


def to_integer(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Numbers are rounded, halves to even; texts are read. Missing where there is no such value."""
    (arg,) = args
    if arg.kind is Kind.INTEGER:
        return arg
    if arg.kind is Kind.BOOLEAN:
        return whole((0.0, 1.0), nullable=arg.nullable)
    if arg.kind is Kind.TEXT:
        return Domain(kind=Kind.INTEGER)
    if arg.kind is not Kind.NUMBER:
        raise _refused(Kind.INTEGER, arg)
    low, high = (end if is_unknown(end) else round(end) for end in doubled(arg))
    if fits((low, high)):
        return whole((low, high), nullable=arg.nullable)
    return Domain(kind=Kind.INTEGER)


def to_number(args: Sequence[Domain], _literals: Literals) -> Domain:
    """As a double. Texts are read; missing where there is no such value."""
    (arg,) = args
    if arg.kind is Kind.BOOLEAN:
        return number((0.0, 1.0), nullable=arg.nullable)
    if arg.kind is Kind.TEXT:
        return Domain(kind=Kind.NUMBER)
    if not arg.kind.is_numeric:
        raise _refused(Kind.NUMBER, arg)
    return number(doubled(arg), nullable=arg.nullable)


def to_text(args: Sequence[Domain], _literals: Literals) -> Domain:
    """As the engine writes it."""
    (arg,) = args
    listed = None if arg.kind is Kind.NUMBER else listed_keys(arg)
    keys = listed and tuple(text_of(key) for key in listed if key is not None)
    return Domain(kind=Kind.TEXT, keys=keys, nullable=arg.nullable)


def text_of(key: Key) -> str:
    """A key as the engine writes it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, datetime):
        text = str(key)
        return text.rstrip("0") if key.microsecond else text
    return key.isoformat() if isinstance(key, date) else str(key)


def to_boolean(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Numbers but zero are true; texts are read."""
    (arg,) = args
    if arg.kind in (Kind.DATE, Kind.TIMESTAMP):
        raise _refused(Kind.BOOLEAN, arg)
    return truth(nullable=arg.nullable or arg.kind is Kind.TEXT)


def to_moment(target: Kind) -> Rule:
    """Dates from 0001 to 9999. Texts are read; missing where there is no such value."""

    def rule(args: Sequence[Domain], _literals: Literals) -> Domain:
        (arg,) = args
        if arg.kind is target:
            return arg
        if arg.kind is Kind.TEXT:
            return Domain(kind=target)
        if arg.kind not in (Kind.DATE, Kind.TIMESTAMP):
            raise _refused(target, arg)
        low, high = known(span_as(arg, target))
        return Domain(kind=target, low=low, high=high, nullable=arg.nullable)

    return rule
