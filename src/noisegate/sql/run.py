"""One question from SQL to answer: read, draft, buy, measure, estimate, and the free SQL on top."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import sqlglot
from sqlglot import exp

from noisegate.algebra.expression import Expression
from noisegate.algebra.tally import Sums
from noisegate.arrow import holds_numbers
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import CHOSEN, Answer, HalfWidths
from noisegate.desk.plan import Plan
from noisegate.desk.rules import Rules
from noisegate.desk.terms import USUAL, Terms, checked_terms
from noisegate.errors import Bug, OverBudget, SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.mechanisms.base import Mechanism
from noisegate.privacy.event import NothingEvent
from noisegate.privacy.guarantee import Guarantee, names_of, units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.sql.asked import Asked, Order, Parcel, all_of, epsilon_of, found_of, shares
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.bounds.looks import clipping, known_profile, looks_of, seen, sight_of
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.purchase import (
    Purchase,
    key_questions_of,
    purchase,
    require_findable,
)
from noisegate.sql.estimates.estimate import estimate
from noisegate.sql.estimates.losses import rank_slack
from noisegate.sql.expected import Expectation
from noisegate.sql.first import First, after_paying, number_of, shared
from noisegate.sql.outer.engine import shown_table
from noisegate.sql.outer.margins import Margins
from noisegate.sql.plan import AnswerExpected, AnswerPlan
from noisegate.sql.question import Block, Question, sampled
from noisegate.sql.reading.reader import read
from noisegate.sql.reuse.guesses import Guess
from noisegate.sql.reuse.released import blank_table, released_block
from noisegate.sql.reuse.shelf import Needed, Shelf
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

if TYPE_CHECKING:
    import pyarrow as pa

Prepared: TypeAlias = tuple[Asked, list[Order], AnswerPlan]
NOTHING: Final = ApproxDP(0)
_PARTLY: Final = (
    "A part was measured before; it is paid for, and free from now on. Ask for less, or ask the "
    "steward to raise the budget."
)


@final
class Run:
    """Answers questions through a curator, by the rules of a policy."""

    def __init__(self, curator: Curator, rules: Rules) -> None:
        self._curator, self._rules = curator, rules
        self._shelf = Shelf(curator.ledger)

    @property
    def _accountant(self) -> str:
        return self._curator.ledger.balance(self._curator.account).accountant

    def plan(self, sql: str, terms: Terms, *, fresh: bool) -> AnswerPlan:
        """The plan of a question, as of now."""
        asked, orders, plan = self._prepared(sql, terms, fresh=fresh)
        shown = self._rehearse(asked.question, orders)
        numbers = tuple(each.name for each in shown.schema if holds_numbers(each.type))
        return replace(plan, expected=replace(plan.expected, numbers=numbers))

    def ask(self, sql: str, terms: Terms, *, fresh: bool) -> Answer:
        """The answer of a question: paid for as far as it is new."""
        asked, orders, plan = prepared = self._prepared(sql, terms, fresh=fresh)
        self._rehearse(asked.question, orders)
        if asked.question.explain:
            return self._explained(plan, asked.terms)
        self._curator.ledger.require_room(plan.expected.event, account=self._curator.account)
        return self._answer(*self._paid(prepared, terms, fresh=fresh))

    def _paid(
        self, prepared: Prepared, terms: Terms, *, fresh: bool
    ) -> tuple[AnswerPlan, list[Parcel], list[Release]]:
        """What was measured for a question, and before it."""
        asked, orders, plan = prepared
        known = {
            one.sql: one if one.is_known else self._known(one, fresh=fresh) for one in asked.firsts
        }
        looked = [release for each in known.values() for release in each.releases]
        if any(not each.is_known for each in asked.firsts):
            try:
                asked, orders, plan = self._prepared(asked.sql, terms, fresh=fresh, known=known)
            except Unsupported as refusal:
                raise after_paying(refusal) from None
        while asked.missing:
            ready = [look.measurement for look in asked.missing if not look.waits]
            looked += [self._curator.measure(measurement) for measurement in ready]
            asked, orders, plan = self._prepared(
                asked.sql, terms, fresh=fresh, known=known, read_as=asked.read_as
            )
        measured = list(looked)
        try:
            parcels = [self._fetched(order, measured, fresh=fresh) for order in orders]
        except OverBudget as refusal:  # others spent meanwhile, or prices differ by a rounding
            if all(release.free for release in measured):
                raise
            raise OverBudget(refusal.problem, fix=_PARTLY) from None
        paid = {release.request_id for release in looked}
        looked += [each for each in asked.seen if each.request_id not in paid]
        return plan, parcels, looked

    def _found_firsts(self, asked: Asked, *, fresh: bool) -> Iterator[First]:
        """Those numbers that cost nothing: of public tables, or measured before."""
        for each in asked.firsts:
            plan = self.plan(each.sql, each.terms or Terms(), fresh=fresh)
            if isinstance(plan.expected.event, NothingEvent):
                yield self._known(each, fresh=fresh)

    def _known(self, first: First, *, fresh: bool) -> First:
        """The number, measured now, or read off public tables."""
        terms = first.terms or Terms()
        prepared = self._prepared(first.sql, terms, fresh=fresh)
        plan, parcels, looked = self._paid(prepared, terms, fresh=fresh)
        answer = self._answer(plan, parcels, looked)
        widths = answer.half_widths(terms.confidence or USUAL)[0]
        value, shown = number_of(answer.table, widths if answer.questions else None)
        releases = (*looked, *(release for parcel in parcels for release in parcel.releases))
        return replace(first, value=value, shown=shown, is_known=True, releases=releases)

    # before paying

    def _prepared(
        self,
        sql: str,
        terms: Terms,
        *,
        fresh: bool,
        known: Mapping[str, First] | None = None,
        read_as: Question | None = None,
    ) -> Prepared:
        """The question, what it needs, and its plan, with numbers that were measured before."""
        asked = self._asked(sql, terms, known or {}, read_as)
        if known is None and asked.firsts:
            found = {each.sql: each for each in self._found_firsts(asked, fresh=fresh)}
            asked = self._asked(sql, terms, found)
        orders = self._orders(asked, fresh=fresh or any(not one.is_known for one in asked.firsts))
        return asked, orders, self._plan(asked, orders, fresh=fresh)

    def _asked(
        self, sql: str, terms: Terms, known: Mapping[str, First], read_as: Question | None = None
    ) -> Asked:
        """What is asked, with what earlier looks have found, and numbers that are ``known``."""
        firsts: dict[str, First] = {}

        def first(inner: str) -> Expression:
            found = firsts.get(inner) or known.get(inner) or self._made_up(inner, terms)
            firsts[inner] = found
            return found.value

        tables, public = self._curator.tables, self._curator.public
        plain = read_as or sampled(
            read(sql, tables, public, lines=True, first=first), self._rules.sample
        )
        agreed, question = self._agreed(terms, plain), plain
        delta = self._rules.keys_delta if agreed.delta is None else agreed.delta
        if firsts and agreed.epsilon is not None:
            self._rules.require_price(agreed.epsilon)
        numbers, agreed = shared(tuple(firsts.values()), agreed, delta, question)
        caveats = (*question.caveats, *(each.words for each in numbers))
        question = replace(question, caveats=caveats)
        sight = partial(sight_of, shelf=self._shelf)
        looks = looks_of(question, agreed, self._accountant, sight)
        sights = [None if look.waits else sight(look) for look in looks]
        missing = tuple(look for look, each in zip(looks, sights, strict=True) if each is None)
        used = tuple(sight.release for sight in sights if sight is not None)
        chosen = seen(question, agreed, looks, sights)
        return Asked(sql, chosen, looks, missing, used, numbers, None if firsts else plain)

    def _made_up(self, sql: str, terms: Terms) -> First:
        """A number that the sub-query could give, whatever its price."""
        price = min(Fraction(1), self._rules.epsilon_max or Fraction(1))
        tried = replace(terms, epsilon=price, within=None, relative=None)
        asked = self._asked(sql, tried, {})
        shown = self._rehearse(asked.question, self._orders(asked, fresh=False))
        blocks = len(asked.question.blocks) + sum(each.blocks for each in asked.firsts)
        return First(sql=sql, blocks=blocks, value=number_of(shown)[0])

    def _agreed(self, terms: Terms, question: Question) -> Terms:
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
        if not given and self._rules.epsilon is not None:
            agreed, given = replace(agreed, epsilon=self._rules.epsilon), ["epsilon"]
        if len(given) != 1 and question.blocks:
            raise SpecError(
                f"The question has several prices: {' and '.join(given)}."
                if given
                else "The question has no price.",
                fix="Give exactly one of epsilon, within (an error) and relative (its share).",
            )
        for name in given:
            positive(getattr(agreed, name), name=name)
        return agreed

    def _orders(self, asked: Asked, *, fresh: bool) -> list[Order]:
        blocks = asked.question.blocks
        orders = [self._order(asked, block, fresh=fresh) for block in blocks]
        self._rules.require_price(sum((order.epsilon for order in orders), asked.epsilon))
        return orders

    def _order(self, asked: Asked, block: Block, *, fresh: bool) -> Order:
        terms, count = asked.terms, len(asked.question.blocks)
        caps = replace(caps_of(block, terms), **asked.chosen.caps.get(block.name, {}))
        profiles, looked = asked.chosen.profiles.get(block.name, ()), None
        # Before a look its cap is a guess: what is on the shelf for that is no answer to this.
        fresh = fresh or any(look.block.name == block.name for look in asked.missing)
        slack = rank_slack(profiles, caps.rows_per_unit)
        delta = terms.delta if terms.delta is not None else self._rules.keys_delta
        accountant, rows = self._accountant, terms.rows
        known = draft(block, caps, accountant=accountant)
        epsilon = epsilon_of(known, terms, count, delta)
        keys = key_questions_of(known, epsilon=epsilon, delta=delta / count)
        found = None if fresh and keys else self._found(keys)
        if found is None:
            counted = (profile.units_max for profile in profiles)
            require_findable(keys, rows, self._units_max(block), *counted)
        if found:
            known = draft(block, caps, **found_of(found), accountant=accountant)
        bought = purchase(known, epsilon=epsilon, delta=delta / count, rows=rows, slack=slack)
        if not profiles:
            profiles, looked = known_profile(self._shelf, block, accountant)
        order = Order(
            bought=bought,
            caps=caps,
            epsilon=epsilon,
            delta=delta / count,
            rows=rows,
            keys=keys,
            found=found,
            needed=self._needed(bought, terms, fresh=fresh),
            profiles=profiles,
            slack=slack,
            looked=looked,
            clips=asked.chosen.clips.get(block.name, {}),
        )
        return order if order.losses else replace(order, looked=None)

    def _units_max(self, block: Block) -> int | None:
        """How many units there can be, as the policy bounds rows."""
        private = [t for t in stability_of(block.relation).tables if not t.is_public]
        sizes = [self._rules.rows_max.get(table.name) for table in private]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def _found(self, keys: Sequence[Measurement]) -> tuple[Release, ...] | None:
        """The keys, where all of them were found before (or none are sought)."""
        found = [self._curator.find(measurement) for measurement in keys]
        return None if None in found else tuple(each for each in found if each is not None)

    def _needed(self, bought: Purchase, terms: Terms, *, fresh: bool) -> tuple[Needed, ...]:
        """What is on the shelf. Tables that are made consistent must be drawn independently.

        Several sums of a sample must be of the same one: averages compare them.
        """
        level = None if terms.epsilon is not None else terms.confidence or USUAL
        pairs = list(zip(bought.draft.parts, bought.mechanisms, strict=True))
        if fresh:
            return tuple(Needed.all_of(part.query, noises) for part, noises in pairs)
        single = len(set(bought.draft.block.sets)) == 1
        return tuple(
            self._shelf.needed(part.query, noises, level)
            if single and isinstance(part.query.tally, Sums) and shares(part.query)
            else self._repeated(part.query, noises)
            for part, noises in pairs
        )

    def _repeated(self, query: Query, noises: Sequence[Mechanism[Any]]) -> Needed:
        """The very same measurement from the ledger, or a new one."""
        needed = Needed.all_of(query, noises)
        found = self._curator.find(Measurement(query=query, mechanisms=tuple(noises)))
        return replace(needed, stored=found)

    def _plan(self, asked: Asked, orders: Sequence[Order], *, fresh: bool) -> AnswerPlan:
        unknown = [each for each in asked.firsts if not each.is_known]
        firsts = tuple(self.plan(each.sql, each.terms or Terms(), fresh=fresh) for each in unknown)
        told = [each.expected.event for each in firsts]
        before = [each for each in told if not isinstance(each, NothingEvent)]
        events = [*asked.events(orders, fresh=fresh), *before]
        paying = [order.epsilon for order in orders] + [each.epsilon for each in firsts]
        price, fits = self._curator.price(all_of(events))
        early = [*asked.events(orders, fresh=fresh, found=False), *before]
        reused = (needed.words for order in orders for needed in order.needed)
        blind = {look.block.name for look in asked.missing if look.counted is not None}
        clipped = (
            words
            for order in orders
            if order.bought.draft.block.name not in blind
            for words in clipping(order.bought, order.profiles, order.caps.rows_per_unit)
        )
        expected = AnswerExpected(
            question=asked.question,
            bought=tuple(order.bought for order in orders),
            event=all_of(events),
            error=self._expected(asked, orders),
            reused=tuple(dict.fromkeys(words for words in reused if words)),
            clipping=tuple(dict.fromkeys((*asked.chosen.words, *clipped))),
            firsts=firsts,
        )
        return Plan(
            kind="answer",
            sql=asked.sql,
            epsilon=sum(paying, asked.epsilon),
            price=price,
            fits=fits,
            early=self._curator.price(all_of(early))[0] if early != events else None,
            expected=expected,
            notes=expected.caveats,
        )

    def _expected(self, asked: Asked, orders: Sequence[Order]) -> Expectation:
        """What the numbers may be. For plans alone: no price looks at it."""
        guesses = (
            Guess(
                bought=order.bought, needed=order.needed, caps=order.caps, shelf=self._shelf,
                accountant=self._accountant, said=asked.terms.rows, losses=order.losses,
            )
            for order in orders
        )  # fmt: skip
        return Expectation(
            question=asked.question,
            guesses=tuple(guesses),
            public=lambda: self._tables(asked.question),
            rows_max=self._rules.rows_max,
        )

    def _rehearse(self, question: Question, orders: Sequence[Order]) -> "pa.Table":
        """Run the free SQL on made-up numbers: what it refuses is refused before it is paid."""
        drafts = [order.bought.draft for order in orders]
        blank = {draft.block.name: blank_table(draft) for draft in drafts}
        public = self._tables(question)
        try:
            return shown_table(question, blank, public)
        except Unsupported as refusal:
            words = "Tried on made-up numbers, before paying: "
            refused = Unsupported(words + refusal.problem, fix=refusal.fix)
        raise refused

    # paying

    def _fetched(self, order: Order, measured: list[Release], *, fresh: bool) -> Parcel:
        """Measure what is missing, and note it. Each measurement stands by itself in the ledger."""
        bought, needed, before = order.bought, order.needed, len(measured)
        if order.found is None:
            measured.extend(self._measure(each, fresh=fresh) for each in order.keys)
            bought, needed = self._with_keys(order, measured[before:])
        numbers = []
        for each in needed:
            release, measurement = None, each.measurement
            if measurement is not None:
                release = self._measure(measurement, fresh=fresh, name=each.name)
                measured.append(release)
            numbers.append(each.known(release))
        kept = [release for each in needed for release in each.releases]
        estimates = estimate(bought, numbers, order.losses, order.clips)
        used = [] if order.looked is None else [order.looked]
        return Parcel(bought, estimates, (*(order.found or ()), *used, *kept, *measured[before:]))

    def _with_keys(
        self, order: Order, releases: Sequence[Release]
    ) -> tuple[Purchase, tuple[Needed, ...]]:
        """The same purchase, over the keys that were found."""
        known = draft(
            order.bought.draft.block,
            order.caps,
            **found_of(releases),
            accountant=self._accountant,
        )
        bought = purchase(
            known, epsilon=order.epsilon, delta=order.delta, rows=order.rows, slack=order.slack
        )
        pairs = zip(known.parts, bought.mechanisms, strict=True)
        needed = tuple(Needed.all_of(part.query, noises) for part, noises in pairs)
        planned, now = (
            self._curator.price(all_of([m.event() for each in parts if (m := each.measurement)]))[0]
            for parts in (order.needed, needed)
        )
        if now.epsilon > planned.epsilon or now.delta > planned.delta:
            raise Bug(
                "The price would depend on which groups were found.",
                fix="Only the groups were paid for. Please report the question.",
            )
        return bought, needed

    def _measure(
        self, measurement: Measurement, *, fresh: bool, name: str | None = None
    ) -> Release:
        request_id = self._curator.fresh_id() if fresh else name
        return self._curator.measure(measurement, request_id=request_id)

    # after paying

    def _answer(
        self, plan: AnswerPlan, parcels: Sequence[Parcel], looked: Sequence[Release]
    ) -> Answer:
        question = plan.expected.question
        names = [block.name for block in question.blocks]
        released = {
            name: released_block(parcel.bought.draft, parcel.estimates)
            for name, parcel in zip(names, parcels, strict=True)
        }
        public = self._tables(question)
        tables = {name: block.table for name, block in released.items()}
        try:
            shown = shown_table(question, tables, public)
        except Unsupported as refusal:
            raise after_paying(refusal) from None
        margins = Margins(question.outer, released, public, shown)
        noise = None
        if any(each.estimates.is_raised or each.estimates.is_clipped for each in parcels):
            proven = {
                name: released_block(parcel.bought.draft, parcel.estimates, noise=True)
                for name, parcel in zip(names, parcels, strict=True)
            }
            noise = Margins(question.outer, proven, public, shown)
        releases = [*looked, *(release for parcel in parcels for release in parcel.releases)]
        paid = [release.event for release in releases if not release.free]
        caveats = [*plan.expected.clipping, *plan.notes, *([CHOSEN] if margins.chosen else [])]
        return Answer(
            sql=plan.sql,
            table=shown,
            half_widths=lambda level: _widths(margins, level),
            noise_widths=None if noise is None else lambda level: _widths(noise, level),
            cost=self._curator.loss_of(all_of(paid)),
            remaining=self._curator.remaining(),
            guarantee=self._guarantee(releases, question),
            plan=plan,
            request_ids=tuple(dict.fromkeys(r.request_id for r in releases if r.request_id)),
            questions=tuple(dict.fromkeys(release.question for release in releases)),
            caveats=tuple(caveats),
            reused=plan.expected.reused,
            practice=self._rules.practice,
            unfollowed=margins.unknown if question.blocks else tuple,
            unsigned=margins.unsigned,
            amounts=margins.amounts,
            lower=margins.lower,
            log=self._curator.ledger.log(),
        )

    def _guarantee(self, releases: Sequence[Release], question: Question) -> Guarantee:
        used = [t for b in question.blocks for t in stability_of(b.relation).tables]
        unit, *others = units_of(used) or units_of(self._curator.tables.values())
        events = {release.request_id or release.question: release.event for release in releases}
        scope = f"this answer about {names_of(used) or 'public rows only'}"
        loss = self._curator.loss_of(all_of(list(events.values())))
        return Guarantee(loss=loss, unit=unit, scope=scope, also=tuple(others))

    def _tables(self, question: Question) -> "dict[str, pa.Table]":
        """The public tables that the free SQL names."""
        public = [name for name, table in self._curator.tables.items() if table.is_public]
        if not public:
            return {}
        tree = sqlglot.parse_one(question.outer, dialect="duckdb")
        named = {table.name.lower() for table in tree.find_all(exp.Table)}
        return {name: self._curator.public(name) for name in public if name.lower() in named}

    def _explained(self, plan: AnswerPlan, terms: Terms) -> Answer:
        """EXPLAIN: the plan as a table, for clients that know only SQL."""
        return Answer(
            sql=plan.sql,
            table=plan.table(terms.confidence or USUAL),
            half_widths=lambda _: (None, None),
            cost=NOTHING,
            remaining=self._curator.remaining(),
            guarantee=self._guarantee((), plan.expected.question),
            plan=plan,
        )


def _widths(margins: Margins, confidence: Number) -> list[HalfWidths]:
    return [None if each is None else tuple(each) for each in margins.at(confidence)]
