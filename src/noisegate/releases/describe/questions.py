"""The questions of a description, in SQL, and which part of the price each of them gets.

all columns   rows, missing values, means and quartiles: one question
bounds        a column without declared bounds, or with some that may be far out, where they are to
              be found or narrowed: one of its own
keys          the rows of each key of a column: one of its own

Each is a question as anybody could ask it. What is not declared is said, not measured.
"""

from collections.abc import Mapping
from enum import Enum, auto
from fractions import Fraction
from typing import Final, final

from noisegate.desk.desk import Desk
from noisegate.desk.terms.price import Funds, Step
from noisegate.desk.terms.terms import Terms
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Column, Kind
from noisegate.releases.describe.description import COUNT, MEAN, MISSING, QUARTILES, ROWS
from noisegate.sql.bounds.sized import LOOSE
from noisegate.sql.job import QuestionJob, question_job
from noisegate.sql.spelling import quoted

ALL: Final = ""  # the name of the question about all columns; others have that of theirs
_LEVELS: Final = ("0.25", "0.5", "0.75")
# Weights in the price, where a count is 1. A quartile errs by ranks about nine times as much as a
# count of the same price, and of single keys there are fewer rows than of all together.
_RANKS: Final = 9
_KEYS: Final = 3
_PARTS: Final = 10**6  # shares are whole ones: prices stay readable, and add up


class Way(Enum):
    """How a column is described, besides its missing values."""

    NUMBERS = auto()  # mean and quartiles within declared bounds
    BOUNDS = auto()  # the same within bounds that are found or narrowed
    KEYS = auto()  # the rows of each key
    NOTHING = auto()  # not declared


def is_listed(column: Column) -> bool:
    """Whether all keys of a column are known: then missing values are one of them."""
    return column.keys is not None or column.kind is Kind.BOOLEAN


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked about columns of a table, all of it for ``epsilon``."""

    desk: Desk
    table: str
    where: str | None
    columns: Mapping[str, Column]
    epsilon: Fraction
    terms: Terms
    fresh: bool

    def way(self, name: str) -> Way:
        """How a column is described."""
        column = self.columns[name]
        if is_listed(column) or (column.kind is Kind.TEXT and self.terms.delta):
            return Way.KEYS
        finds = "bounds" in (self.terms.choose or ()) and column.kind.is_numeric
        if column.between is not None:
            far = finds and max(map(abs, column.between)) >= LOOSE
            return Way.BOUNDS if far else Way.NUMBERS
        return Way.BOUNDS if finds else Way.NOTHING

    def of(self, way: Way) -> list[str]:
        """The columns that are described in this way."""
        return [name for name in self.columns if self.way(name) is way]

    @property
    def notes(self) -> tuple[str, ...]:
        """Why columns are not described."""
        return tuple(f"{name}: {_why(self.columns[name])}" for name in self.of(Way.NOTHING))

    @property
    def names(self) -> list[str]:
        """Those of all questions: that about all columns first."""
        return [ALL, *self.of(Way.BOUNDS), *self.of(Way.KEYS)]

    def sql(self, name: str) -> str:
        """The SELECT of a question."""
        rows = f"FROM {quoted(self.table)}" + (f" WHERE {self.where}" if self.where else "")
        if name != ALL and self.way(name) is Way.KEYS:
            key, counted = quoted(name), f"COUNT(*) AS {_alias(name, COUNT)}"
            return f"SELECT {key}, {counted} {rows} GROUP BY {key}"
        items = self._of_all() if name == ALL else self._values(name)
        return f"SELECT {', '.join(items)} {rows}"

    def _of_all(self) -> list[str]:
        missing = [
            f"COUNT(*) FILTER (WHERE {quoted(name)} IS NULL) AS {_alias(name, MISSING)}"
            for name in self.columns
            if self._is_counted(name)
        ]
        values = [item for name in self.of(Way.NUMBERS) for item in self._values(name)]
        return [f"COUNT(*) AS {quoted(ROWS)}", *missing, *values]

    def _is_counted(self, name: str) -> bool:
        """Whether its missing values are counted for themselves."""
        return self.columns[name].nullable and not is_listed(self.columns[name])

    def _values(self, name: str) -> list[str]:
        """The mean and quartiles of a column; of dates there is no mean."""
        of, numeric = quoted(name), self.columns[name].kind.is_numeric
        means = [f"AVG({of}) AS {_alias(name, MEAN)}"] if numeric else []
        return means + [
            f"QUANTILE_CONT({of}, {level}) AS {_alias(name, each)}"
            for level, each in zip(_LEVELS, QUARTILES, strict=True)
        ]

    def price(self, name: str) -> Step:
        """The step of a question: a share of ε, or of ρ where Gaussian noise adds up."""
        counts = 1 + sum(map(self._is_counted, self.columns))
        weights = {ALL: counts + sum(map(self._weight, self.of(Way.NUMBERS)))}
        weights |= {each: self._weight(each) for each in self.of(Way.BOUNDS)}
        weights |= dict.fromkeys(self.of(Way.KEYS), _KEYS)
        total = sum(weights.values())
        shares = {each: Fraction(w * _PARTS // total, _PARTS) for each, w in weights.items()}
        shares[ALL] += 1 - sum(shares.values())
        funds = Funds(epsilon=self.desk.step(self.epsilon), gaussian=self.desk.gaussian)
        return Step(funds.share(shares[name]))

    def _weight(self, name: str) -> int:
        """A mean is a sum over a count."""
        return _RANKS + 2 * self.columns[name].kind.is_numeric

    def asked(self, name: str, rows_per_unit: int | None = None) -> QuestionJob:
        """A question as of now, with a cap that was found for all columns.

        Not where declared bounds may be narrowed: what units add may bound that better.
        """
        sought = [each for each in self.of(Way.KEYS) if not is_listed(self.columns[each])]
        narrows = name in self.of(Way.BOUNDS) and self.columns[name].between is not None
        found = self.terms.rows_per_unit or (None if narrows else rows_per_unit)
        chosen = ["bounds"] if name in self.of(Way.BOUNDS) else []
        chosen += ["caps"] if "caps" in (self.terms.choose or ()) and found is None else []
        terms = replace(
            self.terms,
            epsilon=self.price(name),
            delta=(self.terms.delta or Fraction(0)) / max(1, len(sought)),
            rows_per_unit=found,
            choose=tuple(chosen) or None,
        )
        return question_job(self.desk, self.sql(name), terms, fresh=self.fresh)


def alias(name: str, statistic: str) -> str:
    """How a number of a column is called in an answer."""
    return f"{name} {statistic}"


def _alias(name: str, statistic: str) -> str:
    return quoted(alias(name, statistic))


def _why(column: Column) -> str:
    """Why a column is not described."""
    if column.kind.is_numeric:
        return 'its bounds are not declared; choose="bounds" finds them.'
    if column.kind is Kind.TEXT:
        return "its keys are not declared, and without a δ they are not looked for."
    return "its bounds are not declared."
