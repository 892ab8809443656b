"""From columns and a price to fitted numbers: one allowance, charged first, drawn once.

    outcome = learn(matrix, Task("kmeans", {"clusters": 8}, algorithm), epsilon=1)

The same task about the same columns at the same price is found in the ledger instead, at no cost.
"""

import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.algebra.tally import Rows
from noisegate.curator.allowance import Allowance
from noisegate.curator.measurement import digest
from noisegate.desk.display.numbers import percent
from noisegate.desk.job import AdaptiveJob, Job, Progress, Receipt
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import Price
from noisegate.desk.terms.terms import USUAL, rest_of
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.learners.asking import DoorRows, RowsAsk, noise_variance, noises
from noisegate.learners.matrix import Matrix
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, decode, encode
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.query import Query, shape_of
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

if TYPE_CHECKING:
    from noisegate.desk.card import Card
    from noisegate.desk.noisy import HalfWidths


Fitted: TypeAlias = dict[str, NDArray[Any]]
Algorithm: TypeAlias = Callable[[RowsAsk], Fitted]
Options: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
REACH: Final = 1 << 12  # steps from the middle of the bounds to either end
_VERSION: Final = "learner/1"
# Noise of a column's mean, where its bounds are -1 and 1, at which models begin to be better than a
# constant: read off by eye from made-up tables, not fitted; of classifiers, a mean of each class.
_SLOPES: Final = 0.02
_MEANS: Final = 0.1
_DOUBLED: Final = 12  # how often a price is doubled to find one that is enough


@final
@dataclass(frozen=True, slots=True)
class Task:
    """What is learnt: a name, its plain options, and the program that asks and fits.

    ``algorithm`` sees rows through `RowsAsk` alone. ``codes``: keys as numbers. ``number``: the
    target is the last coordinate.
    """

    name: str
    options: Options
    algorithm: Algorithm
    codes: bool = False
    number: bool = False
    reach: int = REACH


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Fitted numbers, and what they cost. ``stopped``: an interruption left the rounds so far."""

    fitted: Fitted
    receipt: Receipt
    stopped: bool


@final
@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Scores on made-up rows: with noise, without it, and of a model that has learnt nothing."""

    measure: str
    rows: int
    score: float
    exact: float
    constant: float

    def __str__(self) -> str:
        return (
            f"{self.measure} of about {self.score:.2g} on {self.rows:,} made-up rows; "
            f"{self.exact:.2g} without noise, {self.constant:.2g} without learning"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"measure": self.measure, "rows": self.rows, "expected": self.score,
                "without_noise": self.exact, "without_learning": self.constant}  # fmt: skip


def no_score(model: str) -> SpecError:
    """The refusal to say what a model is worth."""
    return SpecError(
        f"No score of this {model} can be told beforehand.",
        fix="Plan it without rows.",
        about="score",
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FitExpected:
    """What would be learnt from which columns, and how many rows that takes, about.

    ``noise`` is the standard deviation, in rows, of the noise of a sum of each column from -1 to 1
    at the whole price; a model has other questions too. ``needed``: rows from which it is seen to
    be better than a constant, where the columns tell anything; ``known``: the most rows that there
    are, if the policy says so; ``enough``: an ε from which these are enough.
    """

    learner: str
    columns: tuple[str, ...]
    noise: float | None = None
    needed: int | None = None
    known: int | None = None
    enough: Fraction | None = None
    score: Rehearsed | None = None

    def facts(self, confidence: Number) -> list[Fact]:  # noqa: ARG002 - as others
        """In words, one fact a line."""
        found: list[Fact] = [("learns", self.learner), ("columns", ", ".join(self.columns))]
        if self.noise is None or self.needed is None:
            return [*found, ("error", "depends on the rows")]
        found.append(("noise", f"as of {self.noise:.3g} rows in the sum of each column"))
        words = f"depends on the rows: about a constant's with fewer than {self.needed:,} of them"
        if self.known is not None and self.known < self.needed and self.enough is not None:
            words += f"; with {self.known:,}, better from about ε = {float(self.enough):.2g}"
        score: list[Fact] = [] if self.score is None else [("score", str(self.score))]
        return [*found, ("error", words), *score]

    def margins(self, confidence: Number) -> dict[str, float | None]:  # noqa: ARG002 - as others
        """Of a model, none is known beforehand."""
        return {}

    def to_dict(self, confidence: Number) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        told = {"noise": self.noise, "rows_needed": self.needed}
        if self.enough is not None:
            told["enough_epsilon"] = float(self.enough)
        score = {} if self.score is None else {"score": self.score.to_dict()}
        return {"learner": self.learner, "columns": list(self.columns), **told, **score}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FitJob(AdaptiveJob[T, tuple[T, Receipt], FitExpected]):
    """What a program learns within an allowance: ``drawing`` gives what is kept.

    ``reading`` takes it apart into the result and what was used; ``words`` begin the promise.
    """

    kind: str = "model"
    matrix: Matrix
    drawing: Callable[[Allowance, Progress], bytes]
    reading: Callable[[bytes], tuple[T, Event]]
    words: str

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the matrix."""
        return self.matrix.domains

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About what was learnt."""
        return guarantee_of(loss, self.tables, self.words)

    def draw(self, allowed: Allowance, progress: Progress) -> bytes:
        """Run the program."""
        return self.drawing(allowed, progress)

    def read(self, stored: bytes) -> tuple[T, Event]:
        """What was kept."""
        return self.reading(stored)

    def result(self, content: T, receipt: Receipt) -> tuple[T, Receipt]:
        """The result with its receipt."""
        return content, receipt


def fit_job(  # noqa: PLR0913 - what is released, of which rows, for what, and how
    matrix: Matrix,
    learner: str,
    question: Mapping[str, Any],
    rows: Query,
    *,
    epsilon: Number | None,
    draw: Callable[[Allowance, Progress], bytes],
    read: Callable[[bytes], tuple[T, Event]],
    words: str,
    uses: Collection[str] = (),
    expected: FitExpected | None = None,
) -> FitJob[T]:
    """The job of a learner. Two questions with one canonical text are one."""
    price = matrix.desk.price(epsilon)
    told = digest(json.dumps(rows.to_record(), sort_keys=True))
    record = {**question, "rows": told, **price.to_record()}
    return FitJob(
        sql=f"{', '.join(matrix.columns)} of {matrix.table}",
        epsilon=matrix.desk.epsilon(epsilon),
        expected=expected or FitExpected(learner=learner, columns=matrix.columns),
        uses=frozenset(uses),
        price=price,
        question=json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        matrix=matrix,
        drawing=draw,
        reading=read,
        words=words,
    )


def learn_job(matrix: Matrix, task: Task, *, epsilon: Number | None) -> FitJob[tuple[Fitted, bool]]:
    """What a task asks of a matrix; what it cannot do is refused here, at no cost.

    An interruption (Ctrl-C) after the first round keeps what the rounds so far have learnt: what
    they used stays charged, the rest goes back.
    """
    price = matrix.desk.price(epsilon)
    tally = matrix.rows(task.reach, codes=task.codes, number=task.number)
    asked = Query(tally, Statistic(Plain(), (One(), Linear())))
    _blur(asked, price)  # too wide: refused now

    def draw(allowed: Allowance, progress: Progress) -> bytes:
        objective = "objective" in matrix.curator.allowed
        ask = DoorRows(allowed.whole, tally, price, progress=progress, objective=objective)
        stopped = False
        try:
            fitted = task.algorithm(ask)
        except KeyboardInterrupt:
            if ask.kept is None:
                raise
            fitted, stopped = ask.kept, True
        return _pack(fitted, encode(allowed.used()), stopped=stopped)

    return fit_job(
        matrix,
        task.name,
        {"learner": _VERSION, "name": task.name, "options": task.options},
        Query(tally, Statistic(Plain(), (One(),))),
        epsilon=epsilon,
        draw=draw,
        read=_unpack,
        words="this model of",
        expected=_expected(matrix, task, asked, epsilon),
        uses={"learning", *({"objective"} if task.options.get("method") == "objective" else ())},
    )


def _blur(asked: Query, price: Price) -> float:
    """The deviation of the noise of a sum of coordinates from -1 to 1, in rows."""
    tally = asked.tally
    assert isinstance(tally, Rows)  # noqa: S101 - what a matrix gives
    _, noise = noises(asked.statistic_blocks, [Fraction(1)] * 2, price, asked.weight)
    return float(noise_variance(noise) ** 0.5) / shape_of(tally).reach / (
        tally.whole * float(price.sample or 1)
    )  # fmt: skip


def _expected(matrix: Matrix, task: Task, asked: Query, epsilon: Number | None) -> FitExpected:
    """What a price lets be seen, by public numbers alone."""
    classes = 1 if matrix.classes is None or task.number else len(matrix.classes.keys)
    known = matrix.desk.rules.rows_max.get(matrix.table)

    def needed(price: Price) -> int:
        return ceil(_blur(asked, price) * classes / (_SLOPES if task.number else _MEANS))

    paid = matrix.desk.epsilon(epsilon)
    rows = needed(matrix.desk.price(epsilon))
    more = [paid * 2**step for step in range(1, _DOUBLED)] if known and known < rows else []
    enough = next((e for e in more if needed(matrix.desk.price(e)) <= (known or 0)), None)
    return FitExpected(
        learner=task.name, columns=matrix.columns, noise=_blur(asked, matrix.desk.price(epsilon)),
        needed=rows, known=known, enough=enough,
    )  # fmt: skip


def known_job(
    matrix: Matrix, task: Task, *, epsilon: Number | None, fresh: bool
) -> Job[tuple[Fitted, bool], tuple[tuple[Fitted, bool], Receipt], FitExpected]:
    """The job of a fit, or of the one that was paid for."""
    if (part := rest_of(epsilon)) is not None and not fresh:
        desk = matrix.desk
        epsilon = desk.rest(
            part, lambda paid: learn_job(matrix, task, epsilon=paid).is_paid(desk.curator)
        )
    return matrix.desk.known(
        lambda desk: learn_job(replace(matrix, rules=desk.rules), task, epsilon=epsilon),
        fresh=fresh,
    )


def learn(
    matrix: Matrix,
    task: Task,
    *,
    epsilon: Number | None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Outcome:
    """The fitted numbers: from the ledger if they were learnt before, else for their price."""
    desk = matrix.desk
    job = known_job(matrix, task, epsilon=epsilon, fresh=fresh)
    (fitted, stopped), receipt = desk.run(job, fresh=fresh, progress=progress)
    return Outcome(fitted, receipt, stopped)


def _pack(fitted: Fitted, event: Any, *, stopped: bool) -> bytes:  # noqa: ANN401 - JSON
    held = io.BytesIO()
    facts = json.dumps({"event": event, "stopped": stopped})
    named: dict[str, Any] = {**fitted, "facts_": np.frombuffer(facts.encode(), np.uint8)}
    np.savez(held, **named)
    return held.getvalue()


def _unpack(stored: bytes) -> tuple[tuple[Fitted, bool], Event]:
    with np.load(io.BytesIO(stored), allow_pickle=False) as held:
        fitted = {name: held[name] for name in held.files}
    facts = json.loads(fitted.pop("facts_").tobytes())
    return (fitted, facts["stopped"]), decode(facts["event"])


_SHOWN: Final = 8  # numbers of one kind that a card lists


class Carded:
    """A model with a card, as long as it is where it was fitted: what it cost and promises.

    A model is numbers of many kinds, so its card has no ± for each; what the estimator knows about
    its error is said in words.
    """

    cost_: Any
    remaining_: Any
    guarantee_: Any
    _receipt: Receipt
    _asked_of: str

    def _paid(self, receipt: Receipt, matrix: Matrix) -> None:
        """State what it cost and promises, and keep what the card is made of."""
        self.cost_, self.remaining_ = receipt.cost, receipt.remaining
        self.guarantee_ = receipt.guarantee
        self._receipt, self._asked_of = receipt, f"{', '.join(matrix.columns)} of {matrix.table}"

    def card(self, confidence: Number = USUAL) -> "Card":
        """The release card: what was learnt and guaranteed, checkable against the ledger."""
        receipt, name = getattr(self, "_receipt", None), type(self).__name__
        return card_of(
            receipt, f"{name}: {getattr(self, '_asked_of', '')}", pa.table({"model": [name]}),
            (None,), tuple(_errors(self, confidence)), confidence,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """All but the way to the ledger, which stays where that is."""
        state = super().__getstate__()
        return {name: held for name, held in dict(state or {}).items() if name != "_receipt"}  # type: ignore[call-overload]


def card_of(
    receipt: Receipt | None,
    sql: str,
    table: "pa.Table",
    widths: Sequence["HalfWidths"],
    words: tuple[str, ...],
    confidence: Number,
) -> "Card":
    """The card of released numbers with this receipt, and their ± at the confidence."""
    from noisegate.desk.answer import Answer  # noqa: PLC0415 - only when asked for
    from noisegate.desk.card import card  # noqa: PLC0415

    if receipt is None or not receipt.question:
        raise SpecError(
            "This was learnt elsewhere, or read from a file.",
            fix="Ask for the card where the gate is; the same fit is found there at no cost.",
            about="card",
        )
    made = Answer(
        sql=sql, table=table, half_widths=lambda _: widths, caveats=words, cost=receipt.cost,
        remaining=receipt.remaining, guarantee=receipt.guarantee, questions=(receipt.question,),
        request_ids=(receipt.request_id,), practice=receipt.practice, log=receipt.log,
    )  # fmt: skip
    return card(made, confidence)


def _errors(model: Any, confidence: Number) -> Iterator[str]:  # noqa: ANN401 - an estimator
    """What is known about the error, in words."""
    within = getattr(model, "within", None)
    if callable(within):
        yield f"Counts are within ± {_numbers(within(confidence))} at {percent(confidence)}."
    for name, sure in (("within_", f"within ±, at {percent(USUAL)}"), ("error_", "known error")):
        held = getattr(model, name, {})
        for part, value in (held if isinstance(held, Mapping) else {"all": held}).items():
            yield f"{part}: {sure}: {_numbers(value)}."


def _numbers(value: Any) -> str:  # noqa: ANN401 - a number or an array of them
    flat = np.asarray(value, np.float64).ravel()
    more = "" if flat.size <= _SHOWN else f" and {flat.size - _SHOWN} more"
    return ", ".join(f"{each:.4g}" for each in flat[:_SHOWN]) + more
