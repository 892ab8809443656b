"""What leaves the service: released numbers in the form that a caller asks for.

Everything here holds released numbers only: turning them into bytes draws nothing, and is free.
"""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import pyarrow as pa
import pyarrow.parquet as pq

from noisegate.desk.answer import Answer
from noisegate.desk.card import Card
from noisegate.desk.display.numbers import TIMED
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.desk.release import Held
from noisegate.desk.sent import loss_texts, sent
from noisegate.desk.signed import RESULT, signed, signed_answer
from noisegate.errors import Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, field, fields, is_dataclass, replace
from noisegate.inert import json_text
from noisegate.ledger.signing import Signer
from noisegate.orders.results import record_of
from noisegate.privacy.loss import ApproxDP

UNPRICED: Final = ("caps", "bounds")  # kinds of orders whose results state no price
FORMS: Final = ("json", "arrow", "parquet", "csv")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an order made, and what was left afterwards; ``signer`` signs what can be signed.

    ``planned`` is the price of what does not state its own: see `UNPRICED`.
    """

    order: Order[Any, Expected]
    made: Any
    left: ApproxDP
    planned: ApproxDP | None = None
    signer: Signer | None = None
    bodies: dict[tuple[object, ...], bytes] = field(default_factory=dict, repr=False)  # as JSON

    @property
    def kind(self) -> str:
        """The kind of order."""
        return self.order.kind

    @property
    def answer(self) -> Answer | None:
        """It as a table with error bars; None where it is not a table."""
        if isinstance(self.made, Answer):
            return self.made
        return self.made.answer() if isinstance(self.made, Held) else None

    @property
    def price(self) -> ApproxDP:
        """What was charged for it now."""
        if (answer := self.answer) is not None:
            return answer.cost
        found = getattr(self.made, "cost", None) or getattr(self.made, "cost_", None)
        return found or self.planned or ApproxDP(0)

    @property
    def is_lasting(self) -> bool:
        """Whether it is a value from the ledger, which can be shown again for nothing.

        What was made of the clock is not: the same words may ask something else by now. Nor is what
        rests on no stored question: public rows may be others, and a price told by EXPLAIN, too.
        """
        held = getattr(self.made, "held", self.made)
        timed = TIMED in getattr(held, "caveats", ())
        return self._has_price and not timed and getattr(held, "questions", None) != ()

    @property
    def _has_price(self) -> bool:
        names = {each.name for each in fields(self.made)} if is_dataclass(self.made) else set()
        return {"cost", "remaining"} <= names

    def again(self, left: ApproxDP) -> "Result":
        """The same, shown again: at no cost, with what is left now."""
        made = replace(self.made, cost=ApproxDP(0), remaining=left)
        return replace(self, made=made, left=left)  # with the same bodies

    def at(self, cost: ApproxDP) -> "Result":
        """The same, as it was when it was paid for."""
        made = replace(self.made, cost=cost) if self._has_price else self.made
        return replace(self, made=made, planned=cost)

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for JSON."""
        return record_of(self.order, self.made, self.left, confidence)

    def to_json(self, confidence: Number = 0.95) -> bytes:
        """`to_dict` as text, and what is `exact`; signed where the service has a key.

        The last one is kept: who asks again, with as much left as before, is sent the same.
        """
        if (known := self.kept(confidence)) is None:
            known = self._to_json(confidence)
            self.bodies.clear()
            self.bodies[self._name(confidence)] = known
        return known

    def kept(self, confidence: Number) -> bytes | None:
        """The same where it is there already."""
        return self.bodies.get(self._name(confidence))

    def _name(self, confidence: Number) -> tuple[object, ...]:
        return fraction(confidence), self.price, self.left

    def _to_json(self, confidence: Number) -> bytes:
        record = self.to_dict(confidence) | {"exact": self.exact()}
        if self.signer is not None and (answer := self.answer) is not None:
            record = signed_answer(answer, record, self.signer)
        elif self.signer is not None:
            record = signed({"format": RESULT, "order": self.order.to_dict()} | record, self.signer)
        return json_text(record).encode()

    def card(self, confidence: Number = 0.95, *, public: bool = False) -> Card:
        """The card of a table; one that is ``public`` names nobody."""
        own = getattr(self.made, "card", None)
        made: Card = self._table().card(confidence) if own is None else own(confidence)
        made = made.nameless() if public else made
        return made if self.signer is None else made.signed(self.signer)

    def exact(self) -> dict[str, Any]:
        """What was paid and what is left in exact numbers, and whatever JSON alone does not hold.

        From it a client makes the same object that a gate gives.
        """
        found: dict[str, Any] = {
            "cost": loss_texts(self.price), "remaining": loss_texts(self.left),
        }  # fmt: skip
        if self.kind in ("statistic", "fit"):
            promise = self.made.guarantee if self.kind == "statistic" else self.made.guarantee_
            found["guarantee"] = promise.to_dict()
        if self.kind == "statistic":
            from noisegate.learners.expectations import means_record  # noqa: PLC0415 - when asked

            found["means"] = means_record(self.made.means)
        return found

    def to_arrow(self, confidence: Number = 0.95) -> bytes:
        """The table as an Arrow stream, error bars in columns of their own; see `desk.sent`."""
        table, sink = sent(self._table(), confidence), BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    def to_csv(self, confidence: Number = 0.95) -> bytes:
        """The table as comma-separated rows with error bars."""
        return self._table().to_csv(confidence=confidence).encode()

    def to_parquet(self, confidence: Number = 0.95) -> bytes:
        """The table as a Parquet file. That of a release is complete: its class can load it."""
        if isinstance(self.made, Held):
            with TemporaryDirectory(prefix="noisegate-") as folder:
                file = Path(folder) / "release.parquet"
                self.made.save(file, confidence, sign=self.signer)
                return file.read_bytes()
        sink = BytesIO()
        pq.write_table(self._table().to_arrow(confidence), sink)
        return sink.getvalue()

    def to_bytes(self, form: str, confidence: Number = 0.95) -> bytes:
        """It in one of `FORMS`."""
        match form:
            case "arrow":
                return self.to_arrow(confidence)
            case "parquet":
                return self.to_parquet(confidence)
            case "csv":
                return self.to_csv(confidence)
        return self.to_json(confidence)

    def _table(self) -> Answer:
        if (found := self.answer) is None:
            raise Unsupported(
                f"What {self.kind!r} gives is not a table.", fix="Ask for JSON.", about="form"
            )
        return found
