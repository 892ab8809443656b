"""Arrays of any size, drawn a chunk at a time, so that memory stays near the size of the output."""

from collections.abc import Callable
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError

Size: TypeAlias = int | tuple[int, ...]
IntArray: TypeAlias = NDArray[np.signedinteger[Any]]
Int64Array: TypeAlias = NDArray[np.int64]
Places: TypeAlias = NDArray[np.uint64]

CHUNK: Final = 1 << 16


def in_chunks(
    size: Size,
    draw: Callable[[int], NDArray[Any]],
    *,
    dtype: type[Any] = np.int64,
) -> NDArray[Any]:
    """An array of this shape, filled by ``draw(count)`` for at most `CHUNK` numbers at a time."""
    out = np.empty(_shape(size), dtype)
    flat = out.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        part[:] = draw(part.size)
    return out


def whole(value: int, name: str, *, least: int, below: int) -> int:
    """A whole number in [least, below), from Python or NumPy."""
    try:
        number = value.__index__() if not isinstance(value, bool) else least - 1
    except (AttributeError, TypeError):
        number = least - 1
    if not least <= number < below:
        raise SpecError(
            f"{name} is out of range.", fix=f"Use a whole {name} from {least}.", about="range"
        )
    return number


def _shape(size: Size) -> tuple[int, ...]:
    dims = size if isinstance(size, tuple) else (size,)
    shape = tuple(whole(dim, "size", least=0, below=1 << 40) for dim in dims)
    whole(prod(shape), "size", least=0, below=1 << 40)
    return shape
