"""Weighted sums of released numbers, and ratios of two of them: their error is that of one noise.

Differences of groups, shares of a total, growth over the row before and rates have this form. With
numerator A and denominator B, the true ratio t has A - t B = 0. What is released of A - t B errs by
the noise of one weighted sum: a number that stands in both counts once, and what a cap loses of
both in the same proportion cancels. The ends of a ratio are those of all t that are left by that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor, frexp, inf, isnan, ldexp, nan
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.frozen import dataclass, replace

Array: TypeAlias = NDArray[np.float64]
Leaves: TypeAlias = Callable[[str], Array]
Factor: TypeAlias = Callable[[Leaves], Array]
Weights: TypeAlias = Mapping[str, Mapping[int, float]]  # of a block: by column and row
Weighed: TypeAlias = Mapping[tuple[str, str], Mapping[int, float]]  # by block and column, and row
HalfWidth: TypeAlias = Callable[[Weighed], float | None]  # of a weighted sum; None: not known

_SAME: Final = (exp.Paren, exp.Nullif, exp.Coalesce)
_TIMES: Final = 2  # an interval is made shorter: after that it hardly moves
_ROWS_MAX, _CELLS_MAX = 1000, 20_000  # of an answer that is followed like this
_MANY, _COARSE = 12, 16  # of so many rows, ratios are taken at so many places to an octave


@final
@dataclass(frozen=True, slots=True)
class Term:
    """A released number, or what is made of some rows, times ``by``: where it and its rows stand.

    It holds so much of ``each`` row.
    """

    of: tuple[str, str]  # block and column
    value: str
    rows: str
    each: Factor
    by: Factor

    def times(self, by: Factor) -> "Term":
        """The same with another weight besides."""
        return replace(self, by=lambda leaves: self.by(leaves) * by(leaves))

    def under(self, alias: str) -> "Term":
        """The same, seen through an alias."""
        each, by = _under(self.each, alias), _under(self.by, alias)
        return Term(self.of, f"{alias}.{self.value}", f"{alias}.{self.rows}", each, by)


@final
@dataclass(frozen=True, slots=True)
class Total:
    """A constant and weighted released numbers."""

    constant: Factor
    terms: tuple[Term, ...] = ()

    def plus(self, other: "Total") -> "Total":
        """The sum of both."""
        return Total(
            lambda leaves: self.constant(leaves) + other.constant(leaves), self.terms + other.terms
        )

    def times(self, by: Factor) -> "Total":
        """A multiple."""
        terms = tuple(term.times(by) for term in self.terms)
        return Total(lambda leaves: self.constant(leaves) * by(leaves), terms)

    def under(self, alias: str) -> "Total":
        """The same, seen through an alias."""
        return Total(_under(self.constant, alias), tuple(term.under(alias) for term in self.terms))

    def value(self, leaves: Leaves) -> Array:
        """What it is in each row."""
        parts = (term.by(leaves) * leaves(term.value) for term in self.terms)
        return sum(parts, self.constant(leaves))

    def weighed(
        self, leaves: Leaves, rows: Callable[[str], Sequence[Sequence[int]]], count: int
    ) -> Iterator[dict[tuple[str, str], dict[int, float]]]:
        """The weights of all released numbers in it, of each row."""
        terms = [
            (term.of, np.broadcast_to(term.by(leaves) * term.each(leaves), count), rows(term.rows))
            for term in self.terms
        ]
        for place in range(count):
            found: dict[tuple[str, str], dict[int, float]] = {}
            for of, by, held in terms:
                each = found.setdefault(of, {})
                for row in held[place]:
                    each[row] = each.get(row, 0.0) + float(by[place])
            yield found


@final
@dataclass(frozen=True, slots=True)
class Form:
    """A weighted sum, or one divided ``by`` another."""

    over: Total
    by: Total | None = None

    @classmethod
    def of(
        cls, of: tuple[str, str], value: str, rows: str, sign: float = 1, count: str | None = None
    ) -> "Form":
        """A released number, or a sum over rows, or an average over a ``count`` of them."""

        def each(leaves: Leaves) -> Array:
            return np.full(1, sign) / (1 if count is None else leaves(count))

        return cls(Total(_nothing, (Term(of, value, rows, each, _one),)))

    @classmethod
    def exact(cls, leaf: str) -> "Form":
        """A number without noise."""
        return cls(Total(lambda leaves: leaves(leaf)))

    def under(self, alias: str) -> "Form":
        """The same, seen through the alias of an inner SELECT."""
        return Form(self.over.under(alias), self.by and self.by.under(alias))

    @property
    def sign(self) -> float:
        """That of the one released number that it is."""
        (term,) = self.over.terms
        return float(term.by(_one_leaf)[0])

    @property
    def is_exact(self) -> bool:
        """Whether no released number is in it."""
        return self.by is None and not self.over.terms

    @property
    def is_joint(self) -> bool:
        """Whether numbers in it may share noise, or what a cap loses of them."""
        of = [term.of[0] for term in (*self.over.terms, *(self.by.terms if self.by else ()))]
        return len(set(of)) < len(of)

    def ends(
        self,
        leaves: Leaves,
        rows: Callable[[str], Sequence[Sequence[int]]],
        count: int,
        half_width: HalfWidth,
    ) -> tuple[Array, Array]:
        """Between what it lies in each row, where all half-widths have the confidence of the ends.

        Why: the weights under which a symmetric log-concave noise has at most some half-width are a
            convex set [MR91], so half-widths are a norm of the weights. Hence t lies where A and B
            lie by themselves, at the same confidence, if 0 is not there; and in any interval the
            half-width of A - t B is at most the larger of those at its ends, which makes the
            interval shorter again. For what caps lose it is a model anyway.
        """
        terms = (*self.over.terms, *(self.by.terms if self.by else ()))
        cells = sum(len(held) for term in terms for held in rows(term.rows))
        if count > _ROWS_MAX or cells > _CELLS_MAX:
            return np.full(count, nan), np.full(count, nan)
        over = np.broadcast_to(self.over.value(leaves), count).tolist()
        tops = self.over.weighed(leaves, rows, count)
        if self.by is None:
            widths = [half_width(top) for top in tops]
            far = np.array([nan if width is None else width for width in widths])
            return over - far, over + far
        under = np.broadcast_to(self.by.value(leaves), count).tolist()
        bottoms = self.by.weighed(leaves, rows, count)
        ends = np.array(
            [
                _ratio(*each, half_width, coarse=count > _MANY)
                for each in zip(over, under, tops, bottoms, strict=True)
            ]
        ).reshape(count, 2)
        return ends[:, 0], ends[:, 1]


def form_of(  # noqa: PLR0911 - one a form
    node: exp.Expr, forms: Sequence[Form | None]
) -> Form | None:
    """The form of an expression of numbers with such forms; None if it has none."""
    known = [form for form in forms if form is not None]
    if not known or len(known) < len(forms):
        return None
    first, second = known[0], known[-1]
    is_double = isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DOUBLE
    if isinstance(node, _SAME) or is_double:
        return first
    if isinstance(node, exp.Neg):
        return _times(first, _minus)
    if isinstance(node, exp.Add | exp.Sub):
        return _plus(first, _times(second, _minus) if isinstance(node, exp.Sub) else second)
    if isinstance(node, exp.Mul) and (first.is_exact or second.is_exact):
        exact, other = (first, second) if first.is_exact else (second, first)
        return _times(other, exact.over.constant)
    if isinstance(node, exp.Div):
        return _over(first, second)
    return None


def _times(form: Form, by: Factor) -> Form:
    return Form(form.over.times(by), form.by)


def _plus(first: Form, second: Form) -> Form | None:
    if first.by is None and second.by is None:
        return Form(first.over.plus(second.over))
    ratio, other = (second, first) if first.by is None else (first, second)
    if ratio.by is None or not other.is_exact:
        return None
    return Form(ratio.over.plus(ratio.by.times(other.over.constant)), ratio.by)


def _over(first: Form, second: Form) -> Form | None:
    if first.by is None and second.by is None:
        return Form(first.over, second.over)
    if first.by is None or not second.is_exact:
        return None
    return Form(first.over, first.by.times(second.over.constant))


def _ratio(
    over: float,
    under: float,
    top: Weighed,
    bottom: Weighed,
    half_width: HalfWidth,
    *,
    coarse: bool,
) -> tuple[float, float]:
    """The least and the most that a ratio may be; not known where its divisor may be 0."""
    wide, clear = half_width(top), half_width(bottom)
    if wide is None or clear is None or isnan(over) or not abs(under) > clear:
        return nan, nan
    divisors = under - clear, under + clear
    corners = [end / by for end in (over - wide, over + wide) for by in divisors]
    low, high = min(corners), max(corners)
    for _ in range(_TIMES):
        if coarse:
            low, high = _outwards(low, -1), _outwards(high, 1)
        far = [half_width(_less(top, bottom, end)) for end in (low, high)]
        most = max(inf if width is None else width for width in far)
        ends = sorted((over + side * most) / under for side in (-1, 1))
        low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def _less(top: Weighed, bottom: Weighed, times: float) -> Weighed:
    """The weights of A - t B."""
    found = {of: dict(weights) for of, weights in top.items()}
    for of, weights in bottom.items():
        each = found.setdefault(of, {})
        for row, weight in weights.items():
            each[row] = each.get(row, 0.0) - times * weight
    return found


def _outwards(end: float, side: int) -> float:
    part, power = frexp(end)
    return ldexp(-side * floor(-side * part * _COARSE) / _COARSE, power)


def _under(factor: Factor, alias: str) -> Factor:
    return lambda leaves: factor(lambda leaf: leaves(f"{alias}.{leaf}"))


def _one(_: Leaves) -> Array:
    return np.ones(1)


def _one_leaf(_: str) -> Array:
    return np.ones(1)


def _minus(_: Leaves) -> Array:
    return np.full(1, -1.0)


def _nothing(_: Leaves) -> Array:
    return np.zeros(1)
