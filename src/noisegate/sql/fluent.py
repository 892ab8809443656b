"""The fluent Python form: steps on a table, compiled to the SQL that the gate reads.

    table.where("age > 40").where(ward="north").group_by("ward").agg(n="COUNT(*)").ask(epsilon=0.1)

Every step returns a new question and leaves the old one as it was. Names are quoted, and values are
literals, so neither can say more than they should; expressions are SQL, read by the same reader.
"""

from collections.abc import Callable
from datetime import date, datetime
from math import isfinite
from typing import Any, Final, Unpack, final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.desk.answer import Answer
from noisegate.desk.plan import Expected, Plan
from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.sql.order import SqlTerms

_DIALECT: Final = "duckdb"


class AskTerms(SqlTerms, total=False):
    """The terms of a question, and whether it is drawn anew."""

    fresh: bool


@final
@dataclass(frozen=True, slots=True)
class TableQuestion:
    """A question about one table, built step by step. Made by ``gate.table(name)``."""

    table: str
    _ask: Callable[..., Answer]
    _plan: Callable[..., Plan[Expected]]
    _where: tuple[str, ...] = ()
    _by: tuple[tuple[str, str | None], ...] = ()  # expression and name
    _shown: tuple[tuple[str, str | None], ...] = ()
    _having: tuple[str, ...] = ()
    _order: tuple[str, ...] = ()
    _limit: int | None = None

    def where(self, *conditions: str, **values: Any) -> "TableQuestion":  # noqa: ANN401 - values
        """Only rows that meet all conditions; ``ward="north"`` is one, and so is a list of keys."""
        equal = tuple(_equals(name, value) for name, value in values.items())
        return replace(self, _where=(*self._where, *map(_condition, conditions), *equal))

    def group_by(self, *columns: str, **expressions: str) -> "TableQuestion":
        """One row of the answer for each key: columns by name, expressions by the name they get."""
        plain = tuple((_quoted(column), None) for column in columns)
        named = tuple((_checked(sql), name) for name, sql in expressions.items())
        return replace(self, _by=(*self._by, *plain, *named))

    def agg(self, **aggregates: str) -> "TableQuestion":
        """Numbers to show, by name: ``agg(n="COUNT(*)", mean="AVG(age)")``."""
        named = tuple((_checked(sql), name) for name, sql in aggregates.items())
        return replace(self, _shown=(*self._shown, *named))

    def count(self, name: str = "n") -> "TableQuestion":
        """The number of rows."""
        return self.agg(**{name: "COUNT(*)"})

    def sum(self, column: str, name: str = "sum") -> "TableQuestion":
        """The sum of a column."""
        return self._of(column, name, "SUM")

    def mean(self, column: str, name: str = "mean") -> "TableQuestion":
        """The mean of a column."""
        return self._of(column, name, "AVG")

    def median(self, column: str, name: str = "median") -> "TableQuestion":
        """The median of a column."""
        return self._of(column, name, "MEDIAN")

    def having(self, *conditions: str) -> "TableQuestion":
        """Only rows of the answer that meet all conditions; free."""
        return replace(self, _having=(*self._having, *map(_condition, conditions)))

    def order_by(self, *terms: str) -> "TableQuestion":
        """The order of the answer's rows, such as ``"n DESC"``; free."""
        ordered = tuple(_checked(term, exp.Ordered) for term in terms)
        return replace(self, _order=(*self._order, *ordered))

    def limit(self, rows: int) -> "TableQuestion":
        """At most so many rows of the answer; free."""
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise SpecError(
                "The limit is not a whole number.", fix="Use a whole number of rows.", about="limit"
            )
        return replace(self, _limit=rows)

    @property
    def sql(self) -> str:
        """The question as SQL."""
        if not self._shown and not self._by:
            raise SpecError(
                "The query does not ask for anything.",
                fix='Add .count() or .agg(mean="AVG(x)").',
                about="nothing",
            )
        shown = ", ".join(
            sql if name is None else f"{sql} AS {_quoted(name)}"
            for sql, name in (*self._by, *self._shown)
        )
        keys = [sql for sql, _ in self._by] if self._shown else []
        clauses = [
            ("SELECT" if self._shown else "SELECT DISTINCT", [shown], ""),
            ("FROM", [_quoted(self.table)], ""),
            ("WHERE", self._where, " AND "),
            ("GROUP BY", keys, ", "),
            ("HAVING", self._having, " AND "),
            ("ORDER BY", self._order, ", "),
            ("LIMIT", [] if self._limit is None else [str(self._limit)], ""),
        ]
        return " ".join(f"{word} {joint.join(parts)}" for word, parts, joint in clauses if parts)

    def ask(self, **terms: Unpack[AskTerms]) -> Answer:
        """Ask it; the terms are those of ``Gate.sql``: epsilon, within, confidence, fresh."""
        return self._ask(self.sql, **terms)

    def plan(self, **terms: Unpack[AskTerms]) -> Plan[Expected]:
        """Price and error of it, free; the terms are those of ``Gate.plan``."""
        return self._plan(self.sql, **terms)

    def __str__(self) -> str:
        return self.sql

    def _of(self, column: str, name: str, function: str) -> "TableQuestion":
        return self.agg(**{name: f"{function}({_quoted(column)})"})


def _quoted(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise SpecError("A name is missing.", fix="Name a table or column.", about="name")
    return exp.to_identifier(name, quoted=True).sql(dialect=_DIALECT)


def _condition(sql: str) -> str:
    """A condition that can stand beside others."""
    return f"({_checked(sql)})"


def _checked(sql: str, kind: type[exp.Expr] = exp.Condition) -> str:
    """The text of one whole expression; anything that goes on after it is refused.

    The text stays as it is, since the reader knows more forms than one dialect writes; only a
    comment or a semicolon, which could swallow what follows, is written anew.
    """
    try:
        tree = sqlglot.parse_one(sql, dialect=_DIALECT, into=kind)
    except (SqlglotError, RecursionError, TypeError, AttributeError):
        tree = None
    if tree is None:
        raise SpecError(
            f"{str(sql)[:80]!r} is not a SQL expression.",
            fix='For example: "age > 40".',
            about="expression",
        )
    return (
        tree.sql(dialect=_DIALECT)
        if any(sign in sql for sign in ("--", "/*", ";"))
        else sql.strip()
    )


def _equals(name: str, value: Any) -> str:  # noqa: ANN401 - checked below
    column = _quoted(name)
    if value is None:
        return f"{column} IS NULL"
    if isinstance(value, list | tuple | set | frozenset):
        return f"{column} IN ({', '.join(_literal(name, each) for each in value)})"
    return f"{column} = {_literal(name, value)}"


def _literal(name: str, value: Any) -> str:  # noqa: ANN401 - checked here
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value)):
        return exp.convert(value).sql(dialect=_DIALECT)
    raise SpecError(
        f"The value for {name!r} is not a literal.",
        fix="Use a string, a number, a date, or a list.",
        about="literal",
    )
