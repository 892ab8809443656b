"""What a recipe was told, kept, so that it can be run again without the door: free, and the same.

A recipe is a plain function of the answers it gets. Kept with the released numbers, they give its
estimate again, with the variance of every range, in another process or from a file.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.terms.price import Price, require_shares, variance_of
from noisegate.errors import Bug, LedgerError
from noisegate.mechanisms.base import Mechanism
from noisegate.privacy.distance import L1, L2
from noisegate.releases.ask.asking import Ask, Moved, Noisy
from noisegate.transforms.strategy import Block, Strategy

Rounds = tuple[tuple[NDArray[np.int64], ...], ...]
_BLOCK: Final = "<i8"


@final
class Listening:
    """Hands questions on, and writes down what is answered."""

    def __init__(self, ask: Ask) -> None:
        self.ask, self.shape, self.gaussian, self.moved = ask, ask.shape, ask.gaussian, ask.moved
        self.rounds: list[tuple[NDArray[np.int64], ...]] = []

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:  # noqa: D102
        found = self.ask.sums(blocks, shares)
        self.rounds.append(tuple(each.values for each in found))
        return found

    def choose(  # noqa: D102 - see Ask
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction
    ) -> NDArray[np.int64]:
        found = self.ask.choose(mechanism_of, share)
        self.rounds.append((found,))
        return found

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:  # noqa: D102
        found = self.ask.furthest(block, guesses, share)
        self.rounds.append((np.array([found], np.int64),))
        return found

    def variance(self, block: Block, share: Fraction) -> float:  # noqa: D102 - see Ask
        return self.ask.variance(block, share)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see Ask
        self.ask.done(part, words)


@final
class Told:
    """Answers from a transcript. Without one it only says variances: for plans.

    ``moved`` is how far one unit moves all cells together. ``heard`` are the sums that were asked
    for so far, with their answers.
    """

    def __init__(
        self, price: Price, *, shape: tuple[int, ...], moved: int, rounds: Rounds = ()
    ) -> None:
        self._price, self._rounds, self._at = price, rounds, 0
        self.shape, self.gaussian, self.moved = shape, price.gaussian, Fraction(moved)
        self.heard: list[tuple[Block, Noisy]] = []

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:  # noqa: D102
        noises = self._price.noise(self._query(blocks), require_shares(shares))  # type: ignore[arg-type]
        values = self._next([block.size for block in blocks])
        found = [Noisy(v, variance_of(noise)) for v, noise in zip(values, noises, strict=True)]
        self.heard += zip(blocks, found, strict=True)
        return found

    def choose(  # noqa: D102 - see Ask
        self,
        mechanism_of: Callable[[Fraction], Mechanism[L1]],  # noqa: ARG002 - it was chosen
        share: Fraction,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        (found,) = self._next([None])
        return found

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:  # noqa: ARG002, D102
        (found,) = self._next([1])
        return int(found[0])

    def variance(self, block: Block, share: Fraction) -> float:  # noqa: D102 - see Ask
        (noise,) = self._price.noise(self._query([block]), require_shares([share]))  # type: ignore[arg-type]
        return variance_of(noise)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see Ask
        pass

    def _query(self, blocks: Sequence[Block]) -> Moved:
        strategy = Strategy(int(np.prod(self.shape)), tuple(blocks))
        return Moved(
            tuple(L1(self.moved * norm) for norm in strategy.l1s),
            tuple(L2(squared=self.moved**2 * norm) for norm in strategy.l2s_squared),
        )

    def _next(self, sizes: Sequence[int | None]) -> tuple[NDArray[np.int64], ...]:
        found = self._rounds[self._at] if self._at < len(self._rounds) else ()
        told = [
            wanted if wanted is None else each.size
            for wanted, each in zip(sizes, found, strict=False)
        ]
        if told != list(sizes):
            raise Bug(
                "The recipe asks a question that it did not ask the first time.",
                fix="Report the recipe.",
            )
        self._at += 1
        return found


def pack(record: dict[str, Any], arrays: Sequence[NDArray[Any]], rounds: Rounds) -> bytes:
    """A record, arrays of whole or other numbers, and a transcript, as bytes."""
    flat = [*arrays, *(each for told in rounds for each in told)]
    kinds = ["<f8" if each.dtype.kind == "f" else _BLOCK for each in flat]
    head = {
        "record": record,
        "arrays": [[kind, *each.shape] for kind, each in zip(kinds, flat, strict=True)],
        "rounds": [len(told) for told in rounds],
    }
    text = json.dumps(head, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    body = b"".join(
        np.ascontiguousarray(each, kind).tobytes() for kind, each in zip(kinds, flat, strict=True)
    )
    return len(text).to_bytes(8, "little") + text + zlib.compress(body, 1)


def unpack(stored: bytes) -> tuple[dict[str, Any], list[NDArray[Any]], Rounds]:
    """What `pack` packed."""
    try:
        size = int.from_bytes(stored[:8], "little")
        head = json.loads(stored[8 : 8 + size])
        body, at, flat = zlib.decompress(stored[8 + size :]), 0, []
        for kind, *shape in head["arrays"]:
            count = int(np.prod(shape, dtype=np.int64))
            flat.append(np.frombuffer(body, kind, count, at).reshape(shape))
            at += 8 * count
        own, counts = len(flat) - sum(head["rounds"]), head["rounds"]
        starts = np.cumsum([own, *counts]).tolist()
        rounds = tuple(
            tuple(flat[start : start + count]) for start, count in zip(starts, counts, strict=False)
        )
        return head["record"], flat[:own], rounds
    except (ValueError, KeyError, TypeError, zlib.error):
        raise LedgerError(
            "A stored release cannot be read.", fix="Run: noisegate ledger verify.", about="stored"
        ) from None
