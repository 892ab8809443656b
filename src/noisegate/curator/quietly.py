"""Work on rows whose failure is told without the machine's own words."""

import os
from collections.abc import Callable
from typing import TypeVar

from noisegate.errors import DEBUG, Bug, NoisegateError, SourceError

T = TypeVar("T")


def quietly(work: Callable[[], T]) -> T:
    """What the work gives. Whatever goes wrong, nobody is told what the rows had to do with it.

    Why: NumPy says "unable to allocate an array with shape (3000001,)", which is how many rows
        there are, and a number that cannot be cast is quoted. Such errors are gone with the block,
        so that no other holds them as its context. A steward sees them with NOISEGATE_DEBUG=1.
    """
    refusal: NoisegateError
    try:
        return work()
    except NoisegateError as known:
        refusal = known
    except MemoryError:
        refusal = SourceError(
            "The rows do not fit in memory.",
            fix="Nothing was released; ask again with the same request id where there is more "
            "memory.",
            about="memory",
        )
    except Exception as wrong:
        if os.environ.get(DEBUG):
            raise
        refusal = Bug(
            f"Processing the rows failed: {type(wrong).__name__}.",
            fix=f"Nothing was released. Please report it; {DEBUG}=1 shows stewards more.",
        )
    refusal.__cause__ = refusal.__context__ = None
    raise refusal
