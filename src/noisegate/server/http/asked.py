"""One request: who asks, what is wanted in which form, and the order in its body."""

import json
import re
from asyncio import Future, Task, get_running_loop, timeout
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast, final

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.desk.signed import members, no_constant
from noisegate.errors import SpecError, UserError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, field
from noisegate.mechanisms.base import failure_of
from noisegate.orders import SqlOrder, order_from
from noisegate.server.people import Caller
from noisegate.server.refusals import no_such
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.store import Do, Store
from noisegate.server.views import View

P = ParamSpec("P")
T = TypeVar("T")
_Wished: TypeAlias = "tuple[Callable[[Do], Any], Future[Any]]"


@final
class Strokes:
    """Work in the store's transactions, for one event loop: what comes at a time is one stroke.

    A request that only has to be written down takes no thread of its own: what comes while the
    disk is being waited for is the next stroke.
    """

    def __init__(self, store: Store, limiter: CapacityLimiter) -> None:
        self._store, self._limiter = store, limiter
        self._waiting: list[_Wished] = []
        self._writing: Task[None] | None = None

    async def do(self, work: Callable[[Do], T]) -> T:
        """Do it, and come back when it is on the disk."""
        loop = get_running_loop()
        made: Future[Any] = loop.create_future()
        self._waiting.append((work, made))
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        return cast("T", await made)

    async def _write(self) -> None:
        try:
            while self._waiting:
                stroke, self._waiting = self._waiting, []
                for (_, made), each in zip(stroke, await self._written(stroke), strict=True):
                    if made.done():  # nobody waits any more
                        continue
                    if isinstance(each, Exception):
                        made.set_exception(each)
                    else:
                        made.set_result(each)
        finally:
            self._writing = None

    async def _written(self, stroke: "list[_Wished]") -> list[Any]:
        works = [work for work, _ in stroke]
        try:
            return await to_thread.run_sync(self._store.do_all, works, limiter=self._limiter)
        except Exception as error:  # noqa: BLE001 - told to all of them
            return [error] * len(stroke)


BODY_MAX: Final = 1 << 20  # bytes
DEPTH_MAX: Final = 32  # of JSON
WAIT: Final = 10.0  # seconds, unless the caller says otherwise
WAIT_MAX: Final = 60.0
_SLOW: Final = 30.0  # seconds for a whole body
_RUN_ID: Final = re.compile(r"[0-9a-f]{32}")
_FORMS: Final[Mapping[str, str]] = {
    "application/json": "json",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "text/csv": "csv",
}
TYPES: Final = {form: kind for kind, form in _FORMS.items()}
_PLAIN: Final = (  # kinds that are JSON alone
    "choose", "auction", "score", "caps", "bounds", "statistic", "fit",
)  # fmt: skip
_WHOLE: Final = ("rows_per_unit", "groups_per_unit", "rows")  # terms of SQL that are whole numbers


class Refused(UserError, code="request"):  # noqa: N818 - the name is the refusal
    """A request that HTTP itself has a status for."""

    def __init__(self, status: int, problem: str, *, fix: str, about: str) -> None:
        super().__init__(problem, fix=fix, about=about)
        self.status = status


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A request of somebody who was recognised; of a public call, of anybody."""

    service: Service
    request: Request
    limiter: CapacityLimiter
    starts: CapacityLimiter
    strokes: Strokes
    known: frozenset[str]  # parameters of the call
    caller: Caller | None = None
    seen: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.request.query_params.multi_items():
            if name not in self.known or name in self.seen:
                raise SpecError(
                    f"The parameter {name!r} is said twice."
                    if name in self.seen
                    else f"There is no parameter {name!r} here.",
                    fix=f"Use {', '.join(sorted(self.known))}." if self.known else "Leave it out.",
                    about="parameter",
                )
            self.seen[name] = value

    @property
    def by(self) -> Caller:
        """Who asks."""
        assert self.caller is not None  # noqa: S101 - of calls that are not public
        return self.caller

    async def off(self, work: Callable[P, T], *args: P.args, **terms: P.kwargs) -> T:
        """Work that takes a while, in a thread."""
        return await to_thread.run_sync(lambda: work(*args, **terms), limiter=self.limiter)

    async def start(self, work: Callable[[], Run]) -> Run:
        """A new run, in a thread of those for that."""
        return await to_thread.run_sync(work, limiter=self.starts)

    async def view(self) -> View:
        """The data set of the path, as the caller sees it."""
        return self.service.view(self.by, self.request.path_params["dataset"])  # in memory

    async def views(self) -> list[View]:
        """The data set that a parameter names, or all that the caller may see."""
        if (name := self.seen.get("dataset")) is not None:
            return [await self.off(self.service.view, self.by, name)]
        return await self.off(self.service.views, self.by)

    async def run(self) -> Run:
        """The run of the path."""
        name = self.request.path_params["id"]
        if not _RUN_ID.fullmatch(name):
            raise no_such("run")
        return await self.off(self.service.run_of, self.by, name)

    @property
    def limit(self) -> int:
        """How many lines at most."""
        text = self.seen.get("limit", "100")
        if not (text.isdecimal() and text.isascii() and 1 <= int(text[:6]) <= 10_000):
            raise SpecError("limit is out of range.", fix="Use 1 to 10000.", about="limit")
        return int(text)

    @property
    def confidence(self) -> Number:
        """How surely error bars hold."""
        said = fraction(self.seen.get("confidence", "0.95"), name="confidence")
        failure_of(said)  # refuses what is no confidence
        return said

    def flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        said = self.seen.get(name, "false")
        if said not in ("true", "false"):
            raise SpecError(f"{name} is {said!r}.", fix="Use true or false.", about=name)
        return said == "true"

    @property
    def wait(self) -> float:
        """How long the caller waits before being told to come back (RFC 7240)."""
        said = self.request.headers.get("prefer", "")
        if re.search(r"\brespond-async\b", said):
            return 0.0
        found = re.search(r"\bwait=(\d{1,6}(\.\d{1,3})?)", said)
        return WAIT if found is None else min(float(found.group(1)), WAIT_MAX)

    def form(self, kind: str | None = None) -> str:
        """The best form that the caller accepts, of those that a kind of order has."""
        form = _accepted(self.request.headers.get("accept", "*/*"))
        if form is None or (kind in _PLAIN and form != "json"):
            raise Refused(
                406, "The result does not exist in this form.",
                fix=f"Accept {', '.join(_FORMS)}." if kind not in _PLAIN else "Accept JSON.",
                about="accept",
            )  # fmt: skip
        return form

    # bodies

    async def order(self) -> tuple[Order[Any, Expected], bool, str | None]:
        """The order of the body, whether it is to be drawn anew, and what it is asked for."""
        kind, _, _ = self.request.headers.get("content-type", "").partition(";")
        match kind.strip().lower():
            case "application/json":
                body = await self._body()
                if len(body) <= _SMALL:  # a thread would take longer
                    return _small(body)
                return await self.off(_ordered, body)
            case "text/sql":
                terms = {n: _term(n, v) for n, v in self.seen.items() if n not in _BESIDE}
                sql = _text(await self._body())
                made = SqlOrder.make(sql=sql, **terms)
                return made, self.flag("fresh"), self.seen.get("purpose")
        raise Refused(
            415, "The body is in no form that is read here.",
            fix="Send application/json, or text/sql.", about="type",
        )  # fmt: skip

    async def _body(self) -> bytes:
        found = bytearray()
        try:
            async with timeout(_SLOW):
                async for part in self.request.stream():
                    found += part
                    if len(found) > BODY_MAX:
                        raise Refused(
                            413, "The body is too large.",
                            fix=f"Send at most {BODY_MAX:,} bytes.", about="size",
                        )  # fmt: skip
        except TimeoutError:
            raise Refused(
                408, "The body took too long.", fix="Send it in one go.", about="slow"
            ) from None
        except ClientDisconnect:
            raise Refused(400, "The body broke off.", fix="Send it again.", about="cut") from None
        return bytes(found)


_SMALL: Final = 4096  # bytes of an order
_BESIDE: Final = ("fresh", "practice", "purpose")  # parameters that are no terms of an order


def _ordered(body: bytes) -> tuple[Order[Any, Expected], bool, str | None]:
    record = _json(body)
    fresh, purpose = record.pop("fresh", False), record.pop("purpose", None)
    if not isinstance(fresh, bool):
        raise SpecError("fresh is not true or false.", fix="Use true.", about="fresh")
    if purpose is not None and not isinstance(purpose, str):
        raise SpecError("purpose is not a text.", fix="Name one.", about="purpose")
    return order_from(record), fresh, purpose


_small = lru_cache(maxsize=1000)(_ordered)  # what is asked again is not read again


def _term(name: str, text: str) -> object:
    if name == "choose":
        return tuple(text.split(","))
    if name in _WHOLE:
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise SpecError(f"{name} is not a whole number.", fix="Use digits alone.", about=name)
        return int(text)
    return text


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise SpecError("The body is not UTF-8.", fix="Encode it so.", about="encoding") from None


def _json(body: bytes) -> dict[str, Any]:
    """An object; what JSON leaves open, such as a name that is said twice, is refused."""
    try:
        found = json.loads(_text(body), object_pairs_hook=members, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise SpecError(
            "The body is not JSON.", fix="Send one object; each name once.", about="json"
        ) from None
    if not isinstance(found, dict):
        raise SpecError("The body is not an object.", fix='Send {"kind": …}.', about="json")
    if _depth(found) > DEPTH_MAX:
        raise SpecError("The body is nested too deeply.", fix="Use lists of values.", about="depth")
    return found


def _depth(value: object) -> int:
    """How deeply lists and objects are nested, counted level by level."""
    level, depth = [value], 0
    while level := [
        each
        for held in level
        if isinstance(held, dict | list)
        for each in (held.values() if isinstance(held, dict) else held)
    ]:
        depth += 1
    return depth


@lru_cache(maxsize=100)
def _accepted(header: str) -> str | None:
    """The form that an Accept header likes best; of equals, the first of the list (RFC 9110)."""
    ranges = []
    for part in header.split(","):
        kind, *terms = (each.strip().lower() for each in part.split(";"))
        weight = next((term[2:] for term in terms if term.startswith("q=")), "1")
        known = re.fullmatch(r"(0(\.\d{0,3})?|1(\.0{0,3})?)", weight)
        ranges.append((kind, float(weight) if known else 0.0))

    def liking(kind: str) -> float:
        exact = [q for said, q in ranges if said == kind]
        whole = [q for said, q in ranges if said == f"{kind.partition('/')[0]}/*"]
        any_of = [q for said, q in ranges if said == "*/*"]
        return max(exact or whole or any_of or [0.0])

    best = max(_FORMS, key=liking)
    return _FORMS[best] if liking(best) > 0 else None
