"""Gates as they are often built, small and in good faith. Every attack here succeeds on one of them.

None is broken on purpose: each does what a first version would do, and leaves out what is easily
overlooked. The tests say beside each attack what that is.
"""

import random
import re
from statistics import fmean

import duckdb
import sqlglot
from sqlglot import exp

MENTIONS_A_PERSON = re.compile(r"\bwho\b|\bname\b")  # columns that must not be asked for
LEAST_ROWS = 5


def laplace(scale):
    """Textbook noise: the difference of two exponentials."""
    return random.expovariate(1 / scale) - random.expovariate(1 / scale)


class Rewriter:
    """Runs the SQL as it is, and adds Laplace noise of scale 1 / ε to whatever was aggregated.

    One question cannot learn more than ε, so every question may be asked. Columns that name a
    person are refused by a list of words. Errors of the engine are passed on, since they help.
    """

    def __init__(self, **tables):
        self._engine = duckdb.connect(":memory:")
        self._engine.execute("SET threads = 1")
        for name, rows in tables.items():
            self._engine.register("rows_given", rows)
            self._engine.execute(f'CREATE TABLE "{name}" AS FROM rows_given')
            self._engine.unregister("rows_given")

    def sql(self, sql, epsilon=1.0):
        """All rows of the answer; aggregated columns are noisy, keys are as they are."""
        if MENTIONS_A_PERSON.search(sql):
            raise PermissionError("who and name are not for you")
        noisy = self._aggregated(sql)
        return [
            tuple(
                value + laplace(1 / epsilon)
                if place in noisy and isinstance(value, int | float)
                else value
                for place, value in enumerate(row)
            )
            for row in self._engine.execute(sql).fetchall()
        ]

    def number(self, sql, epsilon=1.0):
        """The one number of an answer."""
        return self.sql(sql, epsilon)[0][0]

    def average(self, sql, times, epsilon=1.0):
        """The same question again and again."""
        return fmean(self.number(sql, epsilon) for _ in range(times))

    @staticmethod
    def _aggregated(sql):
        tree = sqlglot.parse_one(sql, dialect="duckdb")
        items = tree.expressions if isinstance(tree, exp.Select) else []
        return {place for place, item in enumerate(items) if item.find(exp.AggFunc)}


class Threshold:
    """Exact counts, but only of five rows or more: nobody stands out in a small group."""

    def __init__(self, **tables):
        self._inner = Rewriter(**tables)

    def count(self, sql):
        """A count, or None where it is small."""
        ((found,),) = self._inner._engine.execute(sql).fetchall()
        return found if found >= LEAST_ROWS else None


class Fitted:
    """Noise that fits the data: the scale is the largest value that there is, so none is wasted."""

    def __init__(self, rows):
        self._rows = rows

    def plan(self, column, epsilon=1.0):
        """The error to expect of a sum, before anything is paid."""
        return f"± {3 * max(self._rows.column(column).to_pylist()) / epsilon:g}"
