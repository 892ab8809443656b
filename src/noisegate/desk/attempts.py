"""A release is drawn once: found by its question, or begun as the next attempt at it.

    attempts = Attempts(curator, question)   # the canonical text of what is released, price and all
    found = attempts.found()                 # (request id, bytes), whoever made it; free
    with attempts.begin(event, fresh=fresh) as allowed:
        …                                    # ask through allowed.whole
        allowed.finish(stored)               # what `found` gives from then on
        allowed.request_id                   # for cards

An attempt that was interrupted leaves its charge and no result. One that never came to an end may
be running elsewhere, so the next is refused unless it is asked for ``fresh``.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final

from noisegate.curator.curator import Curator, digest
from noisegate.errors import RequestConflict
from noisegate.privacy.event import Event

if TYPE_CHECKING:
    from noisegate.curator.allowance import Allowance

T = TypeVar("T")
_TAKEN: Final = 8  # names in a row that somebody else may have taken


@final
@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts at one question, in the ledger of a curator."""

    curator: Curator
    question: str

    def found(self) -> tuple[str, bytes] | None:
        """The request id and the bytes of a finished release; free, and reads no row."""
        return self.curator.ledger.find_recipe(self.question)

    @contextmanager
    def begin(
        self, event: Event, *, fresh: bool = False, uses: Collection[str] = ()
    ) -> "Iterator[Allowance]":
        """An allowance for the next attempt, closed when the block is left.

        Fresh ones of a named request are one attempt: tried again, it has its stored ``answer``.
        """

        def opened(name: str) -> "AbstractContextManager[Allowance]":
            return self.curator.allowance(event, question=self.question, request_id=name, uses=uses)

        with self.opening(opened, fresh=fresh) as allowed:
            yield allowed

    @contextmanager
    def opening(
        self, open_: "Callable[[str], AbstractContextManager[T]]", *, fresh: bool
    ) -> "Iterator[T]":
        """The same with whatever ``open_`` charges for and opens under a request's name."""
        curator = self.curator
        if fresh and curator.request is not None:
            with open_(f"release {digest(self.question)} {curator.request}") as allowed:
                yield allowed
            return
        begun, open_ones = curator.ledger.attempts(self.question, account=curator.account)
        if not fresh and self.found() is not None:  # since the caller looked
            raise RequestConflict(
                "This release was made in the meantime.", fix="Ask again: it is free.", about="made"
            )
        names = range(begun, begun + _TAKEN) if fresh or not open_ones else ()
        for number in names:
            name, opened = f"release {digest(self.question)} {number}", False
            try:
                with open_(name) as allowed:
                    opened = True
                    yield allowed
            except RequestConflict:
                if opened:
                    raise
                _, open_ones = curator.ledger.attempts(self.question, account=curator.account)
                if not fresh and open_ones:  # another process was faster
                    break
            else:
                return
        raise RequestConflict(
            "This release was started and has not finished.",
            fix="It may still be running elsewhere. If it was killed, release with fresh=True; "
            "what it reserved stays spent.",
            about="begun",
        )
