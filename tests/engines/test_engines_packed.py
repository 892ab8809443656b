"""Rows that Postgres packs into few texts of bytes, as they come out again."""

from itertools import chain

import numpy as np
import psycopg
import pytest

from noisegate.sources.postgres import found
from noisegate.sources.postgres.found import packed, whole_columns

ENDS = (0, 1, -1, 2**63 - 1, -(2**63))


def sent(server, text, columns):
    copying = f"COPY ({packed(text, columns)}) TO STDOUT (FORMAT BINARY)"
    with psycopg.connect(server.uri) as link, link.cursor().copy(copying) as copy:
        return b"".join(copy)


@pytest.mark.parametrize("rows", [0, 1, 4095, 4096, 10_000])
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_rows_come_out_in_order_wherever_messages_end(server, monkeypatch, rows, block):
    monkeypatch.setattr(found, "BATCH", 5000)
    data = sent(server, f"SELECT g, -g FROM generate_series(1::int8, {rows}) AS g", 2)
    blocks = (data[at : at + block] for at in range(0, len(data), block))
    parts = list(whole_columns(blocks, 2))
    numbers = np.arange(1, rows + 1)
    assert len(parts) <= 2
    for place, sign in enumerate((1, -1)):
        held = list(chain.from_iterable(part[place].tolist() for part in parts))
        assert held == (sign * numbers).tolist()


def test_numbers_at_the_ends_are_kept(server):
    values = ", ".join(f"('{each}'::int8)" for each in ENDS)
    ((held,),) = whole_columns([sent(server, f"VALUES {values}", 1)], 1)
    assert held.tolist() == list(ENDS)


def test_the_server_holds_one_text_at_a_time(server):
    """A hash table would hold all of them."""
    text = packed("SELECT g FROM generate_series(1::int8, 100000) AS g", 1)
    with psycopg.connect(server.uri) as link:
        plan = [line for (line,) in link.execute(f"EXPLAIN (COSTS OFF) {text}")]
    assert plan[0] == "GroupAggregate"
    assert not any("Hash" in line for line in plan)
