"""Answers that come as a stream: short parts come together, and none is lost."""

import asyncio

import pytest

from noisegate.sources.asked.streams import _ENOUGH, _next, streamed

SHORT, LONG = b"x" * (_ENOUGH // 16), b"y" * (2 * _ENOUGH)


async def stream(parts, error=None):
    for part in parts:
        yield part
    if error is not None:
        raise error


def waits(parts):
    """The parts by the wait in which they came."""

    async def all_of():
        held, found = [stream(parts)], []
        while held:
            found.append(await _next(held, len))
        return found

    return asyncio.run(all_of())


def test_short_parts_come_together_and_long_ones_alone():
    found = waits([*[SHORT] * 40, LONG, LONG, SHORT])
    assert [len(each) for each in found] == [16, 16, 9, 1, 1]
    assert waits([]) == [[]]


@pytest.mark.parametrize("parts", [[], [SHORT] * 3, [SHORT] * 33, [LONG] * 3])
def test_every_part_comes_once_and_in_order(parts):
    numbered = [part + bytes([place]) for place, part in enumerate(parts)]
    assert streamed(stream(numbered), 60, list, len) == numbered


def test_a_stream_that_fails_is_no_answer():
    with pytest.raises(RuntimeError, match="lost"):
        streamed(stream([SHORT] * 20, RuntimeError("lost")), 60, list, len)
