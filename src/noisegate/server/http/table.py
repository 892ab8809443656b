"""All calls: method, path, what is taken and given. Routes and their description come from here."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from starlette.responses import Response

import noisegate.server.http.answering as answering  # noqa: PLR0402 - read as answering.ask
from noisegate.server.http.asked import Asked

Work: TypeAlias = Callable[[Asked], Awaitable[Response]]
Gives: TypeAlias = Literal["json", "result", "text"]
TERMS: Final = (  # of SQL as plain text
    "choose", "confidence", "delta", "epsilon", "fresh", "groups_per_unit", "purpose", "relative",
    "rows", "rows_per_unit", "within",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. ``query`` are its parameters; ``takes_order`` says that it has a body."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    work: Work
    query: tuple[str, ...] = ()
    takes_order: bool = False
    runs: bool = False  # may say where to look later, and takes Prefer
    gives: Gives = "json"
    public: bool = False

    @property
    def name(self) -> str:
        """A name for programs that are made from the description."""
        return self.work.__name__

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.work.__doc__ or "").partition("\n")[0]


_AT: Final = ("confidence",)
_LISTED: Final = ("dataset", "limit")
CALLS: Final = (
    Call(method="GET", path="/datasets", work=answering.datasets),
    Call(method="GET", path="/datasets/{dataset}", work=answering.dataset, query=("purpose",)),
    Call(
        method="POST", path="/datasets/{dataset}/plan", work=answering.plan,
        query=(*TERMS, "practice"), takes_order=True,
    ),
    Call(
        method="POST", path="/datasets/{dataset}/orders", work=answering.ask,
        query=TERMS, takes_order=True, runs=True, gives="result",
    ),
    Call(
        method="POST", path="/datasets/{dataset}/practice", work=answering.practise,
        query=TERMS, takes_order=True, runs=True, gives="result",
    ),
    Call(method="GET", path="/orders/{id}", work=answering.run),
    Call(method="DELETE", path="/orders/{id}", work=answering.cancel),
    Call(
        method="GET", path="/orders/{id}/result", work=answering.result, query=_AT, runs=True,
        gives="result",
    ),
    Call(method="GET", path="/orders/{id}/card", work=answering.card_of, query=_AT),
    Call(method="GET", path="/orders/{id}/entries", work=answering.entries),
    Call(method="GET", path="/budgets", work=answering.budgets, query=("dataset",)),
    Call(method="GET", path="/history", work=answering.history, query=_LISTED),
    Call(method="GET", path="/releases", work=answering.releases, query=_LISTED),
    Call(
        method="GET", path="/releases/{id}", work=answering.release, query=_AT, runs=True,
        gives="result",
    ),
    Call(method="GET", path="/releases/{id}/card", work=answering.release_card, query=_AT),
    Call(method="POST", path="/releases/{id}/public", work=answering.publish),
    Call(method="DELETE", path="/releases/{id}/public", work=answering.withdraw),
    Call(method="GET", path="/public", work=answering.public_releases, public=True),
    Call(
        method="GET", path="/public/{id}", work=answering.public_release, query=_AT, public=True,
        gives="result",
    ),
    Call(
        method="GET", path="/public/{id}/card", work=answering.public_card, query=_AT, public=True
    ),
    Call(
        method="GET", path="/public/{id}/picture.svg", work=answering.public_picture, public=True,
        gives="text",
    ),
    Call(
        method="GET", path="/ledger/export", work=answering.ledger_export, query=("dataset",),
        gives="text",
    ),
    Call(method="GET", path="/ledger/head", work=answering.ledger_head, query=("dataset",)),
    Call(method="GET", path="/audit", work=answering.audit, query=(*_LISTED, "person")),
    Call(method="GET", path="/metrics", work=answering.metrics, gives="text"),
    Call(method="GET", path="/health", work=answering.health, public=True),
    Call(method="GET", path="/ready", work=answering.ready, public=True),
    Call(method="GET", path="/openapi.json", work=answering.openapi, public=True),
)  # fmt: skip
