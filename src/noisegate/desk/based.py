"""What a release rests on besides its own entries of the ledger: estimates released before it.

A contribution bound or a column's bounds that nobody declared are estimated by a look, which is a
release of its own: kept in the ledger, and used by whatever is asked later, at no charge. Its price
may have been small or large, and somebody else's.

Claim: let L be the looks and M the entries of the release itself. Whatever is shown is made of
    them alone, so it is as private as the composition of L and M: that is `Guarantee.loss`. For any
    outcome of L, M is ε-private with `Guarantee.added`: that is what the release adds for those who
    have L, as the ledger gives it to anybody who asks the same.
Adjacency: add/remove. Why: adaptive composition and post-processing [DR14]. Which bound is found
    is decided by L, before M is drawn; M is calibrated to it, whatever it is.
Both are needed. The whole alone would blame a cheap release for what a dear look lost before it.
The part alone would be false: the bound that the release shows tells about L.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self, final

from noisegate.frozen import dataclass
from noisegate.privacy.event import Event
from noisegate.privacy.release import Release


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Based:
    """Looks that a release rests on: each once, whoever paid for it.

    ``words`` say what was estimated; ``questions`` and ``request_ids`` are where the ledger has it.
    ``events`` are gone where it was read from a file.
    """

    events: tuple[Event, ...] = ()
    words: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    request_ids: tuple[str, ...] = ()

    @classmethod
    def on(cls, looks: Iterable[Release], words: Sequence[str] = ()) -> Self:
        """Those of releases: a look is drawn once, so its question tells it from others."""
        once = {each.question: each for each in looks}
        return cls(
            events=tuple(each.event for each in once.values()), words=tuple(words),
            questions=tuple(once),
            request_ids=tuple(each.request_id for each in once.values() if each.request_id),
        )  # fmt: skip

    def __add__(self, other: "Based") -> "Based":
        return Based(
            events=self.events + other.events, words=self.words + other.words,
            questions=self.questions + other.questions,
            request_ids=self.request_ids + other.request_ids,
        )  # fmt: skip

    def besides(self, used: Iterable[Release]) -> tuple[Event, ...]:
        """What other releases lost, each once."""
        others = [each for each in used if each.question not in self.questions]
        return tuple({each.request_id or each.question: each.event for each in others}.values())

    def to_record(self) -> dict[str, list[str]]:
        """What a file keeps."""
        return {
            "words": list(self.words), "questions": list(self.questions),
            "requests": list(self.request_ids),
        }  # fmt: skip

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> Self:
        """What `to_record` wrote; earlier files have nothing."""
        if record is None:
            return cls()
        texts = (tuple(map(str, record[each])) for each in ("words", "questions", "requests"))
        words, questions, requests = texts
        return cls(words=words, questions=questions, request_ids=requests)


NOTHING: Final = Based()
