"""A power failure before any write of a SQLite ledger: what was shown is charged and found.

A killed process leaves what it wrote; a power failure leaves what was synchronised, and any part of
the rest. Every write, truncation and synchronisation of a small day is such a moment.
"""

from hashlib import sha256

import pytest
from power import Recorder, one_chance, states
from test_ledger_crash import check_after_accident, check_resumes, opened, tell

from noisegate.errors import LedgerError
from noisegate.ledger.stores import sqlite


def failures(directory, every=1):
    """How many moments and different states there were; of these, one in ``every`` is checked."""
    where = directory / "ledger.db"
    opened(str(where)).close()
    before = {"ledger.db": where.read_bytes()}
    with Recorder() as recorder:
        tell(str(where), lambda name, answer: recorder.mark(name, answer.decode()))
    notes, known = recorder.notes, set()
    for number, files in states(notes, before, one_chance()):
        seen = dict(words for what, _, *words in notes[:number] if what == "mark")
        name = len(seen), *(sha256(data).digest() for _, data in sorted(files.items()))
        if name in known:
            continue
        known.add(name)
        if len(known) % every == 0:
            check(directory / str(len(known)), files, seen)
    return len(notes), len(known)


def check(place, files, seen):
    """Opened again, the ledger is sound, has what was shown, and goes on."""
    place.mkdir()
    for name, data in files.items():
        (place / name).write_bytes(data)
    check_after_accident(str(place / "ledger.db"), seen)
    check_resumes(str(place / "ledger.db"), seen)


def test_a_power_failure_before_some_writes_forgets_no_spend(quick_path):
    moments, count = failures(quick_path, every=16)
    assert (moments > 100, count > 300) == (True, True)


@pytest.mark.audit
def test_a_power_failure_before_any_write_forgets_no_spend(quick_path, record_property):
    moments, count = failures(quick_path)
    record_property("counts", f"{moments} moments, {count} states after a power failure")
    assert (moments > 100, count > 300) == (True, True)


def test_that_check_catches_a_ledger_that_does_not_synchronise(quick_path, monkeypatch):
    monkeypatch.setattr(sqlite, "_PRAGMAS", ("synchronous = OFF",))
    with pytest.raises((AssertionError, LedgerError)):
        failures(quick_path)
