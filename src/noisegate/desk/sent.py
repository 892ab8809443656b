"""An answer on its way: an Arrow table whose metadata state all that the answer states.

Whoever receives it holds the same answer. Error bars at another confidence are asked for where it
came from; that draws nothing and costs nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from noisegate.desk.answer import Answer
from noisegate.desk.noisy import HalfWidths
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.inert import json_text
from noisegate.ledger.entry import Entry
from noisegate.ledger.verify.anchor import Anchor, Log
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import Adjacency, PrivacyUnit

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "noisegate-answer/1"
_NAME: Final = b"noisegate.answer"
_UNREAD: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def sent(answer: Answer, confidence: Number = 0.95) -> "pa.Table":
    """The answer with its error bars: the margins of column ``n`` are beside it, as ``n_margin``.

    The metadata hold all else.
    """
    proven = answer.noise_widths
    record = {
        "format": FORMAT,
        "sql": answer.sql,
        "confidence": str(fraction(confidence)),
        "bars": [widths is not None for widths in answer.half_widths(confidence)],
        "noise": None if proven is None else [each and list(each) for each in proven(confidence)],
        "cost": loss_texts(answer.cost),
        "remaining": None if answer.remaining is None else loss_texts(answer.remaining),
        "guarantee": answer.guarantee.to_dict(),
        "request_ids": list(answer.request_ids),
        "questions": list(answer.questions),
        "caveats": list(answer.caveats),
        "reused": list(answer.reused),
        "practice": answer.practice,
        "unfollowed": list(answer.unfollowed()),
        "unsigned": list(answer.unsigned()),
        "amounts": list(answer.amounts()),
        "lower": list(answer.lower()),
        "head": None if answer.log.head is None else answer.log.head.to_dict(),
    }
    return answer.to_arrow(confidence).replace_schema_metadata({_NAME: json_text(record)})


def received(
    table: "pa.Table",
    again: "Callable[[Fraction], pa.Table]",
    entries: Callable[[], Sequence[Entry]] = tuple,
) -> Answer:
    """The answer that `sent` wrote.

    ``again`` gives the same answer at another confidence, ``entries`` those of its ledger.
    """
    try:
        record = _record(table)
        names, values, _ = _columns(table, record)
        found = {fraction(record["confidence"]): table}

        @lru_cache(maxsize=16)
        def widths(confidence: Fraction) -> tuple[Sequence[HalfWidths], Sequence[HalfWidths]]:
            at = found.get(confidence)
            at = again(confidence) if at is None else at
            told = _record(at)
            bars = tuple(_columns(at, told)[2])
            proven = told["noise"]
            return bars, bars if proven is None else [bar and tuple(bar) for bar in proven]

        has_loss = record["noise"] is not None
        return Answer(
            table=_table(names, values),
            half_widths=lambda confidence: widths(fraction(confidence))[0],
            noise_widths=(lambda confidence: widths(fraction(confidence))[1]) if has_loss else None,
            log=Log(None if (head := record["head"]) is None else Anchor.from_dict(head), entries),
            **_stated(record),
        )
    except _UNREAD:
        raise SpecError(
            "This is not an answer of noisegate.",
            fix="Ask a service of the same version.",
            about="answer",
        ) from None


def loss_texts(loss: ApproxDP) -> list[str]:
    """ε and δ, exact."""
    return [str(loss.epsilon), str(loss.delta)]


def loss_from(texts: Sequence[str]) -> ApproxDP:
    """What `loss_texts` wrote."""
    epsilon, delta = texts
    return ApproxDP(epsilon, delta)


def guarantee_from(record: Mapping[str, Any]) -> Guarantee:
    """What `Guarantee.to_dict` wrote, where the loss is (ε, δ)."""
    unit, *also = (PrivacyUnit(**each) for each in record["units"])
    return Guarantee(
        loss=ApproxDP(record["epsilon"], record["delta"]),
        unit=unit,
        scope=record["scope"],
        adjacency=Adjacency[record["adjacency"].upper()],
        also=tuple(also),
        zero_knowledge=record.get("zero_knowledge", False),
        added=ApproxDP(**record["added"]) if "added" in record else None,
    )


def _record(table: "pa.Table") -> dict[str, Any]:
    record: dict[str, Any] = json.loads((table.schema.metadata or {})[_NAME])
    if record["format"] != FORMAT:
        raise ValueError
    return record


def _stated(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an answer that do not depend on a confidence."""
    lists = ("request_ids", "questions", "caveats", "reused")
    later = ("unfollowed", "unsigned", "amounts", "lower")
    told = {name: tuple(record[name]) for name in (*lists, *later)}
    left = record["remaining"]
    return {
        "sql": record["sql"],
        "cost": loss_from(record["cost"]),
        "remaining": None if left is None else loss_from(left),
        "guarantee": guarantee_from(record["guarantee"]),
        "practice": record["practice"],
        **{name: told[name] for name in lists},
        **{name: lambda name=name: told[name] for name in later},
    }


def _columns(
    table: "pa.Table", record: Mapping[str, Any]
) -> "tuple[list[str], list[pa.ChunkedArray], list[HalfWidths]]":
    """The columns of an answer, by name, each with its error bars."""
    columns = iter(zip(table.column_names, table.columns, strict=True))
    found = [
        (*next(columns), tuple(next(columns)[1].to_pylist()) if has_bars else None)
        for has_bars in record["bars"]
    ]
    names, values, bars = zip(*found, strict=True) if found else ((), (), ())
    return list(names), list(values), list(bars)


def _table(names: Sequence[str], values: "Sequence[pa.ChunkedArray]") -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - only when asked for

    return pa.Table.from_arrays(list(values), names=list(names))
