"""What all robust numbers share: the price, the noise that it buys, and the answer.

`RobustExpected` says what such a number costs and how it would be drawn, before anything is paid.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias, TypedDict, final

import pyarrow as pa

from noisegate.accounting.search import digits_down
from noisegate.curator.curator import Asked
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import bare, percent
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.order import JobOrder
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import inner_delta, share_of
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number, lower, positive, real
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.smooth import smooth
from noisegate.mechanisms.smooth.barred import FINE, Barred
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import WHOLE_MAX
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.sql.question import Question, sampled
from noisegate.sql.reading.reader import read

_LAWS: Final = {
    "smooth-student/1": "Student's t",
    "smooth-laplace/1": "Laplace",
    "smooth-lognormal/1": "Laplace times lognormal",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RobustExpected:
    """How a robust number would be drawn. ``unit`` is one step of the noise."""

    asked: str
    noise: (
        smooth.SmoothNoise | Barred | ProposeTestRelease | LeastSum | Geometric | DiscreteGaussian
    )
    unit: Fraction
    path: tuple[str, ...]
    sampled: bool = False

    def margin(self, confidence: Number = USUAL) -> float | None:
        """How far the answer may be off by its noise, if known; None where that is a secret."""
        if isinstance(self.noise, smooth.SmoothNoise | Barred):
            return None
        return float(self.noise.interval(confidence) * self.unit)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        noise = self.noise
        lines = [("asked", self.asked), ("because", "; ".join(self.path))]
        error = "depends on the rows and is not released"
        if isinstance(noise, Barred):
            noise, error = noise.noise, "depends on the rows; a bound on it is released beside it"
        if isinstance(noise, smooth.SmoothNoise):
            law, wide = _LAWS[noise.name], bare(float(noise.scale))
            words = f"{law}, {wide} smooth bounds wide for β = {bare(float(noise.beta))}"
            lines += [("noise", words), ("error", error)]
        else:
            if isinstance(noise, ProposeTestRelease):
                far = f"seem at least {noise.threshold} steps away"
                lines.append(("test", f"released if rows where the bound fails {far}"))
            off = bare(self.margin(confidence))
            more = ", and what sampling adds" if self.sampled else ""
            lines.append(("error", f"± {off} at {percent(confidence)} confidence{more}"))
        return lines

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of the number by its noise; None where that is a secret."""
        return {self.asked: self.margin(confidence)}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"asked": self.asked, "margin": self.margin(confidence)}


Widths: TypeAlias = Callable[[Number], HalfWidths]
Method: TypeAlias = Literal["smooth", "ptr"]
UNKNOWN: Final = (
    "The scale of the noise depends on the rows and is not released, so no ± is known; bar=… "
    "releases a bound on it."
)
BOUNDED: Final = "The ± is by a noisy bound on the noise, which was released with it."
REFUSED: Final = "The bound did not pass the test: nothing is released, and the price is paid."
_TOGETHER_MAX: Final = 4_000  # ε of all rows of a unit, beyond which no δ is left to each


class ReachesTerms(TypedDict, total=False):
    """What is said about paying for a number whose noise the rows decide; see `Gate.smooth`."""

    epsilon: Number | None
    delta: Number | None
    method: Method
    bound: Number | None
    beta: Number | None
    bar: Number | None
    rows_per_unit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachesOrder(JobOrder[Answer, RobustExpected]):
    """A number whose noise the rows decide.

    ``bar`` is the share of the price that releases a bound on that noise, and so a ±.
    """

    epsilon: Number | None = None
    delta: Number | None = None
    method: Method = "smooth"
    bound: Number | None = None
    beta: Number | None = None
    bar: Number | None = None
    rows_per_unit: int | None = None

    def __post_init__(self) -> None:
        JobOrder.__post_init__(self)
        if self.bar is not None and not 0 < self.bar < 1:  # type: ignore[operator]  # exact by now
            raise SpecError("bar is not a share of the price.", fix="Use 1/3, or 1/10 with a δ.",
                            about="bar")  # fmt: skip
        if self.bar is not None and self.method == "ptr":
            raise SpecError(
                "Propose-test-release has a ± of its own.", fix="Leave out bar.", about="bar"
            )
        if self.method == "ptr" and self.beta is not None:
            raise SpecError("Propose-test-release has no beta.", fix="Leave it out.")
        if self.method == "smooth" and self.bound is not None:
            raise SpecError(
                "A smooth bound is computed, not proposed.", fix='To propose one, use method="ptr".'
            )


@final
class Till:
    """Buys noise by the rules of a policy.

    About a sample, noise is bought for those who are in it, at the price that all pay.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk, self.curator, self.rules = desk, desk.curator, desk.rules

    def inner(self, *epsilon: Number | None) -> Fraction:
        """What those who take part pay: more than the price, if they are a sample."""
        return self.desk.funds(*epsilon).epsilon

    def read(self, sql: str) -> Question:
        """What the SQL asks, of a sample if these are the rules."""
        return sampled(read(sql, self.curator.tables), self.rules.sample)

    def plain(self, epsilon: Number | None, *, l1: L1, l2: L2) -> Geometric | DiscreteGaussian:
        """The better noise for numbers that move so far: Gaussian only where accounts have ρ."""
        return self.desk.funds(epsilon).noise(Fraction(1), l1=l1, l2=l2)

    def noise(
        self,
        order: ReachesOrder,
        *,
        low: int,
        high: int,
        grain: Fraction = Fraction(1),
        steps: int = 1,
    ) -> smooth.LocalNoise:
        """The noise that an order buys, for a number of low, …, high grains.

        ``steps`` are those that a unit's coming or going is: each has its part of the price.

        Claim: a level and a number cost the price ε together, or its ρ = ε²/2, up to rounding down.
        Why: for k steps of ε/k each, of which the level has a share s, the draws are private by
            sε and (1 - s)ε, which add up to ε: also inside a sample, which is amplified as a whole.
            Where ρ adds up, the level has √s ε and the number √(1 - s) ε, both through their own ε
            (`zcdp_of_approx`, with a δ or without) or, if lognormal, by (1 - s)ρ: sρ + (1 - s)ρ.
        """
        price, span = self.inner(order.epsilon) / steps, {"low": low, "high": high}
        if order.bar is None:
            return self._noise(order, price, span, grain=grain, steps=steps)
        told, rest = (
            share_of(price, part, rho=self.desk.gaussian)
            for part in (Fraction(order.bar), 1 - Fraction(order.bar))
        )
        plain = self._noise(order, rest, span, grain=grain, steps=steps)
        assert isinstance(plain, smooth.SmoothNoise)  # noqa: S101 - there is no test, by the order
        return Barred(noise=plain, bar=max(FINE / told, Geometric.LEAST))

    def _noise(
        self,
        order: ReachesOrder,
        price: Fraction,
        span: Mapping[str, int],
        *,
        grain: Fraction,
        steps: int,
    ) -> smooth.LocalNoise:
        """The noise of the number itself, which is bought with ``price`` for each step."""
        low, high = span["low"], span["high"]
        delta = None
        if order.delta is not None:
            whole = inner_delta(positive(order.delta, name="delta"), self.rules.sample)
            delta = _delta_each(whole, price, steps)
        if order.method == "ptr":
            if delta is None or order.bound is None:
                raise SpecError(
                    "Propose-test-release needs a bound and a δ.",
                    fix="Give bound, and delta such as 1e-6.",
                )
            bound = int(positive(order.bound, name="bound") // grain)
            if bound < 1:
                raise SpecError(
                    "The proposed bound is smaller than the grid.", fix="Propose a larger bound."
                )
            return ProposeTestRelease.for_budget(price, delta, bound=min(bound, high - low), **span)
        if delta is not None:
            return smooth.SmoothLaplace.for_budget(price, delta, beta=order.beta, **span)
        student = smooth.SmoothStudent.for_epsilon(price, beta=order.beta, **span)
        if self.rules.sample is not None or set(self.curator.accountants) != {"zcdp"}:
            return student  # ρ does not add up
        return min((student, *_lognormal(price, student, span)), key=lambda each: each.spread)

    def table(self, name: str | None) -> str:
        """The table that is meant: the named one, or the only private one."""
        private = [each for each, domain in self.curator.tables.items() if not domain.is_public]
        if name is None and len(private) != 1:
            raise SpecError(
                "There are several tables.", fix=f"Name one of {', '.join(private)}.", about="table"
            )
        return name or private[0]

    def job(
        self,
        measurement: Asked,
        finish: "Callable[[Found], Answer]",
        *,
        asked: str,
        epsilon: Fraction,
        unit: Fraction = Fraction(1),
        provided: str | None = None,
    ) -> "RobustJob":
        """The number that is measured. A step of the noise is ``unit`` of what is shown.

        ``provided`` is what the promise rests on, besides the theorems.
        """
        path: tuple[str, ...] = ()
        noise: Any = getattr(measurement, "noise", None)
        if isinstance(measurement, Measurement):
            path, noise = measurement.query.path, measurement.mechanisms[0]
        noise = getattr(noise, "noise", noise)  # of a statistic, its own
        return RobustJob(
            sql=asked,
            epsilon=epsilon,
            expected=RobustExpected(
                asked=asked, noise=noise, unit=unit, path=path,
                sampled=self.rules.sample is not None,
            ),
            measurement=measurement,
            finish=finish,
            provided=provided,
        )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RobustJob(Measured[Answer, RobustExpected]):
    """A number that single rows rarely move."""

    kind: str = "robust"
    finish: "Callable[[Found], Answer]"
    provided: str | None

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """With what it rests on besides the theorems."""
        told = self.provided
        what = "this answer" if told is None else f"this answer (provided that {told})"
        return guarantee_of(loss, self.tables, f"{what} about")

    def result(self, content: Release, receipt: Receipt) -> Answer:
        """The answer."""
        stated = receipt.standing
        ids = {"request_ids": (stated.pop("request_id"),), "questions": (stated.pop("question"),)}
        made = self.finish(Found(values=content.values.tolist(), standing=stated | ids))
        return replace(made, caveats=(*made.caveats, *self.notes)) if self.notes else made


@final
@dataclass(frozen=True, slots=True)
class Found:
    """Released numbers, row by row, and what every answer states about them."""

    values: list[list[int]]
    standing: Mapping[str, Any]

    def answer(
        self,
        sql: str,
        table: pa.Table,
        widths: Widths | None = None,
        caveats: Sequence[str] = (),
        *,
        unsigned: bool,
        amount: bool = True,
    ) -> Answer:
        """The answer; ``widths`` are those of the last column at a confidence, where known.

        ``unsigned``: it cannot be negative before noise; and if it is an ``amount``, 0 is nothing.
        """
        names = table.column_names

        def half_widths(confidence: Number) -> Sequence[HalfWidths]:
            last = None if widths is None else widths(confidence)
            return (*[None] * (len(names) - 1), last)

        return Answer(
            sql=sql, table=table, half_widths=half_widths, caveats=tuple(caveats),
            unsigned=lambda: names[-1:] if unsigned else (),
            amounts=lambda: names[-1:] if unsigned and amount else (), **self.standing,
        )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ByReaches:
    """Released numbers with noise by reaches, as people read them: each a grain, from ``low`` on.

    A test comes before a number, and where it failed there is none.
    """

    noise: smooth.LocalNoise
    grain: Fraction
    low: Fraction = Fraction(0)

    @property
    def unsigned(self) -> bool:
        """Whether the exact numbers cannot be negative."""
        return self.low + self.noise.low * self.grain >= 0

    def numbers(self, found: Found) -> list[float | None]:
        """The number of each row."""
        tests = isinstance(self.noise, ProposeTestRelease)
        exact = [
            None if tests and _failed(row) else self.low + row[-1] * self.grain
            for row in found.values
        ]
        whole = self.grain.denominator == self.low.denominator == 1
        whole = whole and all(n is None or abs(n) <= WHOLE_MAX for n in exact)
        return [None if n is None else int(n) if whole else float(n) for n in exact]

    def widths(self, found: Found) -> Widths | None:
        """How far each may be off, where that is not a secret of the rows."""
        noise = self.noise
        if isinstance(noise, Barred):
            return lambda confidence: tuple(
                shown_number(noise.interval(confidence, row[0]) * self.grain)
                for row in found.values
            )
        if not isinstance(noise, ProposeTestRelease):
            return None

        def widths(confidence: Number) -> HalfWidths:
            off = shown_number(noise.interval(confidence) * self.grain)
            return tuple(None if _failed(row) else off for row in found.values)

        return widths

    def words(self, found: Found) -> tuple[str, ...]:
        """What is to be known about them."""
        if isinstance(self.noise, Barred):
            return (BOUNDED,)
        if not isinstance(self.noise, ProposeTestRelease):
            return (UNKNOWN,)
        return (REFUSED,) if any(map(_failed, found.values)) else ()


def _failed(row: Sequence[int]) -> bool:
    return len(row) > 1 and not row[0]


def shown_number(exact: Fraction) -> int | float:
    """Whole numbers as such."""
    return int(exact) if exact.denominator == 1 else float(exact)


def _delta_each(delta: Fraction, price: Fraction, steps: int) -> Fraction:
    """The δ of each of several steps, so that together they have ``delta``; see `group_of_approx`.

    Rounding: down.
    """
    if steps == 1:
        return delta
    if steps * price > _TOGETHER_MAX:
        raise SpecError(
            f"At this epsilon, no δ is left for each of {steps} rows of a unit.",
            fix="Use a smaller epsilon, or rows_per_unit=1.",
        )
    part = lower(lambda: real(price).expm1() / real(steps * price).expm1())
    return digits_down(delta * part)


def _lognormal(
    price: Fraction, student: smooth.SmoothStudent, span: Mapping[str, int]
) -> tuple[smooth.SmoothLognormal, ...]:
    """The other noise at the same β, where accounts add up ρ and it has a price at all."""
    try:
        return (smooth.SmoothLognormal.for_rho(price * price / 2, beta=student.beta, **span),)
    except SpecError:
        return ()
