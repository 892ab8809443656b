"""The whole story on a small made-up clinic: policy, plan, answer, reuse, refusal, practice."""

import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from noisegate.desk.answer import Answer
from noisegate.errors import OverBudget
from noisegate.planning.meaning import meaning
from noisegate.root import ledger_beside
from noisegate.root import open as open_gate

_WARDS: Final = ("north", "south", "east", "west")
_PATIENTS: Final = 2_000
_POLICY: Final = """\
name = "clinic"
protects = "patient"

[budget]
epsilon = 1

[tables.visits]
source = "visits.csv"
unit = "patient"       # all rows of a patient are protected together
rows_per_unit = 4      # who has more counts as four
groups_per_unit = 2

[tables.visits.columns]
patient = { type = "integer" }
ward = { in = ["north", "south", "east", "west"] }
stay = { type = "integer", between = [0, 30] }
"""
_BY_WARD: Final = (
    "SELECT ward, COUNT(DISTINCT patient) AS patients, AVG(stay) AS days FROM visits GROUP BY ward"
)
_ORDERED: Final = f"{_BY_WARD} ORDER BY days DESC"
_TOTAL: Final = "SELECT COUNT(DISTINCT patient) AS patients FROM visits WHERE stay > 7"


def write_clinic(folder: Path, *, epsilon: int = 1) -> Path:
    """The clinic with its rows in a folder; gives the policy."""
    _write_rows(folder / "visits.csv")
    policy = folder / "clinic.toml"
    policy.write_text(_POLICY.replace("epsilon = 1", f"epsilon = {epsilon}"), encoding="utf-8")
    return policy


def run(
    *, title: Callable[[str], None], say: Callable[[str], None], show: Callable[[Answer], None]
) -> None:
    """Tell the story: headings, paragraphs, and answers as tables."""
    with TemporaryDirectory() as folder:
        policy = write_clinic(Path(folder))
        title(f"A policy: whose rows, what is public, what may be spent ({_PATIENTS:,} patients)")
        say(_POLICY)
        gate = open_gate(policy)
        title("What would it cost, and how large is the error? (free, reads no row)")
        say(f"{_BY_WARD}\n{gate.plan(_BY_WARD, epsilon='0.8')}")
        title("Ask, and pay ε = 0.8")
        show(gate.sql(_BY_WARD, epsilon="0.8"))
        title("Ask again in another order: answered from the ledger at no cost")
        show(gate.sql(_ORDERED, epsilon="0.8"))
        title("Say how accurate it must be instead; the price follows: within 40, 95 % of the time")
        show(gate.sql(_TOTAL, within=40))
        title("Ask for more than is left: refused, nothing spent")
        try:
            gate.sql(_TOTAL, epsilon="0.5", fresh=True)
        except OverBudget as refusal:
            say(str(refusal))
        title("Practise on made-up rows: at no cost, no private row is read")
        show(open_gate(policy, practice=True).sql(_TOTAL, epsilon="0.5"))
        title("The ledger")
        check = gate.ledger.verify()
        say(
            f"{check.entries} entries in {ledger_beside(policy).name}, "
            f"{'chain and sums verified' if check.ok else check.problems}; "
            f"spent {gate.spent} of ε = 1."
        )
        title("What does ε = 1 mean?")
        say("\n".join(meaning(1).sentences))


def _write_rows(file: Path) -> None:
    """One to four visits of each patient, in one or two wards."""
    with file.open("w", newline="") as sink:
        rows = csv.writer(sink)
        rows.writerow(["patient", "ward", "stay"])
        for patient in range(_PATIENTS):
            for visit in range(1 + patient * 13 % 4):
                ward = (patient * 7 % 11 + visit // 2) % 4
                rows.writerow([patient, _WARDS[ward], (patient * 37 + visit * 11) % (6 + 3 * ward)])
