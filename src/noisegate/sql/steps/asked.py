"""A question as it is asked: what was read, its terms, and what has to be found for it.

Numbers that rows are compared with are measured first, then written into the question. What is
written is a noisy number, which is public; so the question is then one like any other.
"""

from collections.abc import Callable
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from math import isfinite
from typing import Any, final

import pyarrow as pa

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.desk.desk import Desk
from noisegate.desk.terms.price import Step, share_of, without
from noisegate.desk.terms.rules import Rules
from noisegate.desk.terms.terms import Terms, checked_terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import positive
from noisegate.frozen import dataclass, field, fields, replace
from noisegate.privacy.domain import WHOLE_MAX, Kind
from noisegate.privacy.event import Event
from noisegate.privacy.release import Release
from noisegate.sql.bounds.look import Look, guess_of, sight_of
from noisegate.sql.bounds.looks import Chosen, looks_of, seen, steps_of
from noisegate.sql.drafts.within import without_zeros
from noisegate.sql.outer.margins import HalfWidths
from noisegate.sql.question import Question
from noisegate.sql.reuse.shelf import Shelf


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """SQL as it was read at a ``moment``, with the numbers that are measured before it."""

    sql: str
    question: Question
    moment: datetime
    firsts: "tuple[First, ...]" = ()

    @property
    def blocks(self) -> int:
        """How many blocks are measured, with those of the numbers."""
        return len(self.question.blocks) + sum(each.reading.blocks for each in self.firsts)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """A sub-query that gives a number, and the number, made up or as it was measured.

    ``terms`` are those of its own: a share of the price.
    """

    reading: Reading
    value: Expression
    is_known: bool = False
    shown: str = ""
    releases: tuple[Release, ...] = ()
    terms: Terms = field(default_factory=Terms)
    price: Fraction = Fraction(0)

    @property
    def sql(self) -> str:
        """The sub-query."""
        return self.reading.sql

    @property
    def words(self) -> str:
        """What the answer says about it."""
        if not self.reading.blocks:
            return f"({self.sql}) is about public rows, exact and free."
        used = f"{self.shown} is used" if self.is_known else "its noisy value is used"
        return (
            f"({self.sql}) is measured first, for ε = {float(self.price):g}, and {used}: the ± is "
            "about the question with that number, and does not include the number's own error."
        )


def shared(
    reading: Reading, terms: Terms, asked: Callable[[Fraction], Fraction], *, rho: bool
) -> tuple[Reading, Terms]:
    """The price in equal parts for all blocks: those of the numbers, and those of the question.

    ``asked`` says for which ε a part could be asked for.
    """
    count, own = reading.blocks, len(reading.question.blocks)
    if count == own:
        return reading, terms
    if terms.epsilon is None:
        raise SpecError(
            "A sub-query that is measured first is paid for with a share of ε.",
            fix="Give epsilon, not an error.",
        )

    def of(blocks: int) -> Terms:
        share = Fraction(blocks, count)
        step = share_of(terms.epsilon or Fraction(0), share, rho=rho)
        return replace(terms, epsilon=step, delta=(terms.delta or 0) * share)

    def first(each: First) -> First:
        own = of(each.reading.blocks)
        return replace(each, terms=own, price=asked(own.epsilon or Fraction(0)))

    return replace(reading, firsts=tuple(map(first, reading.firsts))), of(own)


def number_of(table: "pa.Table", widths: HalfWidths | None = None) -> tuple[Expression, str]:
    """The one number of a table as an expression, and as it is shown. No row is NULL."""
    kind = table.schema.types[0] if table.num_columns == 1 and table.num_rows <= 1 else None
    value = table.column(0)[0].as_py() if kind is not None and table.num_rows else None
    if kind is None or pa.types.is_nested(kind):
        raise Unsupported(
            "A sub-query returns more than one number.", fix="Aggregate its rows to one."
        )
    shown = f"{value} (± {widths[0]:.6g})" if widths and widths[0] is not None else f"{value}"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _double(value), shown
    kinds: list[tuple[Any, Kind]] = [
        (pa.types.is_integer, Kind.INTEGER),
        (pa.types.is_date, Kind.DATE),
        (pa.types.is_timestamp, Kind.TIMESTAMP),
    ]
    found = next((each for is_kind, each in kinds if is_kind(kind)), None)
    if found is None:
        raise Unsupported(
            "A sub-query does not return a number.", fix="Use COUNT or SUM of what it selects."
        )
    usable = isinstance(value, date | datetime) or (
        isinstance(value, int) and abs(value) <= WHOLE_MAX
    )
    return (Literal(value) if usable else Literal(None, found)), shown


def _double(value: Any) -> Expression:  # noqa: ANN401 - whatever Arrow gives
    """A double, as averages and ratios are in SQL; NULL where it has no value."""
    number = None if value is None or not isfinite(value) else Fraction(float(value))
    if number is None:
        return Literal(None, Kind.NUMBER)
    return Call("to_number", (Literal(number),))


def after_paying(refusal: Unsupported) -> Unsupported:
    """A refusal that comes too late to cost nothing."""
    words = "What was measured is paid for and stored: correct the question and ask again, free."
    return Unsupported(refusal.problem, fix=f"{refusal.fix} {words}", about="after-paying")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with its terms, what is to be found for it, and what of that is still missing."""

    reading: Reading
    said: Fraction | None  # the ε that was asked for
    accountant: str
    chosen: Chosen
    looks: tuple[Look, ...]
    missing: tuple[Look, ...]
    seen: tuple[Release, ...]  # by the looks that were paid for

    @property
    def question(self) -> Question:
        """With bounds that were found as if they were declared."""
        return self.chosen.question

    @property
    def terms(self) -> Terms:
        """With the price that is left after the looks."""
        return self.chosen.terms

    @property
    def steps(self) -> tuple[Fraction, ...]:
        """What the looks cost, each once."""
        return steps_of(self.looks)

    @property
    def unpaid(self) -> dict[str, Event]:
        """What the missing looks are, by their canonical texts."""
        asked = (look.measurement for look in self.missing)
        return {each.question(): each.event() for each in asked}


def asked_of(desk: Desk, reading: Reading, terms: Terms) -> Asked:
    """What is asked, with what earlier looks have found."""
    agreed = agreed_of(desk.rules, terms, reading.question)
    said = None if isinstance(agreed.epsilon, Step) else agreed.epsilon
    if agreed.epsilon is not None and reading.blocks:
        agreed = replace(agreed, epsilon=desk.step(agreed.epsilon))
    reading, agreed = shared(reading, agreed, desk.asked, rho=desk.rho)
    caveats = (*reading.question.caveats, *(each.words for each in reading.firsts))
    blocks = tuple(map(without_zeros, reading.question.blocks))
    question = replace(reading.question, caveats=caveats, blocks=blocks)
    accountant = desk.accountant
    sight = partial(sight_of, shelf=desk.read_as(Shelf))
    gaussian = desk.rho and desk.gaussian
    looks = looks_of(question, agreed, accountant, sight, gaussian=gaussian)
    looks = tuple(replace(look, price=desk.asked(look.epsilon)) for look in looks)
    if looks and agreed.epsilon is not None:
        left = without(agreed.epsilon, steps_of(looks), rho=desk.rho)
        agreed = replace(agreed, epsilon=left)
    sights = [None if look.waits else sight(look) for look in looks]
    guesses = [None if look.waits else guess_of(look, desk.read_as(Shelf)) for look in looks]
    return Asked(
        reading=reading,
        said=said,
        accountant=accountant,
        chosen=seen(question, agreed, looks, sights, guesses),
        looks=looks,
        missing=tuple(look for look, each in zip(looks, sights, strict=True) if each is None),
        seen=tuple(each.release for each in sights if each is not None),
    )


def agreed_of(rules: Rules, terms: Terms, question: Question) -> Terms:
    """What the caller says goes before what the SQL says, and both before the policy."""
    said = {
        each.name: value
        for each in fields(Terms)
        if (value := getattr(terms, each.name)) is not None
    }
    ways = ("epsilon", "within", "relative")
    inner = question.terms
    if any(name in said for name in ways):
        inner = replace(inner, epsilon=None, within=None, relative=None)
    agreed = checked_terms(replace(inner, **said))
    given = [name for name in ways if getattr(agreed, name) is not None]
    if not given and rules.epsilon is not None:
        agreed, given = replace(agreed, epsilon=rules.epsilon), ["epsilon"]
    if question.blocks and (not given or {"within", "relative"} <= {*given}):
        raise SpecError(
            "The question has two accuracies: within and relative."
            if given
            else "The question has no price.",
            fix="Give epsilon, or within (an error) or relative (its share), or epsilon as the "
            "most that one of these may cost.",
            about="price",
        )
    for name in given:
        positive(getattr(agreed, name), name=name)
    return agreed if agreed.delta is not None else replace(agreed, delta=rules.keys_delta)
