"""The closed list of functions: names that the ledger keeps, how they are written, their rules.

Each is total: it has one value, or NULL, for all arguments of its kinds. NULL stands for whatever
has no value: division by zero, a bad cast, overflow, a root of a negative. Numbers are doubles and
never NaN or infinite. Whole numbers whose results are not provably within ±2⁶² become numbers, so
that none overflows. Unless said otherwise, a function of NULL is NULL.
"""

import difflib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from noisegate.algebra import rules_dates as dates
from noisegate.algebra import rules_logic as logic
from noisegate.algebra import rules_numbers as numbers
from noisegate.algebra import rules_text as texts
from noisegate.algebra.intervals import minus, plus, times
from noisegate.algebra.signature import (
    ANY,
    BOOLEAN,
    CONSTANT,
    CONSTANT_INTEGER,
    CONSTANT_NUMBER,
    CONSTANT_TEXT,
    INTEGER,
    MOMENT,
    NUMERIC,
    TEXT,
    TIME,
    Function,
)
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind

_TWO_NUMBERS: Final = (NUMERIC, NUMERIC)
_TWO_TEXTS: Final = (TEXT, TEXT)

_ARITHMETIC: Final = (
    Function("add", "x + y", _TWO_NUMBERS, numbers.arithmetic(plus, lambda a, b: a + b)),
    Function("subtract", "x - y", _TWO_NUMBERS, numbers.arithmetic(minus, lambda a, b: a - b)),
    Function("multiply", "x * y", _TWO_NUMBERS, numbers.arithmetic(times, lambda a, b: a * b, sum)),
    Function("divide", "x / y", _TWO_NUMBERS, numbers.divide),
    Function("int_divide", "x // y", _TWO_NUMBERS, numbers.int_divide),
    Function("modulo", "x % y", _TWO_NUMBERS, numbers.modulo),
    Function("negate", "-x", (NUMERIC,), numbers.unary(numbers.negated, lambda a: -a)),
    Function("abs", "ABS(x)", (NUMERIC,), numbers.unary(numbers.absolute, abs)),
    Function("sign", "SIGN(x)", (NUMERIC,), numbers.sign),
    Function("floor", "FLOOR(x)", (NUMERIC,), numbers.rounded(math.floor)),
    Function("ceil", "CEIL(x)", (NUMERIC,), numbers.rounded(math.ceil)),
    Function("trunc", "TRUNC(x)", (NUMERIC,), numbers.rounded(math.trunc)),
    Function("round", "ROUND(x, 2)", (NUMERIC, CONSTANT_INTEGER), numbers.round_to, optional=1),
    Function("sqrt", "SQRT(x)", (NUMERIC,), numbers.square_root),
    Function("ln", "LN(x)", (NUMERIC,), numbers.logarithm(math.log)),
    Function("log10", "LOG10(x)", (NUMERIC,), numbers.logarithm(math.log10)),
    Function("log2", "LOG2(x)", (NUMERIC,), numbers.logarithm(math.log2)),
    Function("exp", "EXP(x)", (NUMERIC,), numbers.exponential),
    Function("power", "POWER(x, y)", _TWO_NUMBERS, numbers.power),
    Function(
        "bin", "BIN(x, width, origin)", (NUMERIC, CONSTANT_NUMBER, CONSTANT_NUMBER),
        numbers.bin_of, optional=1,
    ),
)  # fmt: skip

_LOGIC: Final = (
    Function("eq", "x = y", (ANY, ANY), logic.comparison),
    Function("ne", "x <> y", (ANY, ANY), logic.comparison),
    Function("lt", "x < y", (ANY, ANY), logic.comparison),
    Function("le", "x <= y", (ANY, ANY), logic.comparison),
    Function("gt", "x > y", (ANY, ANY), logic.comparison),
    Function("ge", "x >= y", (ANY, ANY), logic.comparison),
    Function("between", "x BETWEEN low AND high", (ANY, ANY, ANY), logic.comparison),
    Function("in", "x IN (1, 2)", (ANY, CONSTANT), logic.comparison, repeats=True),
    Function("and", "x AND y", (BOOLEAN,), logic.condition, repeats=True),
    Function("or", "x OR y", (BOOLEAN,), logic.condition, repeats=True),
    Function("not", "NOT x", (BOOLEAN,), logic.condition),
    Function("is_null", "x IS NULL", (ANY,), logic.certain),
    Function("is_true", "x IS TRUE", (BOOLEAN,), logic.certain),
    Function("least", "LEAST(x, y)", (ANY,), logic.extreme(of_least=True), repeats=True),
    Function("greatest", "GREATEST(x, y)", (ANY,), logic.extreme(of_least=False), repeats=True),
    Function("coalesce", "COALESCE(x, y)", (ANY,), logic.coalesce, repeats=True),
    Function("nullif", "NULLIF(x, y)", (ANY, ANY), logic.nullif),
    Function("case", "CASE WHEN c THEN x ELSE y END", (ANY, ANY), logic.case, repeats=True),
)

_TEXT: Final = (
    Function("lower", "LOWER(x)", (TEXT,), texts.mapping(texts.case_of(str.lower))),
    Function("upper", "UPPER(x)", (TEXT,), texts.mapping(texts.case_of(str.upper))),
    Function("length", "LENGTH(x)", (TEXT,), texts.length_of(len)),
    Function("trim", "TRIM(x)", (TEXT,), texts.mapping(texts.stripped(str.strip))),
    Function("ltrim", "LTRIM(x)", (TEXT,), texts.mapping(texts.stripped(str.lstrip))),
    Function("rtrim", "RTRIM(x)", (TEXT,), texts.mapping(texts.stripped(str.rstrip))),
    Function(
        "substring", "SUBSTRING(x, start, length)", (TEXT, INTEGER, INTEGER),
        texts.mapping(texts.part), optional=1,
    ),
    Function("left", "LEFT(x, 2)", (TEXT, INTEGER), texts.mapping(texts.first_letters)),
    Function("right", "RIGHT(x, 2)", (TEXT, INTEGER), texts.mapping(texts.last_letters)),
    Function(
        "concat", "x || y", (TEXT,), texts.mapping(texts.joined), repeats=True
    ),
    Function(
        "replace", "REPLACE(x, 'a', 'b')", (TEXT, CONSTANT_TEXT, CONSTANT_TEXT), texts.replace
    ),
    Function("starts_with", "STARTS_WITH(x, y)", _TWO_TEXTS, logic.condition),
    Function("ends_with", "ENDS_WITH(x, y)", _TWO_TEXTS, logic.condition),
    Function("contains", "CONTAINS(x, y)", _TWO_TEXTS, logic.condition),
    Function("position", "POSITION(part IN x)", _TWO_TEXTS, texts.position),
    Function("strlen", "STRLEN(x)", (TEXT,), texts.length_of(lambda text: len(text.encode()))),
    Function("reverse", "REVERSE(x)", (TEXT,), texts.mapping(texts.reversed_letters)),
    Function("repeat", "REPEAT(x, 3)", (TEXT, CONSTANT_INTEGER), texts.repeat),
    Function(
        "split_part", "SPLIT_PART(x, '-', 1)", (TEXT, CONSTANT_TEXT, CONSTANT_INTEGER),
        texts.mapping(texts.split_part),
    ),
    Function(
        "lpad", "LPAD(x, 5, '0')", (TEXT, CONSTANT_INTEGER, CONSTANT_TEXT),
        texts.padded(lambda text, more: more + text),
    ),
    Function(
        "rpad", "RPAD(x, 5, '0')", (TEXT, CONSTANT_INTEGER, CONSTANT_TEXT),
        texts.padded(lambda text, more: text + more),
    ),
    Function(
        "regexp_matches", "REGEXP_MATCHES(x, '^a')", (TEXT, CONSTANT_TEXT, CONSTANT_TEXT),
        texts.matches, optional=1,
    ),
    Function(
        "regexp_full_match", "REGEXP_FULL_MATCH(x, 'a+')", (TEXT, CONSTANT_TEXT), texts.matches
    ),
    Function(
        "regexp_extract", "REGEXP_EXTRACT(x, '(a+)b', 1)",
        (TEXT, CONSTANT_TEXT, CONSTANT_INTEGER), texts.extract,
    ),
    Function(
        "regexp_replace", "REGEXP_REPLACE(x, 'a+', 'b', 'g')",
        (TEXT, CONSTANT_TEXT, CONSTANT_TEXT, CONSTANT_TEXT), texts.regexp_replace, optional=1,
    ),
    Function("like", "x LIKE 'a%'", (TEXT, CONSTANT_TEXT, CONSTANT_TEXT), texts.like, optional=1),
    Function("ilike", "x ILIKE 'a%'", (TEXT, CONSTANT_TEXT, CONSTANT_TEXT), texts.like, optional=1),
)  # fmt: skip

_DATES: Final = (
    Function("year", "EXTRACT(year FROM x)", (MOMENT,), dates.year),
    Function("quarter", "EXTRACT(quarter FROM x)", (MOMENT,), dates.part(1, 4)),
    Function("month", "EXTRACT(month FROM x)", (MOMENT,), dates.part(1, 12)),
    Function("week", "EXTRACT(week FROM x)", (MOMENT,), dates.part(1, 53)),
    Function("day", "EXTRACT(day FROM x)", (MOMENT,), dates.part(1, 31)),
    Function("dayofweek", "EXTRACT(dayofweek FROM x)", (MOMENT,), dates.part(0, 6)),
    Function("dayofyear", "EXTRACT(dayofyear FROM x)", (MOMENT,), dates.part(1, 366)),
    Function("hour", "EXTRACT(hour FROM x)", (TIME,), dates.part(0, 23)),
    Function("minute", "EXTRACT(minute FROM x)", (TIME,), dates.part(0, 59)),
    Function("second", "EXTRACT(second FROM x)", (TIME,), dates.part(0, 59)),
    Function("epoch", "EPOCH(x)", (MOMENT,), dates.epoch),
    Function("epoch_ms", "EPOCH_MS(x)", (MOMENT,), dates.epoch_ms),
    Function("strftime", "STRFTIME(x, '%Y-%m')", (MOMENT, CONSTANT_TEXT), dates.strftime),
    Function("date_trunc", "DATE_TRUNC('month', x)", (CONSTANT_TEXT, MOMENT), dates.date_trunc),
    Function("date_add_days", "x + INTERVAL 7 DAY", (MOMENT, INTEGER), dates.date_add_days),
    Function(
        "date_diff", "DATE_DIFF('day', x, y)", (CONSTANT_TEXT, MOMENT, MOMENT), dates.date_diff
    ),
    Function("make_date", "MAKE_DATE(y, m, d)", (INTEGER, INTEGER, INTEGER), dates.make_date),
)

_CASTS: Final = (
    Function("to_integer", "CAST(x AS BIGINT)", (ANY,), logic.to_integer),
    Function("to_number", "CAST(x AS DOUBLE)", (ANY,), logic.to_number),
    Function(
        "to_decimal", "CAST(x AS DECIMAL(15, 2))", (NUMERIC, CONSTANT_INTEGER), numbers.to_decimal
    ),
    Function("to_text", "CAST(x AS VARCHAR)", (ANY,), logic.to_text),
    Function("to_boolean", "CAST(x AS BOOLEAN)", (ANY,), logic.to_boolean),
    Function("to_date", "CAST(x AS DATE)", (ANY,), logic.to_moment(Kind.DATE)),
    Function("to_timestamp", "CAST(x AS TIMESTAMP)", (ANY,), logic.to_moment(Kind.TIMESTAMP)),
)

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType({
    function.name: function
    for function in (*_ARITHMETIC, *_LOGIC, *_TEXT, *_DATES, *_CASTS)
})  # fmt: skip


def function_named(name: str) -> Function:
    """The function, or a refusal that names the nearest one."""
    found = FUNCTIONS.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=0.0)
    raise Unsupported(
        f"There is no function {name!r} here.",
        fix=f"The nearest is {FUNCTIONS[near[0]].forms}.",
        about="function",
    )
