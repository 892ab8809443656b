"""Work on rows whose failure is told without the machine's own words."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from noisegate.errors import SourceError

T = TypeVar("T")


def quietly(work: Callable[[], T]) -> T:
    """What the work gives. Where memory runs out, nobody is told how much was wanted.

    Why: NumPy says "unable to allocate an array with shape (3000001,)", which is how many rows
        there are. Its error is gone with the block, so that no other holds it as its context.
    """
    with suppress(MemoryError):
        return work()
    raise SourceError(
        "The rows find no room in memory.",
        fix="Nothing left the door; ask again with the same request where there is more.",
    )
