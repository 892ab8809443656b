"""Threshold questions in SQL, one after the other: which reach it, by how much, and their values.

Each question may depend on the answers so far. All noes together, and the gaps of the yeses, cost
what one comparison does; each of a fixed number of yeses is paid for when the session opens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import ceil
from typing import Any, Final, Required, TypedDict, final

import pyarrow as pa

from noisegate.algebra.tally import Sums
from noisegate.curator.thresholds import (
    Heard,
    Thresholds,
    ThresholdSpec,
    open_thresholds,
    require_question,
)
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import LEAST, with_margin
from noisegate.desk.job import Receipt, require_room
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.plan import Fact, Plan
from noisegate.desk.terms.price import Funds, share_of, without
from noisegate.desk.terms.terms import USUAL, Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.guarantee import guarantee_of
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.words import capped_words
from noisegate.sql.question import Function
from noisegate.sql.reading.reader import read
from noisegate.transforms.query import Query

GIVEN_BACK: Final = ("What is not used of the values is given back.",)
_FINE: Final = Fraction(1, 1 << 20)  # what sums of units that are scaled down count in
_ASKED: Final = (Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS, Function.SUM)


class ThresholdTerms(TypedDict, total=False):
    """What is said of a session; see `ThresholdAsked`."""

    count: Required[int]
    epsilon: Number | None
    values: bool
    bound: Number
    grain: Number | None
    signed: bool
    questions: int
    rows_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdAsked:
    """A session as somebody asks for it.

    Attributes:
        threshold: What sums are compared with, in their units.
        count: How many yeses are paid for.
        epsilon: The price of the whole session, however many questions are asked.
        values: Release the sum of each yes too, with fresh noise, for half of the price.
        bound: The most that one unit may move any of the sums.
        grain: What sums are whole multiples of; by default 1, and 2**-20 on tables with units.
        signed: Also sums that one more unit may lower; noise for a yes is then twice as wide.
        questions: How many the plan and its ± are for; there may be more.
        rows_per_unit: How many rows of one unit count, instead of the policy's bound.
    """

    threshold: Number
    count: int
    epsilon: Number | None = None
    values: bool = False
    bound: Number = 1
    grain: Number | None = None
    signed: bool = False
    questions: int = 100
    rows_per_unit: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdAnswer:
    """One answer. ``gap``: by how much the noisy sum passed; ``value``: the sum with fresh noise.

    ``value`` is within ± `margin`, ``threshold`` + ``gap`` within ± `gap_margin`, each at the
    confidence. What holds of all answers of a session together is `ThresholdSession.accuracy`.
    """

    sql: str
    reaches: bool
    gap: float | None
    value: float | None
    margin: float | None
    gap_margin: float | None
    notes: tuple[str, ...] = ()  # what the ± leaves out
    lower: bool = False  # gap and value are lower bounds: a contribution bound leaves some out

    def __str__(self) -> str:
        if not self.reaches:
            return "does not reach it"
        least = LEAST if self.lower else ""
        passed = f"reaches it, by {least}{with_margin(self.gap, self.gap_margin)}"
        if self.value is None:
            return passed
        return f"{passed}: {least}{with_margin(self.value, self.margin)}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdQuestion:
    """A question that was read: its one sum, and what its ± leaves out.

    ``cut``: a contribution bound may leave out some of what a unit adds.
    """

    sql: str
    query: Query
    notes: tuple[str, ...]
    cut: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdExpected:
    """What a session may be off, beside plain questions for the same price."""

    spec: ThresholdSpec
    threshold: Fraction
    questions: int
    epsilon: Fraction  # that of a pure step: √(2ρ) where ρ adds up
    gaussian: bool = False

    def accuracy(self, confidence: Number = USUAL, questions: int | None = None) -> float:
        """How far all of so many answers may be off, in the units of the sums."""
        asked = self.questions if questions is None else max(1, questions)
        return float(self.spec.noise.accuracy(confidence, questions=asked) * self.spec.grain)

    def plain(self, confidence: Number = USUAL) -> float:
        """The same for plain questions that share the price."""
        level = 1 - (1 - fraction(confidence, name="confidence")) / self.questions
        moved, funds = self.spec.moved, Funds(epsilon=self.epsilon, gaussian=self.gaussian)
        share, l2 = Fraction(1, self.questions), L2(squared=Fraction(moved**2))
        noise = funds.noise(share, l1=L1(moved), l2=l2)
        return float(noise.interval(level) * self.spec.grain)

    def value(self, confidence: Number = USUAL) -> float | None:
        """The ± of each value."""
        number = self.spec.number
        return None if number is None else float(number.interval(confidence) * self.spec.grain)

    def told(
        self, asked: ThresholdQuestion, heard: Heard, place: int, confidence: Number = USUAL
    ) -> ThresholdAnswer:
        """One answer, the ``place``-th of its session, in the units of the sums."""
        grain = self.spec.grain
        return ThresholdAnswer(
            sql=asked.sql, reaches=heard.gap is not None, gap=_shown(heard.gap, grain),
            value=_shown(heard.number, grain),
            margin=None if heard.number is None else self.value(confidence),
            gap_margin=None if heard.gap is None else self.accuracy(confidence, place),
            notes=asked.notes, lower=asked.cut and self.spec.noise.monotone,
        )  # fmt: skip

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        own, plain = self.accuracy(confidence), self.plain(confidence)
        better = "plain questions would err less" if plain <= own else "comparing errs less"
        count = f"{self.questions:,} questions"
        found = [
            ("answered", f"up to {self.spec.noise.cutoff:,} yes, each with its gap"),
            ("error", f"threshold {float(self.threshold):g} ± {own:,.4g} for {count} together"),
            ("instead", f"{count} asked plainly for the same price: ± {plain:,.4g}; {better}"),
        ]
        value = self.value(confidence)
        return found if value is None else [*found, ("values", f"± {value:,.4g}")]

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of the threshold, for all answers together, and of each value."""
        return {"threshold": self.accuracy(confidence), "value": self.value(confidence)}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "threshold": float(self.threshold), "count": self.spec.noise.cutoff,
            "questions": self.questions, "plain": self.plain(confidence),
        }  # fmt: skip


@final
class ThresholdSession:
    """Asks one question after the other. Made by `Gate.thresholds`; leave it to end the session."""

    def __init__(
        self, desk: Desk, expected: ThresholdExpected, door: Thresholds, rows_per_unit: int | None
    ) -> None:
        self._desk, self.expected, self._door, self._cap = desk, expected, door, rows_per_unit
        self.answers: list[ThresholdAnswer] = []

    @property
    def left(self) -> int:
        """How many yeses are left."""
        return self.expected.spec.noise.cutoff - self._door.yeses

    def ask(self, sql: str, *, confidence: Number = USUAL) -> ThresholdAnswer:
        """Whether a COUNT or SUM reaches the threshold. Free: the session is paid."""
        asked, place = question_of(self._desk, sql, self._cap), len(self.answers) + 1
        made = self.expected.told(asked, self._door.ask(asked.query), place, confidence)
        self.answers.append(made)
        return made

    def require(self, sql: str) -> None:
        """Refuse what `ask` would refuse. Before the first question, leaving costs nothing."""
        asked = question_of(self._desk, sql, self._cap)
        require_question(self._desk.curator, self.expected.spec, asked.query)

    def accuracy(self, confidence: Number = USUAL) -> float:
        """How far the threshold may be off for all answers so far together."""
        return self.expected.accuracy(confidence, len(self.answers))

    def answer(self) -> Answer:
        """All answers so far as one table, with the price and the promise of the session."""
        event, desk = self._door.used(), self._desk
        guarantee = guarantee_of(
            desk.curator.loss_of(event), tuple(desk.curator.tables.values()), "these answers about"
        )
        receipt = desk.receipt(
            event, guarantee=guarantee, question=self._door.question,
            request_id=self._door.request_id,
        )  # fmt: skip
        return answer_of(self.expected, list(self.answers), receipt, self.plan)

    @property
    def plan(self) -> Plan[ThresholdExpected]:
        """Price and error of the session, as it was planned."""
        return _plan(self._desk, self.expected)


def _shown(grains: int | None, grain: Fraction) -> float | None:
    return None if grains is None else float(grains * grain)


def answer_of(
    known: ThresholdExpected,
    made: Sequence[ThresholdAnswer],
    receipt: Receipt,
    plan: Plan[ThresholdExpected] | None = None,
    more: Sequence[str] = (),
) -> Answer:
    """Answers of one session as a table, with its price and promise."""
    table = pa.table({
        "question": pa.array([each.sql for each in made], pa.string()),
        "reaches": pa.array([each.reaches for each in made], pa.bool_()),
        "gap": pa.array([each.gap for each in made], pa.float64()),
        "value": pa.array([each.value for each in made], pa.float64()),
    })  # fmt: skip
    numbered = list(enumerate(made, start=1))

    def half_widths(confidence: Number) -> Sequence[HalfWidths]:
        off = known.value(confidence)
        gaps = (known.accuracy(confidence, n) if a.reaches else None for n, a in numbered)
        values = (None if each.value is None else off for each in made)
        return None, None, tuple(gaps), tuple(values)

    off, at = known.accuracy(questions=len(made)), float(known.threshold)
    words = f"Threshold {at:g} ± {off:,.4g} for all answers together, at 95% confidence."
    return Answer(
        sql="; ".join(each.sql for each in made), table=table, plan=plan,
        half_widths=half_widths, cost=receipt.cost,
        remaining=receipt.remaining, guarantee=receipt.guarantee,
        caveats=(words, *dict.fromkeys((*more, *(note for each in made for note in each.notes)))),
        request_ids=(receipt.request_id,), questions=(receipt.question,),
        practice=receipt.practice, log=receipt.log,
        lower=lambda: ("gap", "value") if any(each.lower for each in made) else (),
    )  # fmt: skip


def question_of(desk: Desk, sql: str, rows_per_unit: int | None = None) -> ThresholdQuestion:
    """The one sum that a question asks for; whatever else it is, is refused at no cost."""
    question = read(sql, desk.curator.tables)
    block = question.blocks[0] if len(question.blocks) == 1 else None
    if block is None or block.by or len(block.aggregates) != 1 or question.picked is None:
        raise _not_one()
    if block.aggregates[0].function not in _ASKED:
        raise _not_one()
    terms = Terms(rows_per_unit=rows_per_unit or question.terms.rows_per_unit)
    found = draft(block, caps_of(block, terms), accountant="pure")
    if len(found.parts) != 1 or not isinstance(found.parts[0].query.tally, Sums):
        raise _not_one()
    query = found.parts[0].query
    capped = capped_words(block, [(query, None, False)])
    return ThresholdQuestion(
        sql=sql, query=query, notes=(*capped, *found.caveats), cut=bool(capped)
    )


def _not_one() -> Unsupported:
    return Unsupported(
        "A threshold question is one count or sum, without groups.",
        fix="Ask for COUNT(*), COUNT(DISTINCT unit) or SUM(column), with WHERE.",
        about="threshold",
    )


def expected_of(desk: Desk, asked: ThresholdAsked, *, rho: bool | None = None) -> ThresholdExpected:
    """The session that is meant; half of the price is for values, where they are wanted.

    Half of what adds up: of ρ, by default, where the account adds it up, else of ε.
    Why, of ρ: an ε-private step costs ε²/2 at most [BS16], the run of comparisons as a whole and
        each value. A run's own ε do not split so: its comparisons share one noisy threshold, and
        the theorem that it rests on bounds their ratio of probabilities, not its average.
    """
    if any(type(each) is not int or each < 1 for each in (asked.count, asked.questions)):
        raise SpecError(
            "count and questions are whole numbers of at least 1.", fix="Use count=5.",
            about="count",
        )  # fmt: skip
    if desk.rules.sample is not None:
        raise Unsupported(
            "A session of thresholds is about all rows.", fix="Ask without a sample.",
            about="sample",
        )  # fmt: skip
    tables = [each for each in desk.curator.tables.values() if not each.is_public]
    fine = Fraction(1) if all(each.is_row_level for each in tables) else _FINE
    step = fine if asked.grain is None else positive(asked.grain, name="grain")
    moved = ceil(positive(asked.bound, name="bound") / step)
    price, by_rho = desk.step(asked.epsilon), desk.rho if rho is None else rho
    part = share_of(price, Fraction(1, 2), rho=by_rho) if asked.values else price
    at = fraction(asked.threshold, name="threshold")
    noise = AboveThreshold.for_epsilon(
        part, threshold=ceil(at / step), sensitivity=moved, cutoff=asked.count,
        monotone=not asked.signed,
    )  # fmt: skip
    number = None
    if asked.values:
        left = without(price, [part], rho=by_rho)
        each = share_of(left, Fraction(1, asked.count), rho=by_rho)
        number = Geometric.for_epsilon(each, sensitivity=L1(moved))
    return ThresholdExpected(
        spec=ThresholdSpec(noise=noise, moved=moved, grain=step, number=number),
        threshold=at, questions=asked.questions, epsilon=price, gaussian=desk.gaussian,
    )  # fmt: skip


def plan_of(desk: Desk, asked: ThresholdAsked) -> Plan[ThresholdExpected]:
    """What a session costs, and how far its answers may be off. Free."""
    return _plan(desk, expected_of(desk, asked))


def _plan(desk: Desk, expected: ThresholdExpected) -> Plan[ThresholdExpected]:
    event, curator = expected.spec.event(), desk.curator
    return Plan(
        kind="thresholds", sql="", epsilon=desk.asked(expected.epsilon),
        price=curator.cost_of(event), fits=curator.price(event)[1], expected=expected,
        notes=GIVEN_BACK if expected.spec.number else (),
    )  # fmt: skip


@contextmanager
def session_of(desk: Desk, asked: ThresholdAsked) -> Iterator[ThresholdSession]:
    """Charge, open, and close in the end."""
    expected = expected_of(desk, asked)
    desk.rules.require_price(desk.asked(expected.epsilon))
    require_room(desk.curator, expected.spec.event())
    name, request = f"thresholds at {expected.threshold}", desk.curator.fresh_id()
    with open_thresholds(desk.curator, expected.spec, name=name, request_id=request) as door:
        yield ThresholdSession(desk, expected, door, asked.rows_per_unit)
