"""The ledger's format as files: what was written once must be written, and read, for ever.

After a wanted change of format run this file as a program and read the difference:
``python tests/golden/test_ledger_golden.py``. The old files keep their names and stay readable.
"""

import io
import shutil
import sys
from fractions import Fraction
from itertools import count
from pathlib import Path

from noisegate.ledger.entry import Entry
from noisegate.ledger.open import open_ledger, restore_ledger
from noisegate.ledger.origin import Origin
from noisegate.ledger.stores.sqlite import SQLiteLedger
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import (
    DeclaredEvent,
    DiscreteGaussianEvent,
    GeometricEvent,
    Repeated,
    Sequential,
)
from noisegate.privacy.loss import ApproxDP

HERE = Path(__file__).parent
LINES = HERE / "ledger_story_1.jsonl"
FILE = HERE / "ledger_story_1.sqlite"
ORIGINS = HERE / "ledger_story_2.jsonl"
FIRST = Entry.first("00112233445566778899aabbccddeeff", at="2026-01-01T00:00:00.000000Z")
COUNT = GeometricEvent(scale=2, sensitivity=L1(1))
LEVEL = DiscreteGaussianEvent(variance=100, sensitivity=L2(squared=1))


def tell(ledger):
    """A data set, two analysts, a count, a recipe, and a question that was never finished."""
    unit = "one person (all rows with the same 'id')"
    budget = ApproxDP(3, "1e-6")
    ledger.open_account("clinic", parent=None, accountant="zcdp", budget=budget, unit=unit)
    ledger.open_account(
        "ann", parent="clinic", accountant="pure", budget=ApproxDP("1/2"), unit=unit
    )
    ledger.open_account("bob", parent="clinic", accountant="zcdp", budget=budget, unit=unit)
    question = "SELECT count(*) FROM patients -- naïve"
    counted = ledger.reserve(
        "r-1", question=question, event=COUNT, account="ann", kind="measurement"
    )
    counted.settle(b'{"count": 41}')
    tree = ledger.reserve(
        "a-1",
        question="release tree",
        event=Repeated(event=LEVEL, count=3),
        account="bob",
        kind="allowance",
    )
    tree.close(Sequential(events=(LEVEL,)), b"\x00\x01\xfe\xff")
    ledger.change_budget("ann", ApproxDP("3/4"), reason="second wave")
    event = DeclaredEvent(epsilon=Fraction(1, 7))
    ledger.reserve("r-2", question="never ended", event=event, account="ann", kind="measurement")
    ledger.note("audited")


def tell_origins(ledger):
    """A data set whose file is moved, and then written anew."""
    for place, inode in (("/data/a.csv", "1:2"), ("/data/b.csv", "1:2"), ("/data/b.csv", "1:3")):
        ledger.open_account(
            "clinic",
            parent=None,
            accountant="pure",
            budget=ApproxDP(3),
            unit="one person",
            origins=[Origin(place, inode), Origin("postgresql://db:5432/shop#public.visits")],
        )


def new(where):
    ticks = count(1)
    clock = lambda: f"2026-01-01T00:00:{next(ticks):02}.000000Z"  # noqa: E731
    return open_ledger(where, _first=FIRST, _clock=clock)


def exported(ledger):
    text = io.StringIO()
    ledger.export(text)
    return text.getvalue()


def test_the_story_is_written_byte_for_byte_as_before(tmp_path):
    for where in (":memory:", str(tmp_path / "ledger.db")):
        with new(where) as ledger:
            tell(ledger)
            assert exported(ledger) == LINES.read_text()


def test_an_old_file_opens_verifies_and_goes_on(tmp_path):
    path = tmp_path / "old.db"
    shutil.copy(FILE, path)
    with SQLiteLedger(path) as ledger:
        assert ledger.verify().problems == []
        assert exported(ledger) == LINES.read_text()
        again = ledger.reserve(
            "r-1",
            question="SELECT count(*) FROM patients -- naïve",
            event=COUNT,
            account="ann",
            kind="measurement",
        )
        assert again.answer == b'{"count": 41}'
        ledger.note("opened by a later version")
        assert ledger.verify().problems == []


def test_an_old_export_restores_and_verifies():
    with LINES.open() as file, restore_ledger(file, ":memory:") as ledger:
        assert ledger.verify().problems == []
        assert exported(ledger) == LINES.read_text()
        assert ledger.balance("ann").remaining == ApproxDP(Fraction(3, 28))  # 3/4 - 1/2 - 1/7


def test_origins_are_written_byte_for_byte_as_before_and_restored(tmp_path):
    for where in (":memory:", str(tmp_path / "ledger.db")):
        with new(where) as ledger:
            tell_origins(ledger)
            assert exported(ledger) == ORIGINS.read_text()
    with ORIGINS.open() as file, restore_ledger(file, ":memory:") as ledger:
        assert ledger.verify().problems == []
        assert set(ledger.origins().values()) == {"clinic"}
        assert len(ledger.origins()) == 3


if __name__ == "__main__":  # the file of format 1 is from an older version and stays
    for lines, told in ((LINES, tell), (ORIGINS, tell_origins)):
        with new(":memory:") as story:
            told(story)
            lines.write_text(exported(story))
        sys.stdout.write(lines.read_text())
