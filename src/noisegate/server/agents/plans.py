"""Plans that were shown and can be asked: each is of one caller, one data set and one order."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from secrets import token_hex
from typing import Any, Final, final

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.errors import NotFound, SpecError
from noisegate.orders import order_from
from noisegate.server.access import now
from noisegate.server.people import Caller
from noisegate.server.store import Do, Store

MINUTES: Final = 15
_MOST: Final = 200  # of one person, so that nobody fills the store by planning


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An order with the price that was shown for it."""

    id: str
    dataset: str
    order: Order[Any, Expected]
    fresh: bool
    price: Fraction
    purpose: str | None


@final
class Plans:
    """Plans in the store, so that any replica knows them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(
        self, caller: Caller, dataset: str, order: Order[Any, Expected], *, fresh: bool,
        price: Fraction, purpose: str | None = None,
    ) -> str:  # fmt: skip
        """Remember what was shown to whom; the name by which it can be asked."""
        name = f"plan_{token_hex(8)}"
        until = datetime.now(UTC) + timedelta(minutes=MINUTES)
        said = order.to_dict() | ({} if purpose is None else {"purpose": purpose})
        row = (
            name, caller.name, caller.token or "", dataset, json.dumps(said),
            int(fresh), str(price), until.isoformat(timespec="milliseconds"),
        )  # fmt: skip

        def work(run: Do) -> None:
            run("DELETE FROM plans WHERE expires < ?", (now(),))
            run("INSERT INTO plans VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            run(
                "DELETE FROM plans WHERE person = ? AND id NOT IN "
                "(SELECT id FROM plans WHERE person = ? ORDER BY expires DESC LIMIT ?)",
                (caller.name, caller.name, _MOST),
            )

        self._store.do(work)
        return name

    def find(self, caller: Caller, name: str) -> Planned:
        """The plan of this caller with this name. Another's looks as if there was none."""
        row = self._store.one(
            "SELECT dataset, ordered, fresh, price FROM plans "
            "WHERE id = ? AND person = ? AND token = ? AND expires >= ?",
            name, caller.name, caller.token or "", now(),
        )  # fmt: skip
        if row is None:
            raise NotFound(
                "There is no such plan, or it has expired. Nothing was spent.",
                fix=f"Call plan_question, which is free, and use its plan_id within {MINUTES} "
                "minutes.",
                about="plan",
            )
        dataset, text, fresh, price = row
        said = json.loads(text)
        purpose = said.pop("purpose", None)
        return Planned(
            id=name, dataset=dataset, order=order_from(said), fresh=bool(fresh),
            price=Fraction(price), purpose=purpose,
        )  # fmt: skip


def require_price(planned: Planned, price: Fraction) -> None:
    """Refuse an order that has come to cost more than was shown."""
    if price > planned.price:
        raise SpecError(
            f"The price is now ε = {float(price):g}, and ε = {float(planned.price):g} was planned. "
            "Nothing was spent.",
            fix="Call plan_question again, which is free.",
            about="planned-price",
        )
