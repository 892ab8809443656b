"""The release card of what was learnt: price, promise, entries of the ledger, known errors.

A model is numbers of many kinds, so its card has no ± for each; what the estimator knows about its
error is said in words.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from noisegate.desk.display.numbers import percent
from noisegate.desk.job import Receipt
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.learners.matrix import Matrix

if TYPE_CHECKING:
    import pyarrow as pa

    from noisegate.desk.answer import HalfWidths
    from noisegate.desk.card import Card

_SHOWN: Final = 8  # numbers of one kind that a card lists


class Carded:
    """A model with a card, as long as it is where it was fitted."""

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
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

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
