"""A question as it is asked: what was read, its terms, and what has to be found for it."""

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from typing import final

from noisegate.desk.desk import Desk
from noisegate.desk.terms.price import Step, without
from noisegate.desk.terms.rules import Rules
from noisegate.desk.terms.terms import Terms, checked_terms
from noisegate.errors import SpecError
from noisegate.exact import positive
from noisegate.privacy.event import Event
from noisegate.privacy.release import Release
from noisegate.sql.bounds.looks import (
    Chosen,
    Look,
    guess_of,
    looks_of,
    seen,
    sight_of,
    steps_of,
    text_of,
)
from noisegate.sql.question import Question
from noisegate.sql.reuse.shelf import Shelf
from noisegate.sql.steps.first import Reading, shared


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
        return {text_of(each): each.event() for each in asked}


def asked_of(desk: Desk, reading: Reading, terms: Terms) -> Asked:
    """What is asked, with what earlier looks have found."""
    agreed = agreed_of(desk.rules, terms, reading.question)
    said = None if isinstance(agreed.epsilon, Step) else agreed.epsilon
    if agreed.epsilon is not None and reading.blocks:
        agreed = replace(agreed, epsilon=desk.step(agreed.epsilon))
    reading, agreed = shared(reading, agreed, desk.asked, rho=desk.rho)
    caveats = (*reading.question.caveats, *(each.words for each in reading.firsts))
    question, accountant = replace(reading.question, caveats=caveats), desk.accountant
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
