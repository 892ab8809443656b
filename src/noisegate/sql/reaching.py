"""Accuracy first where a contribution bound is estimated: the look, then the price.

How far an answer is off follows from the bound, and the bound from a look at how large units are.
So the look is taken from the ledger, or bought first, and the least ε is chosen whose predicted ±
is as narrow as wanted: that of noise and of what the bound loses, together. The second part rests
on a model, as in the answer, and on rows that are spread evenly over groups.

A look that is too noisy leaves so much to the model that no price is enough. So looks are bought in
steps, each `_FINER` times the last, until one is: all before it cost less than half of the last.
The first costs what a question pays for one that would do if each unit had one row.

Claim: the answer costs what it costs by the ε that is chosen, and the looks their own. Adjacency:
    add/remove. Why: what is bought next is decided by the question, the policy and looks that were
    released, so it is public; all of it is charged before it is drawn [RRUV16].
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Final, final

from noisegate.desk.desk import Desk
from noisegate.desk.rules import Rules
from noisegate.desk.terms import USUAL, Terms
from noisegate.errors import NoisegateError, Unsupported
from noisegate.privacy.loss import decimal_down, decimal_up
from noisegate.sql.drafts.accuracy import Goal, cheapest, limits_of
from noisegate.sql.reuse.guesses import Guess
from noisegate.sql.reuse.shelf import Needed

if TYPE_CHECKING:
    from noisegate.privacy.release import Release
    from noisegate.sql.job import QuestionJob
    from noisegate.sql.ordered import Order

_TIMES: Final = 2  # the least price, for the first look
_FINER: Final = 4
_FAIR: Final = 12  # times a look: up to that, a price is fair, and no finer look is bought
_PART: Final = 8  # of what may be paid: what one look may cost, but for the first
_FOLLOWS: Final = (
    "The price follows from an estimate of the contribution bound, which is bought first: what is "
    "shown is for units of few rows, and grows with them"
)


def is_estimated(rules: Rules, terms: Terms) -> bool:
    """Whether an accuracy is asked for, and looks are not ruled out."""
    return terms.epsilon is None and terms.choose is None and rules.sample is None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reaching:
    """A question by its accuracy; ``make`` makes its job at a price, with a step for looks."""

    desk: Desk
    terms: Terms
    make: "Callable[..., QuestionJob]"

    def job(self) -> "QuestionJob":
        """The job: of the least price, where what to look at is known; else with a look to buy."""
        look, best, is_first = self._first(), list["QuestionJob"](), True
        while True:
            price = _by(self.terms, self.desk.asked(look * _TIMES))
            job = self.make(self._free, terms=price, look=look)
            if job.asked.missing:
                return self._looking(job, best, is_first=is_first)
            if (found := self._reached(look)) is not None:
                if found.is_paid(self.desk.curator) or self._is_fair(found, look):
                    return self._within(found)
                best.append(found)
            look, is_first = look * (2 if self.desk.rho else _FINER), False

    def reached(self, job: "QuestionJob") -> "QuestionJob":
        """The job after its looks were bought, and finer ones where these do not do."""
        looked: list[Release] = []
        now = job
        while now.goal is not None:
            measure = self.desk.curator.measure
            try:
                looked += [measure(each.measurement) for each in now.asked.missing]
                now = self.job()
            except NoisegateError as refusal:
                if not looked:
                    raise
                paid = "What was estimated is paid for, and free from now on."
                fix = f"{refusal.fix} {paid}"
                raise type(refusal)(refusal.problem, fix=fix, about=refusal.about) from None
        return replace(now, looked=tuple(looked), kind=job.kind, endings=job.endings, then=job.then)

    @property
    def _free(self) -> Desk:
        """The desk without a limit for one question, at which prices are tried."""
        return self.desk.under(replace(self.desk.rules, epsilon_max=None))

    def _first(self) -> Fraction:
        """The step of the first look. Refused where even units of one row cost too much."""
        least = self.make(self.desk, terms=replace(self.terms, rows_per_unit=1)).epsilon
        return max(self.make(self._free, terms=_by(self.terms, _TIMES * least)).asked.steps)

    @property
    def _most(self) -> Fraction:
        """What may be paid now."""
        room = self.desk.curator.remaining().epsilon
        return min(room, self.desk.rules.epsilon_max or room)

    def _is_fair(self, job: "QuestionJob", look: Fraction) -> bool:
        """Whether a look costs no small part of a job, so that a finer one would save little."""
        times = job.step / look
        return (times**2 if self.desk.rho else times) <= _FAIR

    def _within(self, job: "QuestionJob") -> "QuestionJob":
        """The job, unless it costs more than may be paid."""
        if job.epsilon <= self._most or job.is_paid(self.desk.curator):
            return job
        raise Unsupported(
            f"This accuracy is predicted to cost ε = {decimal_up(job.epsilon)}; at most ε = "
            f"{decimal_down(self._most)} may be paid.",
            fix="Allow a larger error, or ask by epsilon.",
            about="accuracy",
        )

    def _looking(
        self, job: "QuestionJob", best: "Sequence[QuestionJob]", *, is_first: bool
    ) -> "QuestionJob":
        """A job whose look is to be bought, unless that costs too much of what may be paid."""
        most = self._most
        if is_first or (most and self._is_fair_part(max(job.asked.steps), most)):
            words = f"{_FOLLOWS}, up to ε = {decimal_down(most)}."
            return replace(job, goal=self, notes=(*job.notes, words))
        if best:
            return self._within(min(best, key=lambda each: each.epsilon))
        raise Unsupported(
            f"No price up to ε = {decimal_down(most)} is known to achieve this accuracy.",
            fix="Allow a larger error, or ask by epsilon.",
            about="accuracy",
        )

    def _is_fair_part(self, look: Fraction, most: Fraction) -> bool:
        times = self.desk.bought(most) / look
        return (times**2 if self.desk.rho else times) >= _PART

    def _reached(self, look: Fraction) -> "QuestionJob | None":
        def is_enough(epsilon: Fraction) -> bool:
            if self.desk.bought(epsilon) <= look:
                return False
            with suppress(NoisegateError):
                job = self.make(self._free, terms=_by(self.terms, epsilon), look=look)
                return all(_meets(order, self.terms) for order in job.orders)
            return False

        try:
            epsilon = cheapest(is_enough)
        except Unsupported:
            return None
        return self.make(self._free, terms=_by(self.terms, epsilon), look=look)


def _by(terms: Terms, epsilon: Fraction) -> Terms:
    return replace(terms, epsilon=epsilon, within=None, relative=None)


def _meets(order: "Order", terms: Terms) -> bool:
    goal = Goal(
        within=terms.within, relative=terms.relative, confidence=terms.confidence or USUAL,
        rows=terms.rows,
    )  # fmt: skip
    limits = limits_of(order.bought.draft, goal)
    return all(width <= limits[name] for name, width in _widths(order, goal))


def _widths(order: "Order", goal: Goal) -> Iterator[tuple[str, float]]:
    """The ± to expect of each number: of new draws alone, so that it is the same every time."""
    bought, unknown = order.bought, float("inf")
    pairs = zip(bought.draft.parts, bought.mechanisms, strict=True)
    needed = tuple(Needed.all_of(part.query, noises) for part, noises in pairs)
    cells = max([bought.draft.cells(columns) for columns in bought.draft.block.sets] + [1])
    kept = [  # the norm of what a unit has in so many cells is no less than this part of the sum
        each.loss.kept * (sqrt(cells) if each.is_norm else 1.0)
        for each in order.losses
        if not each.units
    ]
    rows = goal.rows or (max(1, round(kept[0])) if kept else None)
    guess = Guess(
        bought=bought, needed=needed, caps=order.caps, accountant="", said=rows,
        losses=order.losses,
    )  # fmt: skip
    block = guess.released(1.0)
    for recipe in bought.draft.recipes:
        name = recipe.aggregate.name
        widths = block.half_widths(name, goal.confidence)
        known = [unknown if each is None else float(each) for each in widths or [None]]
        yield name, max(known, default=unknown)
