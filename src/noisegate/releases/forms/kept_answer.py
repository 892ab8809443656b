"""A release that is an answer: what a file keeps of it, and the answer that is read from it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from noisegate.desk.answer import Answer
from noisegate.desk.card import Card
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import Held
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import failure_of
from noisegate.mechanisms.quantiles.brackets import LADDER
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class HeldAnswer(Held):
    """What an answer holds, as a release of a kind of its own. Reading it again draws nothing."""

    held: Answer
    stated: Card | None = None

    def answer(self, rows: int | None = None) -> Answer:
        """The same as an answer has it: all rows, or the first."""
        if rows is None:
            return self.held
        widths = self.held.half_widths

        def cut(confidence: Number) -> Sequence[HalfWidths]:
            return [None if each is None else each[:rows] for each in widths(confidence)]

        return replace(self.held, table=self.held.table.slice(0, rows), half_widths=cut)

    @property
    def cost(self) -> ApproxDP:
        """What was charged now."""
        return self.held.cost

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.held.guarantee

    def parquet(self, confidence: Number) -> pa.Table:  # noqa: ARG002 - the record has the ±
        """The rows as they are."""
        return self.held.table


def record_of(answer: Answer) -> dict[str, Any]:
    """Its ± at the usual levels, and where the ledger has it; the rows are in the file."""
    noise = {} if answer.noise_widths is None else {"noise_margins": _listed(answer.noise_widths)}
    return {
        "margins": _listed(answer.half_widths),
        **noise,
        "questions": list(answer.questions),
        "requests": list(answer.request_ids),
        "caveats": list(answer.caveats),
    }


def answer_of(table: pa.Table, record: Mapping[str, Any], **more: Any) -> Answer:  # noqa: ANN401 - fields of an answer
    """The answer of a file: ``table`` is its rows; of other levels it has the next surer ±."""
    paid = record["standing"]

    def widths(margins: Mapping[str, Any]) -> Callable[[Number], list[HalfWidths]]:
        return lambda confidence: _kept(margins, confidence, table.num_columns)

    noise = record.get("noise_margins")
    return Answer(
        sql=paid["sql"],
        table=table.replace_schema_metadata(None),
        half_widths=widths(record.get("margins", {})),
        noise_widths=None if noise is None else widths(noise),
        cost=paid["cost"],
        remaining=None,
        guarantee=paid["guarantee"],
        request_ids=tuple(record["requests"]),
        questions=tuple(record["questions"]),
        caveats=tuple(record["caveats"]),
        practice=paid["practice"],
        **more,
    )


def _listed(widths: Callable[[Number], Sequence[HalfWidths]]) -> dict[str, Any]:
    return {
        str(failure): [None if each is None else list(each) for each in widths(1 - failure)]
        for failure in LADDER
    }


def _kept(margins: Mapping[str, Any], confidence: Number, columns: int) -> list[HalfWidths]:
    """The narrowest of the kept ± that are as sure as this; none where no file has them."""
    sure = [each for each in LADDER if each <= failure_of(confidence) and str(each) in margins]
    widths = margins[str(sure[0])] if sure else [None] * columns
    return [None if each is None else tuple(each) for each in widths]
