"""From columns and a price to fitted numbers: one allowance, charged first, drawn once.

    outcome = learn(matrix, Task("kmeans", {"clusters": 8}, algorithm), epsilon=1)

The same task about the same columns at the same price is found in the ledger instead, at no cost.
"""

import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from noisegate.curator.allowance import Allowance
from noisegate.curator.curator import digest
from noisegate.desk.job import Progress, Receipt, Recipe
from noisegate.desk.plan import Fact
from noisegate.exact import Number
from noisegate.learners.asking import DoorRows, RowsAsk, noises
from noisegate.learners.matrix import Matrix
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, decode, encode
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.query import Query
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

Fitted: TypeAlias = dict[str, NDArray[Any]]
Algorithm: TypeAlias = Callable[[RowsAsk], Fitted]
Options: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
REACH: Final = 1 << 12  # steps from the middle of the bounds to either end
_VERSION: Final = "learner/1"


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
@dataclass(frozen=True, slots=True, kw_only=True)
class FitExpected:
    """What would be learnt from which columns. How well depends on the rows."""

    learner: str
    columns: tuple[str, ...]

    def facts(self, confidence: Number) -> list[Fact]:  # noqa: ARG002 - as others
        """In words, one fact a line."""
        return [
            ("learns", self.learner),
            ("columns", ", ".join(self.columns)),
            ("error", "depends on the rows"),
        ]

    def margins(self, confidence: Number) -> dict[str, float | None]:  # noqa: ARG002 - as others
        """Of a model, none is known beforehand."""
        return {}

    def to_dict(self, confidence: Number) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        return {"learner": self.learner, "columns": list(self.columns)}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FitJob(Recipe[T, tuple[T, Receipt], FitExpected]):
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
) -> FitJob[T]:
    """The job of a learner. Two questions with one canonical text are one."""
    price = matrix.desk.price(epsilon)
    told = digest(json.dumps(rows.to_record(), sort_keys=True))
    record = {**question, "rows": told, **price.to_record()}
    return FitJob(
        sql=f"{', '.join(matrix.columns)} of {matrix.table}",
        epsilon=matrix.desk.epsilon(epsilon),
        expected=FitExpected(learner=learner, columns=matrix.columns),
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
    noises(asked.statistic_blocks, [Fraction(1)] * 2, price, asked.weight)  # too wide: refused now

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
        uses={"learning", *({"objective"} if task.options.get("method") == "objective" else ())},
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
    job = desk.known(
        lambda desk: learn_job(replace(matrix, rules=desk.rules), task, epsilon=epsilon)
    )
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
