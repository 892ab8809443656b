"""One question from SQL to answer: read, draft, buy, measure, estimate, and the free SQL on top."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, final

import sqlglot
from sqlglot import exp

from noisegate.algebra.relation import Sampled
from noisegate.algebra.tally import Sums
from noisegate.arrow import holds_numbers
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.mechanisms.base import Mechanism, failure_of
from noisegate.privacy.event import Event, NothingEvent, Sequential
from noisegate.privacy.guarantee import Guarantee, names_of, units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.query.answer import CHOSEN, Answer, HalfWidths
from noisegate.query.estimates.accuracy import Goal, epsilon_for
from noisegate.query.estimates.draft import Caps, Draft, draft
from noisegate.query.estimates.estimate import Estimates, estimate
from noisegate.query.estimates.known import grains_of
from noisegate.query.estimates.purchase import Purchase, key_mechanisms, purchase
from noisegate.query.estimates.terms import count_term
from noisegate.query.limits import caps_of
from noisegate.query.looks import Look, clipping, looks_of, seen
from noisegate.query.margins import Margins
from noisegate.query.outer import shown_table
from noisegate.query.plan import Plan
from noisegate.query.question import USUAL, Block, Question, Terms
from noisegate.query.reading.reader import read
from noisegate.query.released import blank_table, released_block
from noisegate.query.shelf import Needed, Shelf
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

NOTHING: Final = ApproxDP(0)
EPSILON_MAX: Final = 10**6  # of an account
_ROWS_MAX: Final = 1 << 40


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the policy says about questions: prices, and the δ for finding groups."""

    epsilon: Fraction | None = None
    epsilon_max: Fraction | None = None
    keys_delta: Fraction = Fraction(0)
    practice: bool = False
    sample: Fraction | None = None  # of units, drawn anew for each question
    crowd: tuple[Fraction, Fraction] | None = None  # probability and δ, where crowds may be asked

    def price(self, *said: Number | None) -> Fraction:
        """What is to be paid: the first that was said, else as the policy has it."""
        given = next((each for each in (*said, self.epsilon) if each is not None), None)
        if given is None:
            raise SpecError("Nothing is said about the price.", fix="Give epsilon, such as 0.5.")
        exact = positive(given, name="epsilon")
        self.require_price(exact)
        return exact

    def require_price(self, epsilon: Fraction) -> None:
        """Refuse to pay more at once than the policy allows, or than any account has."""
        if epsilon > EPSILON_MAX:
            raise SpecError("epsilon is above 10**6.", fix="No account has more. Ask for less.")
        if self.epsilon_max is not None and epsilon > self.epsilon_max:
            raise SpecError(
                f"One question may cost at most ε = {float(self.epsilon_max):g}.",
                fix="Ask with more noise, or ask the steward.",
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A block with what it costs: bought noise, and which parts of it are still to be measured."""

    bought: Purchase
    caps: Caps
    epsilon: Fraction
    delta: Fraction
    rows: int | None
    keys: tuple[Measurement, ...]
    found: tuple[Release, ...] | None  # the keys, where they are known already
    needed: tuple[Needed, ...]

    def measurements(self) -> Iterator[Measurement]:
        """What is still to be paid for."""
        if self.found is None:
            yield from self.keys
        for needed in self.needed:
            if needed.measurement is not None:
                yield needed.measurement


@final
class Run:
    """Answers questions through a curator, by the rules of a policy."""

    def __init__(self, curator: Curator, rules: Rules) -> None:
        self._curator, self._rules = curator, rules
        self._shelf = Shelf(curator.ledger)

    def plan(self, sql: str, terms: Terms, *, fresh: bool) -> Plan:
        """The plan of a question, as of now."""
        asked = self._asked(sql, terms)
        orders = self._orders(asked, fresh=fresh)
        numbers = self._rehearse(asked.question, orders)
        return replace(self._plan(asked, orders, fresh=fresh), numbers=numbers)

    def ask(self, sql: str, terms: Terms, *, fresh: bool) -> Answer:
        """The answer of a question: paid for as far as it is new."""
        asked = self._asked(sql, terms)
        orders = self._orders(asked, fresh=fresh)
        plan = self._plan(asked, orders, fresh=fresh)
        self._rehearse(asked.question, orders)
        if asked.question.explain:
            return self._explained(plan, asked.terms)
        self._curator.ledger.require_room(plan.event, account=self._curator.account)
        looked: list[Release] = []
        if asked.looks:
            looked = [self._curator.measure(look.measurement) for look in asked.looks]
            asked = self._asked(sql, terms)
            orders = self._orders(asked, fresh=fresh)
            plan = self._plan(asked, orders, fresh=fresh)
        parcels = [self._fetched(order, fresh=fresh) for order in orders]
        return self._answer(plan, parcels, looked)

    # before paying

    def _asked(self, sql: str, terms: Terms) -> "_Asked":
        """What is asked, with what earlier looks have found."""
        question = self.sampled(read(sql, self._curator.tables, self._curator.public, lines=True))
        agreed = self._agreed(terms, question)
        looks = looks_of(question, agreed)
        found = [self._curator.find(look.measurement) for look in looks]
        missing = tuple(look for look, each in zip(looks, found, strict=True) if each is None)
        question, agreed, words = seen(question, agreed, looks, found)
        return _Asked(sql, question, agreed, looks, missing, words)

    def sampled(self, question: Question) -> Question:
        """The question about a sample, if these are the rules."""
        chance = self._rules.sample
        if chance is None:
            return question
        blocks = (
            replace(each, relation=Sampled(each.relation, chance)) for each in question.blocks
        )
        return replace(question, blocks=tuple(blocks))

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
        agreed = _checked(replace(inner, **said))
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

    def _orders(self, asked: "_Asked", *, fresh: bool) -> list[_Order]:
        blocks, terms = asked.question.blocks, asked.terms
        orders = [self._order(block, terms, len(blocks), fresh=fresh) for block in blocks]
        looks = sum((look.epsilon for look in asked.looks), Fraction(0))
        self._rules.require_price(sum((order.epsilon for order in orders), looks))
        return orders

    def _order(self, block: Block, terms: Terms, count: int, *, fresh: bool) -> _Order:
        caps = caps_of(block, terms)
        delta = terms.delta if terms.delta is not None else self._rules.keys_delta
        accountant = self._curator.ledger.balance(self._curator.account).accountant
        rows = terms.rows
        known = draft(block, caps, accountant=accountant)
        epsilon = _epsilon(known, terms, count, delta, rows)
        finders = key_mechanisms(known, epsilon=epsilon, delta=delta / count)
        keys = tuple(
            Measurement(query=query, mechanisms=(finder,))
            for query, finder in zip(known.keys, finders, strict=True)
        )
        found = None if fresh and keys else self._found(keys)
        if found:
            listed = [release.keys or () for release in found]
            known = draft(block, caps, found=listed, accountant=accountant)
        bought = purchase(known, epsilon=epsilon, delta=delta / count, rows=rows)
        return _Order(
            bought=bought,
            caps=caps,
            epsilon=epsilon,
            delta=delta / count,
            rows=rows,
            keys=keys,
            found=found,
            needed=self._needed(bought, terms, fresh=fresh),
        )

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
            if single and isinstance(part.query.tally, Sums) and _shares(part.query)
            else self._repeated(part.query, noises)
            for part, noises in pairs
        )

    def _repeated(self, query: Query, noises: Sequence[Mechanism[Any]]) -> Needed:
        """The very same measurement from the ledger, or a new one."""
        needed = Needed.all_of(query, noises)
        found = self._curator.find(Measurement(query=query, mechanisms=tuple(noises)))
        return replace(needed, stored=found)

    def _plan(self, asked: "_Asked", orders: Sequence[_Order], *, fresh: bool) -> Plan:
        wanted = [look.measurement for look in asked.missing]
        wanted += [each for order in orders for each in order.measurements()]
        events = [each.event() for each in wanted]
        if not fresh:  # equal questions are measured once
            events = list({each.question(): each.event() for each in wanted}.values())
        price, fits = self._curator.price(_all(events))
        reused = (needed.words for order in orders for needed in order.needed)
        blind = any(look.expression is None for look in asked.missing)
        clipped = (
            words
            for order in orders
            if not blind
            and (words := clipping(self._shelf, order.bought, order.caps.rows_per_unit))
        )
        looks = sum((look.epsilon for look in asked.looks), Fraction(0))
        return Plan(
            sql=asked.sql,
            question=asked.question,
            bought=tuple(order.bought for order in orders),
            needed=tuple(order.needed for order in orders),
            epsilon=sum((order.epsilon for order in orders), looks),
            event=_all(events),
            price=price,
            fits=fits,
            rows=lambda: asked.terms.rows or self._known_rows(orders),
            reused=tuple(dict.fromkeys(words for words in reused if words)),
            clipping=(*asked.words, *clipped),
        )

    def _known_rows(self, orders: Sequence[_Order]) -> int | None:
        """How many rows take part, if that was released. For plans alone: no price looks at it."""
        if len(orders) != 1 or not orders[0].bought.draft.parts:
            return None
        tally = orders[0].bought.draft.parts[0].query.tally
        if not isinstance(tally, Sums):
            return None
        query = orders[0].bought.draft.parts[0].query
        count = count_term((), cap=query.per_unit if tally.is_weighed else None)
        sized = (count,) if tally.is_weighed else ()
        counted = replace(tally, by=(), terms=(count,), sized=sized)
        offers = self._shelf.offers(Query(counted), 0)
        if not offers:
            return None
        best = min(offers, key=lambda offer: offer.law.variance)
        return max(1, int(best.values[0] * grains_of(Query(counted))[0]))

    def _rehearse(self, question: Question, orders: Sequence[_Order]) -> tuple[str, ...]:
        """Run the free SQL on made-up numbers: what it refuses is refused before it is paid.

        Gives the columns that hold numbers.
        """
        drafts = [order.bought.draft for order in orders]
        blank = {draft.block.name: blank_table(draft) for draft in drafts}
        public = {name: self._curator.public(name) for name in self._public(question.outer)}
        try:
            shown = shown_table(question, blank, public)
        except Unsupported as refusal:
            words = "Tried on made-up numbers, before paying: "
            refused = Unsupported(words + refusal.problem, fix=refusal.fix)
        else:
            return tuple(each.name for each in shown.schema if holds_numbers(each.type))
        raise refused

    # paying

    def _fetched(self, order: _Order, *, fresh: bool) -> "_Parcel":
        """Measure what is missing. Each measurement stands by itself in the ledger."""
        releases: list[Release] = []
        bought, needed = order.bought, order.needed
        if order.found is None:
            releases = [self._measure(each, fresh=fresh) for each in order.keys]
            bought, needed = self._with_keys(order, releases)
        numbers = []
        for each in needed:
            release, measurement = None, each.measurement
            if measurement is not None:
                release = self._measure(measurement, fresh=fresh, name=each.name)
                releases.append(release)
            numbers.append(each.known(release))
        kept = [release for each in needed for release in each.releases]
        return _Parcel(bought, estimate(bought, numbers), (*(order.found or ()), *kept, *releases))

    def _with_keys(
        self, order: _Order, releases: Sequence[Release]
    ) -> tuple[Purchase, tuple[Needed, ...]]:
        """The same purchase, over the keys that were found."""
        known = draft(
            order.bought.draft.block,
            order.caps,
            found=[release.keys or () for release in releases],
            accountant=self._curator.ledger.balance(self._curator.account).accountant,
        )
        bought = purchase(known, epsilon=order.epsilon, delta=order.delta, rows=order.rows)
        pairs = zip(known.parts, bought.mechanisms, strict=True)
        needed = tuple(Needed.all_of(part.query, noises) for part, noises in pairs)
        planned, now = (
            self._curator.price(_all([m.event() for each in parts if (m := each.measurement)]))[0]
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
        self, plan: Plan, parcels: Sequence["_Parcel"], looked: Sequence[Release]
    ) -> Answer:
        question = plan.question
        names = [block.name for block in question.blocks]
        released = {
            name: released_block(parcel.bought.draft, parcel.estimates)
            for name, parcel in zip(names, parcels, strict=True)
        }
        public = {name: self._curator.public(name) for name in self._public(question.outer)}
        tables = {name: block.table for name, block in released.items()}
        try:
            shown = shown_table(question, tables, public)
        except Unsupported as refusal:
            words = "What was measured is paid for and kept: mend the question and ask again, free."
            raise Unsupported(refusal.problem, fix=f"{refusal.fix} {words}") from None
        margins = Margins(question.outer, released, public, shown)
        releases = [*looked, *(release for parcel in parcels for release in parcel.releases)]
        paid = [release.event for release in releases if not release.free]
        caveats = [*plan.caveats, *plan.clipping, *([CHOSEN] if margins.chosen else [])]
        return Answer(
            sql=plan.sql,
            table=shown,
            half_widths=lambda level: _widths(margins, level),
            cost=self._curator.loss_of(_all(paid)),
            remaining=self._curator.remaining(),
            guarantee=self._guarantee(releases, question),
            plan=plan,
            request_ids=tuple(dict.fromkeys(r.request_id for r in releases if r.request_id)),
            questions=tuple(dict.fromkeys(release.question for release in releases)),
            caveats=tuple(caveats),
            reused=plan.reused,
            practice=self._rules.practice,
            unfollowed=margins.unknown if question.blocks else tuple,
            unsigned=margins.unsigned,
            log=self._curator.ledger.log(),
        )

    def _guarantee(self, releases: Sequence[Release], question: Question) -> Guarantee:
        used = [t for b in question.blocks for t in stability_of(b.relation).tables]
        unit, *others = units_of(used) or units_of(self._curator.tables.values())
        events = {release.request_id or release.question: release.event for release in releases}
        scope = f"this answer about {names_of(used) or 'public rows only'}"
        loss = self._curator.loss_of(_all(list(events.values())))
        return Guarantee(loss=loss, unit=unit, scope=scope, also=tuple(others))

    def _public(self, outer: str) -> list[str]:
        """The public tables that the free SQL names."""
        public = [name for name, table in self._curator.tables.items() if table.is_public]
        if not public:
            return []
        tree = sqlglot.parse_one(outer, dialect="duckdb")
        named = {table.name.lower() for table in tree.find_all(exp.Table)}
        return [name for name in public if name.lower() in named]

    def _explained(self, plan: Plan, terms: Terms) -> Answer:
        """EXPLAIN: the plan as a table, for clients that know only SQL."""
        import pyarrow as pa  # noqa: PLC0415

        facts = plan.facts(terms.confidence or USUAL)
        table = pa.table(
            {"about": [name for name, _ in facts], "plan": [fact for _, fact in facts]}
        )
        return Answer(
            sql=plan.sql,
            table=table,
            half_widths=lambda _: (None, None),
            cost=NOTHING,
            remaining=self._curator.remaining(),
            guarantee=self._guarantee((), plan.question),
            plan=plan,
        )


@final
@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with its terms, what is to be found for it, and what of that is still missing."""

    sql: str
    question: Question
    terms: Terms
    looks: tuple[Look, ...]
    missing: tuple[Look, ...]
    words: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class _Parcel:
    """What came back for a block: its table and the releases it was made of."""

    bought: Purchase
    estimates: Estimates
    releases: tuple[Release, ...]


def _checked(terms: Terms) -> Terms:
    """Refuse terms that are none, whether or not the question uses them."""
    if terms.confidence is not None:
        failure_of(terms.confidence)
    if terms.delta is not None and not 0 <= terms.delta < 1:
        raise SpecError("delta is no probability.", fix="Use a small delta such as 1e-6.")
    if terms.rows is not None and (type(terms.rows) is not int or not 1 <= terms.rows <= _ROWS_MAX):
        raise SpecError("rows is no number of rows.", fix="Say about how many there are.")
    for cap in (terms.rows_per_unit, terms.groups_per_unit):
        if cap is not None and (type(cap) is not int or not 1 <= cap <= CAP_MAX):
            raise SpecError("A cap per unit is not usable.", fix=f"Use 1 to {CAP_MAX}.")
    return terms


def _epsilon(known: Draft, terms: Terms, count: int, delta: Fraction, rows: int | None) -> Fraction:
    """The price of one of ``count`` blocks."""
    if terms.epsilon is not None:
        return terms.epsilon / count
    goal = Goal(
        within=terms.within,
        relative=terms.relative,
        confidence=terms.confidence or USUAL,
        rows=rows,
    )
    return epsilon_for(known, goal, delta=delta / count)


def _shares(query: Query) -> bool:
    """Whether each of its numbers may come from another draw."""
    return query.sample is None or len(query.l1s) == 1


def _all(events: Sequence[Event]) -> Event:
    if not events:
        return NothingEvent()
    return events[0] if len(events) == 1 else Sequential(events=tuple(events))


def _widths(margins: Margins, confidence: Number) -> list[HalfWidths]:
    return [None if each is None else tuple(each) for each in margins.at(confidence)]
