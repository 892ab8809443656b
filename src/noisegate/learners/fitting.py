"""From columns and a price to fitted numbers: one allowance, charged first, drawn once.

    outcome = learn(matrix, Task("kmeans", {"clusters": 8}, algorithm), epsilon=1)

The same task about the same columns at the same price is found in the ledger instead, for nothing.
"""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias, TypeVar, final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.pure import promised
from noisegate.curator.allowance import Allowance
from noisegate.curator.curator import digest
from noisegate.desk.attempts import Attempts
from noisegate.desk.price import Price
from noisegate.errors import LedgerError
from noisegate.exact import Number
from noisegate.learners.asking import DoorRows, RowsAsk, noises
from noisegate.learners.matrix import Matrix
from noisegate.privacy.event import Event, decode, encode
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.query import Query
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

Progress: TypeAlias = Callable[[float, str], None]
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
@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a release cost: nothing, if it was found in the ledger."""

    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee
    request_id: str
    free: bool


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Fitted numbers, and what they cost. ``stopped``: an interruption left the rounds so far."""

    fitted: Fitted
    receipt: Receipt
    stopped: bool


def learn(
    matrix: Matrix,
    task: Task,
    *,
    epsilon: Number | None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Outcome:
    """The fitted numbers: from the ledger if they were learnt before, else for their price.

    An interruption (Ctrl-C) after the first round keeps what the rounds so far have learnt: what
    they used stays charged, the rest goes back.
    """
    price = price_of(matrix, epsilon)
    tally = matrix.rows(task.reach, codes=task.codes, number=task.number)
    asked = Query(tally, Statistic(Plain(), (One(), Linear())))
    noises(asked.statistic_blocks, [Fraction(1)] * 2, price, asked.weight)  # too wide: refused now

    def draw(allowed: Allowance) -> bytes:
        ask = DoorRows(allowed.whole, tally, price, progress=progress)
        stopped = False
        try:
            fitted = task.algorithm(ask)
        except KeyboardInterrupt:
            if ask.kept is None:
                raise
            fitted, stopped = ask.kept, True
        return _pack(fitted, encode(allowed.used()), stopped=stopped)

    (fitted, stopped), receipt = once(
        matrix,
        {"learner": _VERSION, "name": task.name, "options": task.options},
        Query(tally, Statistic(Plain(), (One(),))),
        price,
        draw=draw,
        read=_unpack,
        words="this model of",
        fresh=fresh,
    )
    if progress is not None and not receipt.free:
        progress(1.0, "stopped" if stopped else "done")
    return Outcome(fitted, receipt, stopped)


def once(  # noqa: PLR0913 - what is released, of which rows, for what, and how
    matrix: Matrix,
    question: Mapping[str, Any],
    rows: Query,
    price: Price,
    *,
    draw: Callable[[Allowance], bytes],
    read: Callable[[bytes], tuple[T, Event]],
    words: str,
    fresh: bool,
) -> tuple[T, Receipt]:
    """What a question gives: found in the ledger, else drawn within an allowance, charged first.

    Two questions with one canonical text are one. ``draw`` gives what is stored; ``read`` takes it
    apart into the result and what was used.
    """
    curator = matrix.curator
    told = digest(json.dumps(rows.to_record(), sort_keys=True))
    record = {**question, "rows": told, **price.to_record()}
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    attempts = Attempts(curator, text)
    found = None if fresh else attempts.found()
    if found is not None:
        request_id, stored = found
    else:
        with attempts.begin(price.event(), fresh=fresh) as allowed:
            stored = draw(allowed)
            allowed.finish(stored)
        request_id = allowed.request_id
    try:
        result, event = read(stored)
    except (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile):
        raise LedgerError("What was stored cannot be read.", fix="Use fresh=True.") from None
    promise = curator.loss_of(promised(event, price.event()))
    return result, Receipt(
        cost=curator.loss_of(event) if found is None else ApproxDP(0),
        remaining=curator.remaining(),
        guarantee=guarantee_of(promise, matrix.domains, words),
        request_id=request_id,
        free=found is not None,
    )


def price_of(matrix: Matrix, epsilon: Number | None) -> Price:
    """What an ε buys in this account, or the policy's usual one; of a sample, if it is of one."""
    curator, rules = matrix.curator, matrix.rules
    exact = rules.price(epsilon)
    accountant = curator.ledger.balance(curator.account).accountant
    return Price.of(exact, accountant=accountant, sample=rules.sample)


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
