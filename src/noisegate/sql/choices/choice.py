"""A private choice: which candidate scores best, and nothing else about the scores.

read        SQL becomes candidates and the sums that are their scores
buy         ε becomes a choice: the sharpest of those that the account prices
measure     through the door; the same choice is found in the ledger instead
"""

from collections.abc import Sequence
from fractions import Fraction
from sys import float_info
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypedDict, final

import pyarrow as pa

from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import bare, percent
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.order import JobOrder
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import Funds
from noisegate.desk.terms.terms import USUAL, Terms
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, fields, replace
from noisegate.inert import line, lines
from noisegate.ledger.verify.anchor import NO_LOG, Log
from noisegate.mechanisms.base import to_record
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.prior import PriorExponential
from noisegate.mechanisms.selection.stretches import StretchChoice
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release as Measurements
from noisegate.sql.choices.candidates import Candidate, Candidates, candidates_of
from noisegate.sql.choices.on_interval import (
    Given,
    Grid,
    Prior,
    interval_candidates,
    interval_choice,
    interval_of,
    listed_of,
    weights_of,
)
from noisegate.sql.choices.scored import score_of, scored_candidates
from noisegate.sql.question import sampled
from noisegate.sql.reading.reader import read
from noisegate.sql.reading.statement import take_hints

if TYPE_CHECKING:
    from noisegate.desk.card import Card

_ONE: Final = "It chooses exactly one, by the exponential mechanism."
Method: TypeAlias = Literal["auto", "exponential", "permute-and-flip", "noisy-max"]
Selection: TypeAlias = (
    Exponential | PermuteAndFlip | TopK | NoisyMax | PriorExponential | StretchChoice
)


class ChoiceTerms(TypedDict, total=False):
    """What is said beside the SQL; see `ChoiceOrder`."""

    candidates: Given | str | None
    prior: Prior | str | None
    epsilon: Number | None
    k: int
    method: Method
    gap: bool
    least: bool
    rows_per_unit: int | None
    groups_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceOrder(JobOrder["Choice", "ChoiceExpected"]):
    """A private choice among candidates, by one SELECT of counts or sums.

    ``candidates``: lists by the names of columns, which the SQL may then use in one SUM or in the
    FILTER of one COUNT(*); or a public table; or an interval, such as {"hour": (0, 24)}.
    ``prior``: weights by candidate, or the column of the candidates that holds them.
    ``epsilon`` is the price, ``k`` how many are chosen. ``method``: "auto" is the sharpest.
    ``gap``: release how far each leads the next, at no further price; ``least``: choose the lowest.
    """

    kind: ClassVar[str] = "choose"
    sql: str
    candidates: Given | str | None = None
    prior: Prior | str | None = None
    epsilon: Number | None = None
    k: int = 1
    method: Method = "auto"
    gap: bool = False
    least: bool = False
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None

    def job(self, desk: Desk) -> "ChoiceJob":
        """The choice that it asks for."""
        return choice_job(desk, self)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExpected:
    """Who can be chosen, how, and how far a chosen score may be below the best."""

    candidates: Sequence[Candidate]
    selection: Selection
    grain: Fraction
    path: tuple[str, ...]

    @property
    def method(self) -> str:
        """How it is chosen."""
        alike = isinstance(self.selection, TopK | PriorExponential | StretchChoice)
        return "exponential" if alike else self.selection.name.partition("/")[0]

    def shortfall(self, confidence: Number = USUAL) -> float:
        """How far a chosen score may be below the best that was left, at this confidence."""
        found = self.selection.shortfall(confidence, candidates=len(self.candidates))
        return _double(found * self.grain)

    def gap_error(self, confidence: Number = USUAL) -> float | None:
        """How far a gap may be off; None where none is released."""
        if not isinstance(self.selection, NoisyMax):
            return None
        found = self.selection.gap_error(confidence, candidates=len(self.candidates))
        return _double(found * self.grain)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        sure = f"at {percent(confidence)} confidence"
        chosen = getattr(self.selection, "k", 1)
        lines = [
            ("candidates", f"{len(self.candidates):,}, of which {chosen:,} chosen"),
            ("method", self.method),
            ("because", "; ".join(self.path)),
            ("error", f"at most {bare(self.shortfall(confidence))} below the best {sure}"),
        ]
        if (off := self.gap_error(confidence)) is not None:
            lines.append(("gap", f"± {bare(off)} {sure}"))
        return lines

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """How far a choice may fall short, and a gap be off."""
        gap = self.gap_error(confidence)
        found: dict[str, float | None] = {"shortfall": self.shortfall(confidence)}
        return found if gap is None else found | {"gap": gap}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "candidates": len(self.candidates),
            "method": self.method,
            "mechanism": to_record(self.selection),
            "shortfall": self.shortfall(confidence),
            "gap_error": self.gap_error(confidence),
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Choice:
    """Which candidates were chosen, best first. Reading it again never draws and never costs.

    ``gaps`` say how far each led the next, where that was released: see `gap_error`.
    """

    sql: str
    expected: ChoiceExpected
    notes: tuple[str, ...]
    winners: tuple[Candidate, ...]
    gaps: tuple[float, ...] | None
    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee
    question: str
    request_id: str
    practice: bool = False
    log: Log = NO_LOG

    @property
    def winner(self) -> Candidate:
        """The chosen one; of several, the first."""
        return self.winners[0]

    @property
    def gap(self) -> float | None:
        """How far the winner led the next; None where no gap was released."""
        return None if self.gaps is None else self.gaps[0]

    @property
    def free(self) -> bool:
        """Whether it came from the ledger, without a new charge."""
        return self.cost == ApproxDP(0)

    def shortfall(self, confidence: Number = USUAL) -> float:
        """How far a chosen score may be below the best that was left, at this confidence."""
        return self.expected.shortfall(confidence)

    def gap_error(self, confidence: Number = USUAL) -> float | None:
        """How far a gap may be from the true lead over the best of the others."""
        return self.expected.gap_error(confidence)

    def to_dict(self, confidence: Number = USUAL) -> dict[str, Any]:
        """Plain values, for --json."""
        return {
            "winners": [_plain(winner) for winner in self.winners],
            "gaps": None if self.gaps is None else list(self.gaps),
            "sql": self.sql,
            "confidence": float(fraction(confidence)),
            **self.expected.to_dict(confidence),
            "notes": list(self.notes),
            "price": float(self.cost.epsilon),
            "price_delta": float(self.cost.delta),
            "remaining": float(self.remaining.epsilon),
            "remaining_delta": float(self.remaining.delta),
            "guarantee": self.guarantee.to_dict(),
            "practice": self.practice,
        }  # fmt: skip

    def card(self, confidence: Number = USUAL) -> "Card":
        """The release card: what was chosen and guaranteed, checkable against the ledger."""
        from noisegate.desk.answer import Answer  # noqa: PLC0415
        from noisegate.desk.card import card  # noqa: PLC0415

        if not self.question:
            raise SpecError(
                "This choice was made elsewhere, and its ledger is there.",
                fix="Ask for the card where the gate is.",
                about="card",
            )
        below = bare(self.shortfall(confidence))
        words = f"A chosen score is at most {below} below the best, at {percent(confidence)}."
        made = Answer(
            sql=self.sql, table=pa.table({"chosen": [_shown(each) for each in self.winners]}),
            half_widths=lambda _: (None,), caveats=(*self.notes, words), cost=self.cost,
            remaining=self.remaining, guarantee=self.guarantee, questions=(self.question,),
            request_ids=(self.request_id,), practice=self.practice, log=self.log,
        )  # fmt: skip
        return card(made, confidence)

    def rows(self) -> list[tuple[str, ...]]:
        """Place, candidate and, where released, its lead; as text."""
        leads = [()] * len(self.winners) if self.gaps is None else [(bare(g),) for g in self.gaps]
        return [
            (str(place + 1), _shown(winner), *lead)
            for place, (winner, lead) in enumerate(zip(self.winners, leads, strict=True))
        ]

    def footer(self, confidence: Number = USUAL) -> str:
        """How good the choice is, the price and the balance; then the caveats, one a line."""
        below = f"at most {bare(self.shortfall(confidence))} below the best"
        if (off := self.gap_error(confidence)) is not None:
            below += f", leads ± {bare(off)}"
        paid = "free" if self.free else f"cost {self.cost}"
        made_up = "made-up rows · " if self.practice else ""
        first = f"{made_up}{below} at {percent(confidence)} · {paid} · left {self.remaining:left}"
        return "\n".join([first, *self.notes])

    def __str__(self) -> str:
        return lines("\n".join(["\t".join(row) for row in self.rows()] + [self.footer()]))

    def __repr__(self) -> str:
        names = ", ".join(map(_shown, self.winners[:5]))
        return line(f"<Choice: {names}; {self.footer().splitlines()[0]}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceJob(Measured[Choice, ChoiceExpected]):
    """A private choice: which candidates score best, and nothing else about the scores."""

    kind: str = "choice"

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About the choice."""
        return guarantee_of(loss, self.tables, "this choice about")

    def result(self, content: Measurements, receipt: Receipt) -> Choice:
        """The chosen, best first, and their gaps if they were released."""
        known = self.expected
        k = getattr(known.selection, "k", 1)
        places, rest = content.values[0][:k].tolist(), content.values[0][k:].tolist()
        return Choice(
            sql=self.sql,
            expected=known,
            notes=self.notes,
            winners=tuple(known.candidates[place] for place in places),
            gaps=tuple(float(gap * known.grain) for gap in rest) or None,
            **receipt.standing,
        )


def choice_job(desk: Desk, order: ChoiceOrder) -> ChoiceJob:
    """The choice that an order asks for; whatever is wrong with it is refused, at no cost."""
    found, terms, weights = _found(desk, order)
    assert terms.epsilon is not None  # noqa: S101 - just made sure
    funds = desk.funds(terms.epsilon)
    plain = weights is None and not isinstance(found.names, Grid)
    selection: Selection = (
        selection_of(found, funds, order) if plain else _exponential(found, funds, order, weights)
    )
    return ChoiceJob(
        sql=order.sql,
        epsilon=terms.epsilon,
        expected=ChoiceExpected(
            candidates=found.names, selection=selection, grain=found.grain, path=found.path
        ),
        notes=found.caveats,
        measurement=Measurement(query=found.query, mechanisms=(selection,)),
    )


def _found(desk: Desk, order: ChoiceOrder) -> tuple[Candidates, Terms, tuple[int, ...] | None]:
    """The candidates with their scores, what is paid, and the weights of a prior."""
    stated = None
    if order.candidates is None:
        question = sampled(read(order.sql, desk.curator.tables), desk.rules.sample)
        terms = _terms(desk, order, question.terms)
        found = candidates_of(question, terms, accountant=desk.accountant, least=order.least)
    elif (interval := interval_of(order.candidates)) is not None:
        terms = _terms(desk, order, take_hints(order.sql)[1])
        found = interval_candidates(desk, order.sql, *interval, terms)
    else:
        listed = listed_of(desk, order.candidates, order.prior)
        score, said = score_of(order.sql, listed.table.column_names)
        terms, stated = _terms(desk, order, said), listed.weights
        found = scored_candidates(desk, score, listed, terms, least=order.least)
    if isinstance(order.prior, str) and stated is None:
        raise SpecError(
            "The prior names a column, and no candidates are listed.",
            fix='Give weights by candidate: prior={"north": 3, "south": 1}.',
            about="prior",
        )
    prior = None if isinstance(order.prior, str) else order.prior
    if prior is not None and isinstance(found.names, Grid):
        raise SpecError(
            "A choice on an interval has no prior: all points weigh the same.",
            fix="Leave the prior out, or list candidates.",
            about="prior",
        )
    return found, terms, weights_of(found.names, prior, stated)


def _exponential(
    found: Candidates, funds: Funds, order: ChoiceOrder, weights: tuple[int, ...] | None
) -> PriorExponential | StretchChoice:
    """The choice over a prior, or on an interval, that the funds buy."""
    if order.k != 1 or order.gap or order.method not in ("auto", "exponential"):
        raise SpecError(f"A prior or an interval has one method. {_ONE}",
                        fix="Leave out k, gap and method.", about="method")  # fmt: skip
    price = funds.choice(Fraction(1))
    if weights is None:
        if order.least:
            raise SpecError(
                "On an interval the point that most rows hold is chosen.",
                fix="Leave out least.",
                about="least",
            )
        return interval_choice(found, price)
    return PriorExponential.for_epsilon(
        price, score_sensitivity=found.sensitivity, monotone=found.monotone, weights=weights
    )


def _terms(desk: Desk, order: ChoiceOrder, said: Terms) -> Terms:
    """What the order says, then the SQL, then the policy."""
    wanted = {each.name for each in fields(Terms) if getattr(said, each.name) is not None}
    if wanted - {"epsilon", "rows_per_unit", "groups_per_unit", "confidence"}:
        raise SpecError(
            "A private choice is paid for in ε alone.",
            fix="Give epsilon, and contribution bounds per unit.",
        )
    return replace(
        said,
        epsilon=desk.epsilon(order.epsilon, said.epsilon),
        rows_per_unit=order.rows_per_unit or said.rows_per_unit,
        groups_per_unit=order.groups_per_unit or said.groups_per_unit,
    )


def _double(exact: Fraction) -> float:
    """A number of rows or sums; none reaches the largest double."""
    return float(min(exact, Fraction(float_info.max)))


def selection_of(found: Candidates, funds: Funds, order: ChoiceOrder) -> Selection:
    """The choice that the funds buy.

    By itself, where ε adds up: permute-and-flip, or for several (or their gaps) noisy max, which
    has less noise than Gumbel noise, and gaps at no cost. Elsewhere exponential: its range is
    bounded, so that ρ = ε²/8 buys twice the ε, and k of them in a row add up their ρ.
    """
    k, method, count = order.k, order.method, len(found.names)
    if not 1 <= k <= count:
        raise SpecError(
            f"k is {k!r}, with {count} candidates.", fix=f"Choose at least 1 and at most {count}."
        )
    if method == "auto":
        method = _best(funds, k, count, gap=order.gap)
    if order.gap and method != "noisy-max":
        raise SpecError(
            f"Method {method!r} does not report gaps.", fix='Use method="noisy-max" or "auto".'
        )
    reach: dict[str, Any] = {"score_sensitivity": found.sensitivity, "monotone": found.monotone}
    if method == "noisy-max":
        if k == count:
            raise SpecError(
                "The last candidate has no runner-up, so it has no gap.",
                fix="Choose fewer than all candidates.",
            )
        return NoisyMax.for_epsilon(funds.share(Fraction(1)), k=k, **reach)
    if method == "permute-and-flip":
        if k > 1:
            raise SpecError(
                "Permute-and-flip chooses exactly one candidate.",
                fix='For k > 1 use method="noisy-max".',
            )
        return PermuteAndFlip.for_epsilon(funds.share(Fraction(1)), **reach)
    each = funds.choice(Fraction(1, k))
    if k == 1:
        return Exponential.for_epsilon(each, **reach)
    return TopK.for_epsilon(each * k, k=k, **reach)


def _best(funds: Funds, k: int, count: int, *, gap: bool) -> Method:
    if gap:
        return "noisy-max"
    if funds.gaussian or 1 < k == count:
        return "exponential"
    return "permute-and-flip" if k == 1 else "noisy-max"


def _shown(candidate: Candidate) -> str:
    return ", ".join(map(bare, candidate)) if isinstance(candidate, tuple) else bare(candidate)


def _plain(candidate: Candidate) -> Any:  # noqa: ANN401 - JSON
    if isinstance(candidate, tuple):
        return [_plain(each) for each in candidate]
    return candidate if type(candidate) in (str, int, float) else str(candidate)
