"""Damaged ledgers: noticed when opened or verified, or without any effect."""

import io
import json
import tempfile
from functools import cache
from pathlib import Path

from fuzz_target import Finding, NoisegateError, Target, Verdict, refused, shorter_lists

from noisegate.ledger.open import open_ledger, restore_ledger

GOLDEN = Path(__file__).parents[1] / "golden"
FILE, LINES = GOLDEN / "ledger_story_1.sqlite", GOLDEN / "ledger_story_1.jsonl"
PAGE = 4096


def damaged(data, edits):
    """Bytes with edits, one after the other; places are taken modulo what there is."""
    data = bytearray(data)
    for how, at, more in edits:
        size = max(1, len(data))
        pages = max(1, len(data) // PAGE)
        one, other = at % pages * PAGE, more % pages * PAGE
        if how == "flip" and data:
            data[at % size] ^= 1 << more % 8
        elif how == "set" and data:
            data[at % size] = more % 256
        elif how == "cut":
            del data[at % (size + 1) :]
        elif how == "insert":
            data[at % size : at % size] = bytes([more % 256])
        elif how == "remove":
            del data[at % size : at % size + 1 + more % 64]
        elif how == "zero":
            data[one : one + PAGE] = bytes(len(data[one : one + PAGE]))
        elif how == "swap":
            data[one : one + PAGE], data[other : other + PAGE] = (
                data[other : other + PAGE],
                data[one : one + PAGE],
            )
        elif how == "append":
            data += bytes([more % 256]) * (at % 9000)
    return bytes(data)


def damaged_lines(text, edits):
    """Lines with edits of whole lines; the others are about bytes."""
    for how, at, more in edits:
        lines = text.splitlines(keepends=True) or [""]
        one, other = at % len(lines), more % len(lines)
        if how == "drop line":
            del lines[one]
        elif how == "swap lines":
            lines[one], lines[other] = lines[other], lines[one]
        elif how == "repeat line":
            lines.insert(other, lines[one])
        elif how == "digit":
            digits = [i for i, c in enumerate(text) if c.isdigit()]
            place = digits[at % len(digits)] if digits else 0
            text = text[:place] + str(more % 10) + text[place + 1 :]
            continue
        else:
            text = damaged(text.encode(), [(how, at, more)]).decode("utf-8", "replace")
            continue
        text = "".join(lines)
    return text


def facts_of(ledger):
    """All that a ledger promises to keep."""
    text = io.StringIO()
    ledger.export(text)
    found = {
        name: ledger.find_question(question, account)
        for name, question, account in [("count", "SELECT count(*) FROM patients -- naïve", "ann")]
    }
    balances = {name: str(ledger.balance(name)) for name in ledger.accounts()}
    return text.getvalue(), balances, found, ledger.find_recipe("release tree"), ledger.head()


@cache
def sound():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(FILE.read_bytes())
        with open_ledger(str(path)) as ledger:
            return facts_of(ledger)


class Ledgers(Target):
    name = "ledgers"

    def make(self, random):
        form = random.choice(["sqlite", "sqlite", "sqlite", "jsonl"])
        ways = ["flip"] * 12 + ["set", "cut", "zero", "swap", "insert", "remove", "append"]
        if form == "jsonl":
            ways = [
                "flip",
                "set",
                "cut",
                "insert",
                "remove",
                "digit",
                "digit",
                "drop line",
                "swap lines",
                "repeat line",
            ]
        edits = [
            [random.choice(ways), random.randrange(1 << 20), random.randrange(1 << 10)]
            for _ in range(random.choice([1, 1, 1, 2, 5]))
        ]
        return json.dumps([form, *edits])

    def check(self, text):
        form, *edits = json.loads(text)
        return self.check_file(edits) if form == "sqlite" else self.check_lines(edits)

    def check_file(self, edits):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.sqlite"
            path.write_bytes(damaged(FILE.read_bytes(), edits))
            try:
                with open_ledger(str(path)) as ledger:
                    found = ledger.verify()
                    if not found.ok:
                        return Verdict(
                            accepted=False, marks=(f"noticed: {found.problems[0][:25]}",)
                        )
                    facts = facts_of(ledger)
            except NoisegateError as refusal:
                return refused(refusal)
        if facts != sound():
            raise Finding("verified, but not the same", f"{facts} is not {sound()}")
        return Verdict(accepted=True, marks=("harmless",))

    def check_lines(self, edits):
        text = damaged_lines(LINES.read_text(), edits)
        try:
            with restore_ledger(io.StringIO(text), ":memory:") as ledger:
                facts, ok = facts_of(ledger), ledger.verify().ok
        except NoisegateError as refusal:
            return refused(refusal)
        if not ok:
            raise Finding("restored what does not verify")
        if facts != sound() and not LINES.read_text().startswith(facts[0]):
            raise Finding("restored, but not the same", f"{facts} is not {sound()}")
        return Verdict(accepted=True, marks=("restored",))

    def shorter(self, text):
        form, *edits = json.loads(text)
        for fewer in shorter_lists(edits):
            yield json.dumps([form, *fewer])
        for place, (how, at, more) in enumerate(edits):
            for smaller in ([how, at % len(FILE.read_bytes()), more], [how, at, more % 8]):
                yield json.dumps([form, *edits[:place], smaller, *edits[place + 1 :]])


TARGET = Ledgers()
