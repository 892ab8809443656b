"""What expressions mean, in Python: a second, slow implementation that shares no code with sources.

Raises `Unsure` where Python and engines may differ in the last bit or in how they read texts.
"""

import math
import re
import unicodedata
from datetime import date, datetime, timedelta
from fractions import Fraction

from noisegate.algebra.expression import Field, Literal, domain_of
from noisegate.privacy.domain import Kind

READ = 4096  # characters that || and REPLACE read of a text


class Unsure(Exception):  # noqa: N818 - no error
    """The oracle does not know."""


def kinds_of(expression, schema):
    """The kind of every part, by its identity; None for a constant NULL, which fits all."""
    found = {id(expression): None if is_null(expression) else domain_of(expression, schema).kind}
    for arg in getattr(expression, "args", ()):
        found |= kinds_of(arg, schema)
    return found


def evaluate(expression, row, of):
    """The value, or None for NULL; ``of`` are the kinds of all parts."""
    if isinstance(expression, Field):
        return row[expression.name]
    if isinstance(expression, Literal):
        return expression.value if expression.kind is not Kind.NUMBER else number(expression.value)
    kinds = [of[id(arg)] for arg in expression.args]
    args = [evaluate(arg, row, of) for arg in expression.args]
    meaning = SPECIAL.get(expression.function, strict)
    return meaning(expression.function, args, kinds, of[id(expression)])


def is_null(expression):
    return isinstance(expression, Literal) and expression.value is None


def number(value):
    return None if value is None else float(value)


def finite(value):
    return value if math.isfinite(value) else None


def alike(args, kinds):
    if Kind.NUMBER in kinds:
        return [number(arg) for arg in args]
    if Kind.TIMESTAMP in kinds:
        return [moment(arg) for arg in args]
    return args


def moment(value):
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return value


def strict(name, args, kinds, kind):
    """Functions whose value is NULL as soon as an argument is."""
    if any(arg is None for arg in args):
        return None
    if name in COMPARISONS:
        return COMPARISONS[name](*alike(args, kinds))
    if name in WHOLE_OR_NUMBER:
        return arithmetic(name, args, kind)
    return PLAIN[name](*args)


def arithmetic(name, args, kind):
    if kind is Kind.INTEGER:
        return WHOLE_OR_NUMBER[name](*args)
    try:
        return finite(WHOLE_OR_NUMBER[name](*map(float, args)))
    except OverflowError:
        return None


def divide(a, b):
    return None if b == 0 else finite(float(a) / float(b))


def int_divide(name, args, kinds, kind):
    if None in args or args[1] == 0:
        return None
    if abs(args[0]) > 1 << 62 and kind is not Kind.INTEGER:
        raise Unsure
    if kind is Kind.INTEGER and all(isinstance(arg, int) for arg in args):
        return abs(args[0]) // abs(args[1]) * (1 if (args[0] >= 0) == (args[1] > 0) else -1)
    found = divide(*args)
    return (
        None
        if found is None
        else math.trunc(found)
        if kind is Kind.INTEGER
        else float(math.trunc(found))
    )


def modulo(name, args, kinds, kind):
    if None in args or args[1] == 0:
        return None
    if kind is Kind.INTEGER:
        rest = abs(args[0]) % abs(args[1])
        return rest if args[0] >= 0 else -rest
    return math.fmod(*map(float, args))


def rounding(name, args, kinds, kind):
    value = args[0]
    if value is None or len(args) > 1:
        if value is not None and len(args) > 1 and not (isinstance(value, int) and args[1] >= 0):
            raise Unsure
        return value
    if isinstance(value, int):
        return value
    away = math.floor(abs(value)) + (abs(value) - math.floor(abs(value)) >= 0.5)
    found = {
        "floor": math.floor(value), "ceil": math.ceil(value), "trunc": math.trunc(value),
        "round": math.copysign(away, value),
    }[name]  # fmt: skip
    return int(found) if kind is Kind.INTEGER else float(found)


def to_decimal(name, args, kinds, kind):
    value, digits = args
    if value is None:
        return None
    exact = Fraction(float(value)) * 10**digits
    if abs(exact) >= 1 << 52 or abs(abs(exact) % 1 - Fraction(1, 2)) < Fraction(1, 1000):
        raise Unsure
    return float(Fraction(round(exact), 10**digits))


def binned(name, args, kinds, kind):
    x, width, origin = (*args, 0)[:3]
    if x is None:
        return None
    if kind is not Kind.INTEGER or width != int(width):
        raise Unsure
    return math.floor((float(x) - float(origin)) / float(width)) * int(width) + int(origin)


def root(x):
    return None if x < 0 else math.sqrt(x)


def unsure(*_):
    raise Unsure


def all_of(name, args, kinds, kind):
    end = name == "or"
    return end if end in args else None if None in args else not end


def listed(name, args, kinds, kind):
    value, *others = alike(args, kinds)
    if value is None:
        return None
    return (
        True if value in [o for o in others if o is not None] else None if None in others else False
    )


def between(name, args, kinds, kind):
    value, low, high = alike(args, kinds)
    tests = [
        None if None in (value, end) else (value >= end if i == 0 else value <= end)
        for i, end in enumerate((low, high))
    ]
    return all_of("and", tests, kinds, kind)


def extreme(name, args, kinds, kind):
    real = [arg for arg in alike(args, kinds) if arg is not None]
    return (min if name == "least" else max)(real) if real else None


def nullif(name, args, kinds, kind):
    first, second = alike(args, kinds)
    return None if first is not None and second is not None and first == second else args[0]


def case(name, args, kinds, kind):
    default = args[-1] if len(args) % 2 else None
    found = next((args[i + 1] for i in range(0, len(args) - 1, 2) if args[i] is True), default)
    return (
        number(found) if kind is Kind.NUMBER else moment(found) if kind is Kind.TIMESTAMP else found
    )


def coalesce(name, args, kinds, kind):
    return next((arg for arg in alike(args, kinds) if arg is not None), None)


def in_ascii(function):
    return lambda text: function(text) if text.isascii() else unsure()


def blanks(text, *, left, right):
    while left and text and unicodedata.category(text[0]) == "Zs":
        text = text[1:]
    while right and text and unicodedata.category(text[-1]) == "Zs":
        text = text[:-1]
    return text


def place(value):
    return value if -(1 << 31) <= value < 1 << 31 else None


def substring(text, start, length=1 << 31 - 1):
    if place(start) is None or place(length) is None:
        return None
    return unsure() if start < 1 or length < 0 else text[start - 1 :][:length]


def left(text, count):
    return None if place(count) is None else text[:count]


def right(text, count):
    if place(count) is None:
        return None
    return (text[-count:] if count else "") if count >= 0 else text[-count:]


def like(text, pattern, escape=None, flags=0):
    words, signs = [], iter(pattern)
    for sign in signs:
        if sign == escape:
            words.append(re.escape(next(signs)))
        else:
            words.append({"%": ".*", "_": "."}.get(sign, re.escape(sign)))
    return re.fullmatch("".join(words), text, re.DOTALL | flags) is not None


def ilike(text, *others):
    if not (text.isascii() and others[0].isascii()):
        raise Unsure
    return like(text.lower(), others[0].lower(), *others[1:])


def split_part(text, sign, count):
    if not sign:
        raise Unsure
    parts = ["", *text.split(sign)]
    if count < 0:
        return parts[count] if -count < len(parts) else ""
    return parts[count] if count < len(parts) else ""


def lpad(text, size, fill):
    return (fill * size)[: max(size - len(text), 0)] + text[: max(size, 0)]


def rpad(text, size, fill):
    return text[: max(size, 0)] + (fill * size)[: max(size - len(text), 0)]


def pattern_of(pattern, options=""):
    """The same pattern in Python's words, where both read it alike."""
    if "[:" in pattern or "\\z" in pattern:
        raise Unsure
    return re.compile(
        pattern.replace("$", "\\Z"),
        re.ASCII | ("i" in options and re.IGNORECASE) | ("s" in options and re.DOTALL),
    )


def plain(text, options=""):
    if "i" in options and not text.isascii():
        raise Unsure
    return text


def regexp_matches(text, pattern, options=""):
    return pattern_of(pattern, options).search(plain(text, options)) is not None


def regexp_extract(text, pattern, group):
    found = pattern_of(pattern).search(text)
    return "" if found is None else found[group] or ""


def regexp_replace(text, pattern, new, options=""):
    if "*" in pattern or "?" in pattern or not pattern:  # matches of nothing
        raise Unsure
    new = new.replace("\\0", "\\g<0>")
    return pattern_of(pattern, options).sub(
        new, plain(text, options), count=0 if "g" in options else 1
    )


def strftime(x, form):
    if x.year < 1000:
        raise Unsure
    return x.strftime(form)


def quarter(x):
    return (x.month + 2) // 3


def number_of(unit, x):
    at = moment(x)
    days = at.toordinal()
    return {
        "year": at.year, "quarter": at.year * 4 + quarter(at), "month": at.year * 12 + at.month,
        "week": (days - 1) // 7, "day": days, "hour": days * 24 + at.hour,
        "minute": (days * 24 + at.hour) * 60 + at.minute,
        "second": ((days * 24 + at.hour) * 60 + at.minute) * 60 + at.second,
    }[unit.lower()]  # fmt: skip


def trunc_moment(unit, x):
    unit, at = unit.lower(), moment(x)
    if unit in ("hour", "minute", "second"):
        parts = ("minute", "second", "microsecond")[("hour", "minute", "second").index(unit) :]
        return at.replace(**dict.fromkeys(parts, 0))
    day = at.date()
    if unit == "week":
        return day - timedelta(days=day.weekday())
    month = {"year": 1, "quarter": quarter(day) * 3 - 2}.get(unit, day.month)
    return day if unit == "day" else day.replace(month=month, day=1)


def add_days(x, days):
    try:
        return x + timedelta(days=days)
    except OverflowError:
        return None


def make_date(y, m, d):
    try:
        return date(y, m, d)
    except (ValueError, OverflowError):
        return None


def to_integer(x):
    if isinstance(x, str):
        return unsure() if not re.fullmatch("[0-9]{1,9}", x) else int(x)
    return round(x) if -9e18 < x < 9e18 else unsure() if abs(x) < 1e19 else None


def to_number(x):
    return float(x) if not isinstance(x, str) else unsure()


def to_text(x):
    if isinstance(x, bool):
        return str(x).lower()
    return (
        str(x)
        if isinstance(x, int | str)
        else unsure()
        if isinstance(x, float | datetime)
        else x.isoformat()
    )


def to_boolean(x):
    return bool(x) if not isinstance(x, str) else unsure()


def to_moment(name, args, kinds, kind):
    if args[0] is None:
        return None
    if isinstance(args[0], str):
        raise Unsure
    return moment(args[0]) if kind is Kind.TIMESTAMP else trunc_moment("day", args[0])


COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
WHOLE_OR_NUMBER = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "negate": lambda a: -a, "abs": abs,
}  # fmt: skip
SPECIAL = {
    "int_divide": int_divide, "modulo": modulo, "floor": rounding, "ceil": rounding,
    "trunc": rounding, "round": rounding, "to_decimal": to_decimal, "bin": binned, "and": all_of, "or": all_of,
    "in": listed, "between": between, "least": extreme, "greatest": extreme,
    "coalesce": coalesce, "nullif": nullif, "case": case,
    "is_null": lambda name, args, *_: args[0] is None,
    "is_true": lambda name, args, *_: args[0] is True,
    "to_date": to_moment, "to_timestamp": to_moment,
}  # fmt: skip
PLAIN = {
    "divide": divide, "sign": lambda x: (x > 0) - (x < 0), "sqrt": root, "ln": unsure,
    "log10": unsure, "log2": unsure, "exp": unsure, "power": unsure,
    "not": lambda x: not x, "lower": in_ascii(str.lower), "upper": in_ascii(str.upper),
    "length": len, "trim": lambda x: blanks(x, left=True, right=True),
    "ltrim": lambda x: blanks(x, left=True, right=False),
    "rtrim": lambda x: blanks(x, left=False, right=True),
    "substring": substring, "left": left, "right": right,
    "concat": lambda *parts: "".join(part[:READ] for part in parts),
    "replace": lambda x, old, new: x[:READ].replace(old, new) if old else x[:READ],
    "starts_with": str.startswith, "ends_with": str.endswith, "contains": lambda x, y: y in x,
    "position": lambda x, y: x.find(y) + 1, "like": like, "ilike": ilike,
    "year": lambda x: x.year, "quarter": quarter, "month": lambda x: x.month,
    "day": lambda x: x.day, "week": lambda x: x.isocalendar().week,
    "dayofweek": lambda x: x.isoweekday() % 7, "dayofyear": lambda x: x.timetuple().tm_yday,
    "strlen": lambda x: len(x.encode()), "reverse": in_ascii(lambda x: x[::-1]),
    "repeat": lambda x, times: x * times, "split_part": split_part, "lpad": lpad, "rpad": rpad,
    "regexp_matches": regexp_matches, "regexp_extract": regexp_extract,
    "regexp_full_match": lambda x, pattern: pattern_of(pattern).fullmatch(x) is not None,
    "regexp_replace": regexp_replace, "strftime": strftime,
    "epoch": lambda x: (moment(x) - datetime(1970, 1, 1)) // timedelta(microseconds=1) / 10**6,  # noqa: DTZ001
    "epoch_ms": unsure, "second": lambda x: x.second,
    "hour": lambda x: x.hour, "minute": lambda x: x.minute, "date_trunc": trunc_moment,
    "date_diff": lambda unit, a, b: number_of(unit, b) - number_of(unit, a),
    "date_add_days": add_days, "make_date": make_date, "to_integer": to_integer,
    "to_number": to_number, "to_text": to_text, "to_boolean": to_boolean,
}  # fmt: skip
KNOWN = COMPARISONS.keys() | WHOLE_OR_NUMBER.keys() | SPECIAL.keys() | PLAIN.keys()
