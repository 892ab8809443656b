"""Names that fold as in DuckDB, and refusals: what works instead, and where they point."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeVar

from sqlglot import ErrorLevel, exp

from noisegate.errors import Unsupported

_FOLD: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
FORM: Final = "For example: SELECT region, COUNT(*) FROM visits GROUP BY region."
Node = exp.Expr
Found = TypeVar("Found")


def listed(words: str) -> tuple[str, ...]:
    """Words one after the other."""
    return tuple(words.split())


_CHANGING: Final = (
    "It returns another value each time, so the same question would have several answers."
)
_PATTERN: Final = "Use LIKE, ILIKE, STARTS_WITH, ENDS_WITH, CONTAINS or REGEXP_MATCHES."
_INSIDE: Final = (
    "In a sub-query it would let rows decide which rows count; put it in the outer query."
)
_ROWS_DECIDE: Final = ("ORDER BY", "LIMIT", "OFFSET", "QUALIFY", "WINDOW", "DISTINCT ON")
_REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(
        listed("RAND RANDOM UUID GEN_RANDOM_UUID NEXTVAL CURRVAL SETSEED SAMPLE"), _CHANGING
    ),
    **dict.fromkeys(
        listed("NOW CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME TODAY"),
        "It changes with time, so the same question would have several answers. Write the date "
        "itself, such as DATE '2024-01-31'.",
    ),
    "GLOB": _PATTERN,
    **dict.fromkeys(
        listed("READ_CSV READ_CSV_AUTO READ_PARQUET READ_JSON READ_TEXT READ_BLOB GETENV"),
        "Files and settings are out of reach; ask about the tables of the policy.",
    ),
    **dict.fromkeys(_ROWS_DECIDE, _INSIDE),
    "FULL JOIN": "Use LEFT JOIN, with the private table on the left.",
    "NATURAL JOIN": "Name the columns: JOIN ... USING (column).",
    "SUBQUERY": "Use IN or EXISTS in WHERE, joined by AND.",
    **dict.fromkeys(
        listed("FIRST LAST ANY_VALUE ARBITRARY ARG_MIN ARG_MAX MIN_BY MAX_BY"),
        "It would show a value of one row, and rows stay private. Use MIN, MAX or COUNT.",
    ),
    **dict.fromkeys(
        listed("STRING_AGG GROUP_CONCAT LISTAGG LIST ARRAY_AGG JSON_GROUP_ARRAY"),
        "It would show values of rows, and rows stay private. Use COUNT(DISTINCT x) or GROUP BY x.",
    ),
    "MODE": "Use SELECT x, COUNT(*) AS n ... GROUP BY x ORDER BY n DESC LIMIT 1.",
    "HISTOGRAM": "Use GROUP BY, with bins such as FLOOR(x / 10) * 10.",
    "APPROX_COUNT_DISTINCT": "Use COUNT(DISTINCT x).",
    **dict.fromkeys(listed("BOOL_AND BOOL_OR"), "Use COUNT_IF(x): how many rows it holds for."),
    **dict.fromkeys(
        listed("KURTOSIS SKEWNESS ENTROPY MAD"), "Use STDDEV, or several levels of QUANTILE_CONT."
    ),
    "PRODUCT": "Use EXP(SUM(LN(x))).",
    **dict.fromkeys(listed("GEOMETRIC_MEAN GEOMEAN"), "Use EXP(AVG(LN(x)))."),
    **dict.fromkeys(
        listed("DATE_FORMAT FORMAT_DATE FORMAT_TIMESTAMP TO_CHAR"), "Use STRFTIME(x, '%Y-%m')."
    ),
    **dict.fromkeys(
        listed("STRPTIME TRY_STRPTIME TO_DATE TO_TIMESTAMP STR_TO_DATE PARSE_DATE"),
        "Use CAST(x AS DATE) or CAST(x AS TIMESTAMP).",
    ),
    "TIME_BUCKET": "Use DATE_TRUNC.",
    "AGE": "It is an INTERVAL. Use EXTRACT(year FROM AGE(DATE '2024-01-31', x)) for full years, "
    "with the date itself, or DATE '2024-01-31' - x for days.",
    "DATEADD": "Use x + INTERVAL 7 DAY.",
    **dict.fromkeys(
        listed("DATE_SUB DATESUB"),
        "Use EXTRACT(year FROM AGE(y, x)) for full years, or DATE_DIFF('month', x, y), which "
        "counts how often a month begins.",
    ),
    **dict.fromkeys(listed("ISNULL NVL2"), "Use x IS NULL, or COALESCE(x, 0)."),
    **dict.fromkeys(listed("CHARINDEX LOCATE"), "Use POSITION(part IN x)."),
    "TO_NUMBER": "Use CAST(x AS DOUBLE).",
    "CONCAT_WS": "Use x || '-' || y.",
    "TRANSLATE": "Use REPLACE, once for each letter.",
    "CBRT": "Use POWER(x, 1 / 3).",
    **dict.fromkeys(listed("MD5 SHA1 SHA256 HASH"), "Use the value itself, or its LENGTH or LEFT."),
    **dict.fromkeys(listed("EXCEPT INTERSECT"), "Leave out ALL; or use EXISTS."),
    "TUPLE": "Compare each column by itself, x = 1 AND y = 2 OR ...; for distinct pairs, ask "
    "SELECT COUNT(*) FROM (SELECT DISTINCT x, y FROM t).",
    "BRACKET": "Of texts, use SUBSTRING(x, 1, 2).",
    "ATTIMEZONE": "Leave it out, or write 'UTC': times stored with a zone are read in UTC.",
    "CAST AS TIME": "Use EXTRACT(hour FROM x), and minute and second.",
    "ANY": "Use IN (SELECT ...).",
    "*": "Name the columns.",
}
_SQL_NAMES: Final = listed(
    """ABS SIGN FLOOR CEIL ROUND TRUNC LEAST GREATEST SQRT LN LOG LOG10 LOG2 EXP POWER MOD COALESCE
    NULLIF IFNULL LOWER UPPER LENGTH TRIM LTRIM RTRIM SUBSTRING LEFT RIGHT CONCAT REPLACE
    STARTS_WITH ENDS_WITH CONTAINS LIKE ILIKE POSITION YEAR QUARTER MONTH DAY HOUR MINUTE DAYOFWEEK
    DAYOFYEAR WEEK SECOND DATE_TRUNC DATE_DIFF MAKE_DATE STRFTIME EPOCH EPOCH_MS EXTRACT SPLIT_PART
    LPAD RPAD REVERSE REPEAT STRLEN REGEXP_MATCHES REGEXP_EXTRACT REGEXP_REPLACE
    CAST CASE WIDTH_BUCKET COUNT SUM AVG
    VAR_SAMP VAR_POP STDDEV_SAMP STDDEV_POP COVAR_SAMP COVAR_POP CORR REGR_SLOPE REGR_INTERCEPT
    MEDIAN QUANTILE_CONT PERCENTILE_CONT MIN MAX COUNT_IF"""
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
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        return name_of(node.this)
    if isinstance(node, exp.Func) and not isinstance(node, exp.Case | exp.Cast):
        if isinstance(node, exp.GroupConcat):
            return "STRING_AGG"
        text = node.sql(dialect="duckdb", unsupported_level=ErrorLevel.IGNORE)
        name, bracket, _ = text.partition("(")
        is_own = bracket and name.isidentifier() and name not in _SQL_NAMES
        return name if is_own else node.sql_name()
    return node.key.upper()


def refusal(what: Node | str) -> Unsupported:
    """The refusal of a piece of SQL, with the nearest form that works."""
    name = what if isinstance(what, str) else name_of(what)
    fix = _REASONS.get(name)
    if fix is None:
        near = get_close_matches(name, _SQL_NAMES, n=1, cutoff=0.87)
        fix = f"The nearest supported one is {near[0]}." if near else "Leave it out."
    return Unsupported(f"{name} is not supported over private rows.", fix=fix, about="function")


def sub_query_refusal(node: Node) -> Unsupported:
    """The refusal of a sub-query where one row is looked at."""
    if isinstance(node, exp.Exists):
        return refusal("SUBQUERY")
    return Unsupported(
        "The result of a sub-query over private rows is compared with single rows, so it would "
        "have to be measured first.",
        fix="Ask the sub-query by itself and write its result here. For a number about each "
        "unit's own rows, join a sub-query that groups by the unit.",
        about="sub-query",
    )


def require_only(node: Node, *known: str) -> None:
    """Refuse a node that says more than the reader looks at."""
    for part, value in node.args.items():
        if value and part not in known:
            word = f"{name_of(node)} ... {part.strip('_').replace('_', ' ').upper()}"
            raise Unsupported(
                f"{word} is not supported.", fix="Leave this part out.", about="clause"
            )


def no_such(what: str, name: str, known: Iterable[str]) -> Unsupported:
    """The refusal of an unknown name, with the one that is spelled nearly so."""
    listed = list(known)
    folded = {fold(each): each for each in listed}
    near = get_close_matches(fold(name), folded, n=1, cutoff=0.75)
    meant = f"Did you mean {folded[near[0]]!r}? " if near else ""
    fix = f"{meant}There are: {', '.join(listed)}."
    return Unsupported(f"There is no {what} {name!r}.", fix=fix, about=what)


def attempt(read: Callable[[], Found]) -> Found | None:
    """What ``read`` finds, or None where it is refused."""
    try:
        return read()
    except Unsupported:
        return None


def private_match() -> Unsupported:
    """Public rows would show who is in a private table."""
    return Unsupported(
        "The answer would show exactly whether a public row has a private match, which one person "
        "may decide.",
        fix="Count the matches: SELECT key, COUNT(*) FROM private GROUP BY key also shows "
        "declared keys without rows, with a count near 0.",
        about="match",
    )


def listed_values() -> Unsupported:
    """VALUES beside private rows."""
    return Unsupported(
        "Joining a list of values with private rows is not supported.",
        fix="Use CASE or IN instead, or join the list with the aggregated result.",
        about="values",
    )


def mixed_tables() -> Unsupported:
    """Released numbers beside private rows."""
    return Unsupported(
        "A released table is joined with private rows.",
        fix="Join released tables with each other, or aggregate per unit (GROUP BY the unit).",
        about="released",
    )


@contextmanager
def at(node: exp.Expr | None) -> Iterator[None]:
    """Let refusals inside point at the node, unless they point at a part of it already."""
    try:
        yield
    except Unsupported as error:
        mark(error, node)
        raise


def mark(error: Unsupported, node: exp.Expr | None) -> None:
    """Let a refusal point at a node, unless it points at a part of it already."""
    if error.start is None and node is not None:
        error.start = _start(node)


def pointing(error: Unsupported, sql: str) -> Unsupported:
    """The refusal, with the line and the column that it points at."""
    if error.start is None:
        return error
    before = sql[: error.start]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    problem = f"Line {line}, column {column}: {error.problem}"
    return Unsupported(problem, fix=error.fix, about=error.about)


def _start(node: exp.Expr) -> int | None:
    """Where the first token of a node begins, as far as the parser tells."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts, default=None)
