"""The whole thread on a small made-up clinic: price, answer, ledger, refusal."""

import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from noisegate.connect import ledger_beside
from noisegate.connect import open as open_gate
from noisegate.errors import OverBudget
from noisegate.privacy.meaning import meaning
from noisegate.query.answer import Answer

_WARDS: Final = ("north", "south", "east", "west")
_ROWS: Final = 1_200
_TOTAL: Final = "SELECT COUNT(*) AS n FROM patients"
_BY_WARD: Final = "SELECT ward, COUNT(*) AS n FROM patients GROUP BY ward"


def run(
    *, title: Callable[[str], None], say: Callable[[str], None], show: Callable[[Answer], None]
) -> None:
    """Tell the story: headings, paragraphs, and answers as tables."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "patients.csv"
        _write_rows(file)
        gate = open_gate(file, epsilon=1, columns={"ward": {"in": list(_WARDS)}})
        title("A gate in front of 1,200 made-up patients, with a budget of ε = 1")
        say(repr(gate))
        title("What would it cost, and how far may it be off? (free, reads no row)")
        say(f"{_BY_WARD}\n{gate.plan(_BY_WARD, epsilon='0.5')}")
        title("Ask, and pay ε = 0.5")
        show(gate.sql(_BY_WARD, epsilon="0.5"))
        title("Ask the same again: answered from the ledger, for free")
        show(gate.sql(_BY_WARD, epsilon="0.5"))
        title("Say how exact it must be instead; the price follows: within 20, 95 % of the time")
        show(gate.sql(_TOTAL, within=20))
        title("Ask for more than is left: refused, nothing spent")
        try:
            gate.sql(_TOTAL, epsilon="0.5")
        except OverBudget as refusal:
            say(str(refusal))
        title("The ledger")
        check = gate.ledger.verify()
        say(
            f"{check.entries} entries in {ledger_beside(file).name}, "
            f"{'chain and sums verified' if check.ok else check.problems}; "
            f"spent {gate.spent} of ε = 1."
        )
        title("What does ε = 0.5 mean?")
        say("\n".join(meaning("0.5").sentences))


def _write_rows(file: Path) -> None:
    with file.open("w", newline="") as sink:
        rows = csv.writer(sink)
        rows.writerow(["patient", "ward", "age"])
        for number in range(_ROWS):
            rows.writerow([number, _WARDS[number * 7 % 11 % 4], 18 + number * 37 % 80])
