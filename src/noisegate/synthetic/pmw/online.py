"""Private multiplicative weights: thousands of counting questions, paying only for surprises.

    start      noisy tables of all pairs of columns make a first model of the cells
    ask        the model answers; the door says only whether that is near enough (sparse vector)
    surprise   if not, a fresh noisy count is bought, and the model learns it
    end        after the last surprise the model still answers, without a promise

Private multiplicative weights are Hardt's and Rothblum's [HR10]. Here the model starts from tables
instead of nothing, learns a count by the exact projection and goes through all that it knows again,
and the two ends of the comparison have noise of their own, which halves that of each question.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from hashlib import sha256
from itertools import combinations
from math import ceil, floor, prod, sqrt
from threading import Lock
from typing import Any, ClassVar, Final, TypedDict, final

import numpy as np

from noisegate.accounting.pure import promised
from noisegate.curator.measurement import digest
from noisegate.curator.surprises import CELLS_MAX, Surprises, Told, is_pure, open_surprises
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress
from noisegate.desk.order import Columns, Order
from noisegate.desk.plan import Plan
from noisegate.desk.terms.price import Price, variance_of
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.event import Event, NothingEvent, PoissonSampled, Sequential
from noisegate.privacy.guarantee import guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.ask.asking import DoorAsk
from noisegate.releases.ask.transcript import pack
from noisegate.releases.fit.residuals import Question
from noisegate.releases.forms.table import TableRelease
from noisegate.sql.laws.sampling import Sampling, sampling_of
from noisegate.synthetic.basis import grid_basis
from noisegate.synthetic.evidence import known_of, lost
from noisegate.synthetic.model.model import Evidence, whole_total
from noisegate.synthetic.pmw.bargain import SURPRISES_MAX, Bargain, Wish, for_two
from noisegate.synthetic.pmw.cells_model import CellsModel, cells_table
from noisegate.synthetic.pmw.many import ManyAnswer, ManyBalance, ManyExpected, named
from noisegate.synthetic.questions import CountingGrid, Mask, counting_grid, matrix_of
from noisegate.synthetic.recipes.shared import evidence_of

QUESTIONS_MAX: Final = 10**9
_AT_ONCE: Final = 64  # questions that are compared together
_SWEEPS: Final = (60, 12)  # through all that is known, at the start and after a surprise
_WORK_MAX: Final = 1 << 31  # cells times tables of a fit


class ManyTerms(TypedDict, total=False):
    """What is said of a session; see `Gate.many`."""

    table: str | None
    workload: Sequence[str]
    epsilon: Number | None
    questions: int
    within: Number | None
    surprises: int | None
    rows: int | None
    start: int
    confidence: Number
    rows_per_unit: int | None
    evidence: Sequence[object]
    sure: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManyOrder(Order["AbstractContextManager[ManySession]", "ManyExpected"]):
    """A session of many counting questions. Each run is a session of its own.

    Attributes:
        columns: What questions can be about: a bin width, a list of edges, a unit of time, or None
            for declared keys; left out, what the ``workload`` needs.
        table: Where there are several.
        workload: A list of the questions.
        epsilon: The price of all of it.
        questions: How many the promise is for.
        within: How far answers may be off.
        surprises: Or how many are answered with noise of their own.
        rows: A public number of rows.
        start: Of how many columns the first tables are.
        confidence: How surely all answers hold together.
        rows_per_unit: Contribution bound: how many rows of one unit count.
        evidence: Releases and answers that are out already.
        sure: Promise answers to the last question, for the public number of rows.
    """

    kind: ClassVar[str] = "many"
    columns: Columns | None = None
    table: str | None = None
    workload: Sequence[str] = ()
    epsilon: Number | None = None
    questions: int = 10_000
    within: Number | None = None
    surprises: int | None = None
    rows: int | None = None
    start: int = 2
    confidence: Number = Fraction(95, 100)
    rows_per_unit: int | None = None
    evidence: Sequence[object] = ()
    sure: bool = False

    def plan(self, desk: Desk, *, fresh: bool = False) -> "Plan[ManyExpected]":  # noqa: ARG002, D102 - always anew
        return self._session(desk).plan

    def run(  # noqa: D102 - see Order
        self,
        desk: Desk,
        *,
        fresh: bool = False,  # noqa: ARG002 - always anew
        progress: Progress | None = None,
    ) -> "AbstractContextManager[ManySession]":
        return self._session(desk).open(progress)

    def _session(self, desk: Desk) -> "Many":
        return Many(desk, self)


@final
class ManySession:
    """Answers counting questions. Made by `Gate.many`; closed when that is left."""

    def __init__(self, desk: "Many", door: Surprises, model: CellsModel, start: Event) -> None:
        self.plan, self._desk, self._door = desk.plan, desk, door
        self._model, self._start = model, start
        self._known: dict[bytes, ManyAnswer] = {}
        self._asked = 0
        self._lock = Lock()

    def sql(self, sql: str) -> ManyAnswer:
        """Answer ``SELECT COUNT(*) FROM t WHERE …``; the same question again is the same answer."""
        (answer,) = self.answers([sql])
        return answer

    def count(self, **where: Any) -> ManyAnswer:  # noqa: ANN401 - as people write it
        """The same without SQL: ``session.count(age=(20, 39), ward=["north", "west"])``."""
        words = ", ".join(f"{name}={value!r}" for name, value in where.items())
        (answer,) = self._answers([f"count({words})"], [self._desk.grid.box(where)], None)
        return answer

    def answers(
        self, questions: Sequence[str], progress: Progress | None = None
    ) -> list[ManyAnswer]:
        """Answer many, in order. What cannot be expressed is refused before any is asked."""
        masks = [self._desk.grid.mask(sql) for sql in questions]
        return self._answers(questions, masks, progress)

    def _answers(
        self, questions: Sequence[str], masks: Sequence[Mask], progress: Progress | None
    ) -> list[ManyAnswer]:
        names = [sha256(np.packbits(mask).tobytes()).digest() for mask in masks]
        new = dict(zip(names, masks, strict=True))  # each once
        with self._lock:  # one model, one order of questions
            todo = [(name, mask) for name, mask in new.items() if name not in self._known]
            done = 0
            while done < len(todo):
                if progress is not None:
                    progress(done / len(todo), f"{self.balance}")
                done += self._ask(todo[done : done + _AT_ONCE])
        found = zip(questions, names, strict=True)
        return [named(sql, self._known[name]) for sql, name in found]

    def _ask(self, some: Sequence[tuple[bytes, Mask]]) -> int:
        """Ask up to the first surprise; how many were answered."""
        name, mask = some[0]
        if not mask.any():  # a public fact
            self._known[name] = ManyAnswer(
                sql="", value=0, margin=0, free=True, caveats=self._desk.caveats
            )
            return 1
        some = some[: next((i for i, (_, each) in enumerate(some) if not each.any()), len(some))]
        guesses = np.rint([self._model.cells[each].sum() for _, each in some]).astype(np.int64)
        room = min(len(some), self.plan.expected.questions - self._asked) if self._door.left else 0
        if room <= 0:
            for (key, _), guess in zip(some, guesses.tolist(), strict=True):
                self._known[key] = self._answer(guess, None, free=True)
            return len(some)
        told = self._door.ask(
            matrix_of([each for _, each in some[:room]], mask.size), guesses[:room]
        )
        bargain = self._desk.bargain
        for (key, _), guess in zip(some[: told.near], guesses.tolist(), strict=False):
            self._known[key] = self._answer(guess, bargain.within, free=True)
        self._asked += told.near
        if told.number is None:
            return told.near
        key, surprising = some[told.near]
        self._known[key] = self._answer(told.number, bargain.number_within, free=False)
        self._asked += 1
        self._learn(surprising, int(guesses[told.near]), told)
        return told.near + 1

    def _learn(self, mask: Mask, guess: int, told: Told) -> None:
        """What a surprise says: the number, and that the guess was far off on this side.

        A session that promises to last learns what is certain; else the number's standard error.
        """
        bargain, number = self._desk.bargain, told.number or 0
        spread = bargain.number_within if self.plan.expected.endless else self._desk.deviation
        low, high = number - spread, number + spread
        if self.plan.expected.endless:
            far = bargain.spec.band.threshold - bargain.slack
            low = max(low, guess + far) if told.side > 0 else low
            high = min(high, guess - far) if told.side < 0 else high
        self._model.learn_count(mask, low, high)
        self._model.fit(_SWEEPS[1])

    def _answer(self, count: int, margin: int | None, *, free: bool) -> ManyAnswer:
        grid = self._desk.grid.grid
        value = max(0, count) * grid.grain
        rounded = round(value) if grid.whole else float(value)
        off = abs(Fraction(rounded) - value)
        return ManyAnswer(
            sql="",
            value=rounded,
            margin=None
            if margin is None
            else self._desk.widened(rounded, float(margin * grid.grain + off)),
            free=free,
            caveats=self._desk.caveats,
            lower=self._desk.cut,
        )

    @property
    def _used(self) -> Event:
        return Sequential(events=(self._start, self._door.used()))

    @property
    def balance(self) -> ManyBalance:
        """Questions, surprises, and what is spent so far if it ended now."""
        return ManyBalance(
            asked=self._asked,
            surprises=self._door.answered,
            left=self._door.left,
            spent=self._desk.spent(self._used),
        )

    @property
    def model(self) -> TableRelease:
        """The present model as a released table: to be asked, drawn and saved for ever, free."""
        return self._desk.table(self._model, self._used, f"{self.balance}", self._door)

    def finish(self) -> None:
        """Keep the model in the ledger; the session closes after it."""
        facts = {"many": 1, "asked": self._asked, "surprises": self._door.answered}
        self._door.finish(pack(facts, [self._model.cells], ()))


@final
class Many:
    """A session that can be paid for: nothing about it is left to be refused but its price."""

    def __init__(self, desk: Desk, order: ManyOrder) -> None:
        curator, rules, sure = desk.curator, desk.rules, order.sure
        self._desk, self.curator, self._rules, self._order = desk, curator, rules, order
        curator.require_allowed({"many"})
        self.grid = counting_grid(
            curator.tables, table=order.table, columns=order.columns,
            questions=order.workload, rows_per_unit=order.rows_per_unit,
        ).sampled(rules.sample)  # fmt: skip
        _require(order, self.grid)
        if rules.sample is not None and (sure or order.within is not None):
            raise SpecError(
                "The sampling error depends on the counts, so no error can be promised beforehand.",
                fix="Give surprises instead of within or sure.",
            )
        if rules.sample is not None and not is_pure(curator):
            raise Unsupported(
                "Many questions about a sample need an account that adds up ε.",
                fix="Use all rows.",
                about="accountant",
            )
        if order.evidence and (sure or rules.sample is not None):
            raise SpecError(
                "Evidence is noisy, and about all rows.",
                fix="Leave out evidence, or sure and the sample.",
                about="evidence",
            )
        self._known = list[Evidence]()
        if order.evidence:
            self._known = known_of(order.evidence, grid_basis(self.grid.grid))
        self._epsilon = desk.epsilon(order.epsilon)
        self.price = for_two(desk.price(self._epsilon), start=order.start > 0)
        self.bargain = self._bargain()
        self.plan = self._plan()

    @property
    def _wish(self) -> Wish:
        return Wish(
            cells=self.grid.grid.query,
            price=self.price,
            pure=not self.price.gaussian and is_pure(self.curator),
            questions=self._order.questions,
            confidence=1 - self._failure,
        )

    @property
    def _failure(self) -> Fraction:
        """Of all answers, by the noise; of a sample, sampling has as much."""
        failure = failure_of(self._order.confidence)
        return failure if self._rules.sample is None else failure / 2

    @property
    def sampling(self) -> Sampling | None:
        """What sampling adds to the error of answers."""
        sample, grid = self._rules.sample, self.grid.grid
        return None if sample is None else sampling_of(sample, grid.moved, grid.grain)

    def widened(self, value: float, margin: float) -> int:
        """The ± about all rows: each question has an equal part of what sampling may fail."""
        if self.sampling is None:
            return ceil(margin)
        failure = float(self._failure) / self._order.questions
        found = self.sampling.widened(np.array([value]), np.array([margin]), failure)
        return ceil(float(found[0]))

    def _bargain(self) -> Bargain:
        order, grain = self._order, self.grid.grid.grain
        if order.sure:
            if order.rows is None or order.within is not None or order.surprises is not None:
                raise SpecError(
                    "The error promised for the last question is computed from a public number of "
                    "rows.",
                    fix="Give rows, and neither within nor surprises.",
                )
            return self._wish.endless(floor(order.rows / grain))
        if order.within is not None:
            wanted = floor(positive(order.within, name="within") / grain)
            return self._wish.promised(wanted, start=order.start > 0)
        return self._wish.usual(order.surprises, start=order.start > 0)

    def _plan(self) -> Plan[ManyExpected]:
        bargain, order, grain = self.bargain, self._order, float(self.grid.grid.grain)
        price, fits = self.curator.price(self.event)
        last = None
        if order.rows is not None and not order.sure and self._rules.sample is None:
            last = self._wish.endless(floor(order.rows / self.grid.grid.grain)).within * grain
        expected = ManyExpected(
            columns=tuple(axis.name for axis in self.grid.grid.axes),
            cells=self.grid.cells,
            questions=order.questions,
            surprises=bargain.spec.most,
            within=bargain.within * grain,
            number_within=bargain.number_within * grain,
            confidence=1 - failure_of(order.confidence),
            endless=order.sure,
            sure_within=last,
            sample=self._rules.sample,
        )
        return Plan(
            kind="many",
            sql=self.grid.grid.sql,
            epsilon=self._epsilon,
            price=price,
            fits=fits,
            expected=expected,
            notes=(*self.grid.grid.caveats, *self._desk.in_part(self.event)),
        )

    @property
    def cut(self) -> bool:
        """Whether a contribution bound may leave out some of a unit's rows."""
        return self.grid.grid.cut

    @property
    def caveats(self) -> tuple[str, ...]:
        """What is to be known about each answer: which rows are not counted."""
        part = self.curator.part
        return (*self.grid.grid.caveats, *(() if part is None else (part.words,)))

    @property
    def deviation(self) -> float:
        """The standard error of a surprise's number."""
        return sqrt(variance_of(self.bargain.spec.number))

    @property
    def start(self) -> Event | None:
        """What the first tables are."""
        share = self.bargain.start
        return self.price.event(share) if share else None

    @property
    def event(self) -> Event:
        """All of it."""
        whole_session, sample = self.bargain.spec.event(), self._rules.sample
        if sample is not None:
            whole_session = PoissonSampled(event=whole_session, probability=sample)
        first = self.start
        return whole_session if first is None else Sequential(events=(first, whole_session))

    def spent(self, used: Event) -> ApproxDP:
        """What is spent if it ended now: in a part, all of it, since nothing is given back."""
        return self.curator.loss_of(used if self.curator.part is None else self.event)

    @contextmanager
    def open(self, progress: Progress | None = None) -> Iterator[ManySession]:
        """Pay, measure the first tables, and open the session."""
        curator = self.curator
        curator.ledger.require_room(curator.paying(self.event), account=curator.account)
        request = curator.fresh_id()
        model, used = self._first_model(request, progress)
        with open_surprises(
            curator, self.bargain.spec, name=f"after start {request}", request_id=request,
            sample=self._rules.sample,
        ) as door:  # fmt: skip
            session = ManySession(self, door, model, used)
            try:
                yield session
            finally:
                session.finish()

    def _first_model(self, request: str, progress: Progress | None) -> tuple[CellsModel, Event]:
        """The model of noisy tables of single columns or pairs; else of the given rows."""
        grid, event = self.grid.grid, self.start
        if event is None:
            return self._fitted((), float((self._order.rows or 0) / grid.grain)), NothingEvent()
        axes = range(len(grid.shape))
        sets = list(combinations(axes, min(self._order.start, len(grid.shape))))
        blocks = [Question(each).block(grid.shape, tuple(axes)) for each in sets]
        question = json.dumps(
            {"many start": 1, "of": grid.to_record(), "sets": sets, "for": request},
            sort_keys=True,
        )
        with self.curator.allowance(
            event, question=question, request_id=f"many start {digest(question)}"
        ) as allowed:
            price = Price(
                amount=self.bargain.start * self.price.amount, gaussian=self.price.gaussian
            )
            ask = DoorAsk(allowed.whole, grid.query, price, shape=grid.shape)
            found = ask.sums(blocks, [Fraction(1, len(sets))] * len(sets))
            used = allowed.used()
        if progress is not None:
            progress(0.0, "fitting the first model")
        first = [evidence_of(axes, noisy) for axes, noisy in zip(sets, found, strict=True)]
        return self._fitted(first, whole_total([*first, *self._known])), used

    def _fitted(self, first: Sequence[Evidence], total: float) -> CellsModel:
        """The model of the first tables and of what is out already."""
        model = CellsModel(self.grid.grid.shape, total)
        for each in (*first, *self._known):
            if each.axes:
                model.learn_table(each.axes, each.values, sqrt(each.variance), each.labels)
        model.settle(*_SWEEPS)
        return model

    def table(self, model: CellsModel, used: Event, words: str, door: Surprises) -> TableRelease:
        """A model as a released table."""
        curator, grid = self.curator, self.grid.grid
        loss = curator.loss_of(promised(used, self.event)) + lost(self._order.evidence)
        receipt = self._desk.receipt(
            used, guarantee=guarantee_of(loss, grid.query.tables), question=door.question,
            request_id=door.request_id,
        )  # fmt: skip
        return cells_table(
            grid, model.cells, method="many", price=self.price,
            words=(f"the model of a session: {words}",), standing=receipt.standing,
        )  # fmt: skip


def _require(order: ManyOrder, grid: CountingGrid) -> None:
    """Refuse what has no meaning, before anything is paid."""
    if grid.cells > CELLS_MAX:
        raise Unsupported(
            f"There would be {grid.cells:,} cells, more than {CELLS_MAX:,}.",
            fix="Use wider bins or fewer columns.",
        )
    for name, value, least, most in (
        ("questions", order.questions, 1, QUESTIONS_MAX),
        ("surprises", order.surprises, 1, SURPRISES_MAX),
        ("rows", order.rows, 1, 1 << 50),
        ("start", order.start, 0, 3),
    ):
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise SpecError(
                f"{name} is {value!r}.", fix=f"Use a whole number of at least {least:,}."
            )
    if order.start == 0 and order.rows is None:
        raise SpecError(
            "The model has nothing to start from.", fix="Give rows, a public count, or start=1."
        )
    failure_of(fraction(order.confidence, name="confidence"))
    sets = prod((len(grid.grid.shape),) * order.start)
    if sets * grid.cells > _WORK_MAX:
        raise Unsupported("The first model would be too large.", fix="Use start=1, or wider bins.")
