"""Names that fold as in DuckDB, and refusals that say the nearest thing that works."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeVar

from sqlglot import exp

from noisegate.errors import Unsupported

_FOLD: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
FORM: Final = "For example: SELECT region, COUNT(*) FROM visits GROUP BY region."
Node = exp.Expr
Found = TypeVar("Found")


def listed(words: str) -> tuple[str, ...]:
    """Words one after the other."""
    return tuple(words.split())


_CHANGING: Final = "It gives another value each time, so a question would not be one question."
_PATTERN: Final = "Use LIKE, ILIKE, STARTS_WITH, ENDS_WITH or CONTAINS."
_INSIDE: Final = "Inside it would let rows decide which rows count; put it outside."
_ROWS_DECIDE: Final = ("ORDER BY", "LIMIT", "OFFSET", "QUALIFY", "WINDOW", "DISTINCT ON")
_REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(
        listed("RAND RANDOM UUID GEN_RANDOM_UUID NEXTVAL CURRVAL SETSEED SAMPLE"), _CHANGING
    ),
    **dict.fromkeys(
        listed("NOW CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME TODAY AGE"),
        "It moves on, so a question would not be one question. Write the date itself, such as "
        "DATE '2024-01-31'.",
    ),
    **dict.fromkeys(
        listed("REGEXP_LIKE REGEXP_MATCHES REGEXP_EXTRACT REGEXP_REPLACE SIMILARTO GLOB"),
        _PATTERN,
    ),
    **dict.fromkeys(
        listed("READ_CSV READ_CSV_AUTO READ_PARQUET READ_JSON READ_TEXT READ_BLOB GETENV"),
        "Files and settings are out of reach; ask about the tables of the policy.",
    ),
    **dict.fromkeys(_ROWS_DECIDE, _INSIDE),
    **dict.fromkeys(
        listed(
            "GROUP_CONCAT STRING_AGG LISTAGG LIST ARRAY_AGG ANY_VALUE FIRST LAST ARG_MIN ARG_MAX"
        ),
        "It shows values of single rows, and rows do not leave. COUNT or average them.",
    ),
    "FULL JOIN": "Use LEFT JOIN, with the private table on the left.",
    "NATURAL JOIN": "Name the columns: JOIN ... USING (column).",
    "SUBQUERY": "Use IN or EXISTS in WHERE, joined by AND.",
    "TIME_TO_STR": "Use EXTRACT or DATE_TRUNC.",
    "DATE_BIN": "Use DATE_TRUNC.",
    "SECOND": "Use HOUR or MINUTE.",
    "UNION": "Use UNION ALL, and count distinct values outside.",
    "EXCEPT": "Use NOT EXISTS.",
    "INTERSECT": "Use EXISTS.",
    "*": "Name the columns.",
}
_SQL_NAMES: Final = listed(
    """ABS SIGN FLOOR CEIL ROUND TRUNC LEAST GREATEST SQRT LN LOG LOG10 LOG2 EXP POWER MOD COALESCE
    NULLIF IFNULL LOWER UPPER LENGTH TRIM LTRIM RTRIM SUBSTRING LEFT RIGHT CONCAT REPLACE
    STARTS_WITH ENDS_WITH CONTAINS LIKE ILIKE POSITION YEAR QUARTER MONTH DAY HOUR MINUTE DAYOFWEEK
    DAYOFYEAR WEEK DATE_TRUNC DATE_DIFF MAKE_DATE EXTRACT CAST CASE WIDTH_BUCKET COUNT SUM AVG
    VAR_SAMP VAR_POP STDDEV_SAMP STDDEV_POP COVAR_SAMP COVAR_POP CORR MEDIAN QUANTILE_CONT
    PERCENTILE_CONT MIN MAX COUNT_IF"""
)


def fold(name: str) -> str:
    """A name as DuckDB compares it: ASCII letters only, so look-alikes stay different.

    >>> fold("Ward") == fold("ward"), fold("\N{KELVIN SIGN}") == fold("K")
    (True, False)
    """
    return name.translate(_FOLD)


def name_of(node: Node) -> str:
    """What a piece of SQL is called in a message."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    if isinstance(node, exp.Func) and not isinstance(node, exp.Case | exp.Cast):
        return node.sql_name()
    return node.key.upper()


def refusal(what: Node | str) -> Unsupported:
    """The refusal of a piece of SQL, with the nearest form that works."""
    name = what if isinstance(what, str) else name_of(what)
    fix = _REASONS.get(name)
    if fix is None:
        near = get_close_matches(name, _SQL_NAMES, n=1)
        fix = f"The nearest that is offered is {near[0]}." if near else "Leave it out."
    return Unsupported(f"{name} is not offered over private rows.", fix=fix)


def sub_query_refusal(node: Node) -> Unsupported:
    """The refusal of a sub-query where one row is looked at."""
    if isinstance(node, exp.Exists):
        return refusal("SUBQUERY")
    return Unsupported(
        "A sub-query gives a number to compare or compute single rows with; of private rows it "
        "would have to be measured first.",
        fix="Ask the sub-query by itself, then write the number that it gave. For a number of the "
        "unit's own rows, join a sub-query that groups by the unit.",
    )


def require_only(node: Node, *known: str) -> None:
    """Refuse a node that says more than the reader looks at."""
    for part, value in node.args.items():
        if value and part not in known:
            word = f"{name_of(node)} ... {part.strip('_').replace('_', ' ').upper()}"
            raise Unsupported(f"{word} is not offered.", fix="Leave this part out.")


def no_such(what: str, name: str, known: Iterable[str]) -> Unsupported:
    """The refusal of an unknown name."""
    return Unsupported(f"There is no {what} {name!r}.", fix=f"There are: {', '.join(known)}.")


def attempt(read: Callable[[], Found]) -> Found | None:
    """What ``read`` finds, or None where it is refused."""
    try:
        return read()
    except Unsupported:
        return None
