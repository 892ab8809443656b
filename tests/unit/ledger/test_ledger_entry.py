"""Entries, their canonical text and the chain."""

import hashlib
import json
import os
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.accounting.accountant import Charge
from noisegate.errors import Bug, LedgerError
from noisegate.ledger.entry import (
    NO_HASH,
    Entry,
    Head,
    canonical,
    decode_charges,
    encode_charges,
    parse,
)
from refusals import about

# Every run of the tests tries the same ones; `make fuzz` others, and more.
EXAMPLES = 1000 if os.environ.get("NOISEGATE_EXPLORE") else 50
PLAIN = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=EXAMPLES)
@given(PLAIN)
def test_canonical_text_is_ascii_and_reads_back_the_same(value):
    text = canonical(value)
    assert text.isascii()
    assert "\n" not in text
    assert parse(text) == value
    assert canonical(parse(text)) == text


@pytest.mark.parametrize("value", [0.5, {"x": [1.0]}, Fraction(1, 2), {1: "x"}, (1, 2), True, b"x"])
def test_floats_and_objects_cannot_enter_the_log(value):
    with pytest.raises(Bug, check=about("plain")):
        canonical(value)


@pytest.mark.parametrize("text", ["0.5", '{"x": 1e3}', "NaN", "-Infinity", "{", "[" * 100_000])
def test_text_with_floats_or_without_json_is_refused(text):
    with pytest.raises(LedgerError):
        parse(text)


def test_the_hash_can_be_recomputed_with_a_few_lines_of_anything():
    first = Entry.first("ab", at="noon")
    body = json.dumps({"format": 1, "id": "ab"}, separators=(",", ":"))
    text = f"{'0' * 64}\n0\nledger\nnoon\n{body}"
    assert first.hash == hashlib.sha256(text.encode()).hexdigest()
    assert first.previous_hash == NO_HASH


def test_each_entry_follows_the_one_before():
    first = Entry.first("ab", at="noon")
    second = Entry.after(Head(first.seq, first.hash), "note", {"text": "hello"}, at="later")
    assert (second.seq, second.previous_hash) == (1, first.hash)
    assert second.is_sealed
    assert Entry.from_row(second.to_row()) == second


@pytest.mark.parametrize("column", range(6))
def test_every_column_is_sealed(column):
    row = list(Entry.first("ab", at="noon").to_row())
    row[column] = {0: 7, 3: '{"format":1,"id":"ac"}'}.get(column, "f" * 64)
    assert not Entry.from_row(tuple(row)).is_sealed


@pytest.mark.parametrize("text", ['{"b":1, "a":2}', '{"b":1,"a":2}', '{"a":1,"a":2}', "[]"])
def test_a_body_that_is_not_canonical_is_refused(text):
    with pytest.raises(LedgerError, check=about("canonical")):
        Entry.from_row((0, "note", "noon", text, NO_HASH, NO_HASH))


def test_charges_beyond_64_bits_survive_the_log():
    charges = {"ann": Charge(10**60 + 1, 3), "data": Charge(0, 0)}
    assert decode_charges(parse(canonical(encode_charges(charges)))) == charges
