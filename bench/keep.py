"""What a run leaves: one file for each section, with all that its figures depend on.

A section that is run again replaces its own file and no other, so that runs go on where they were
stopped. `report.py` draws the page from these files and from nothing else.
"""

import json
import math
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from rich.console import Console

from show import Column, Row, show

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".bench" / "results"  # of this checkout
ARM = {"0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd49": "Neoverse N2", "0xd4f": "V2"}


class Shown(NamedTuple):
    """One table of a section."""

    title: str
    columns: Sequence[Column]
    rows: list[Row]


@dataclass(frozen=True)
class Run:
    """A section that is run: what to type for it again, and how much was done."""

    section: str
    command: str
    effort: str  # in words: "10 trials"
    quick: bool = False  # the least that shows that it works: never shown in place of more

    def keep(self, make: Callable[[], Iterable[Shown]], see: Callable[[Shown], None]) -> Path:
        """Make the tables, let each be seen as soon as it is known, and keep all of them."""
        before, of, start, tables = load(), commit(), monotonic(), []
        for title, columns, rows in make():
            see(Shown(title, columns, rows))
            tables.append({"title": title, "columns": [list(each) for each in columns],
                           "rows": plain(rows)})  # fmt: skip
        found = {
            "section": self.section,
            "command": self.command,
            "effort": self.effort,
            "quick": self.quick,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": of,
            "machine": machine(),
            "cores": os.cpu_count(),
            "load": [before, load()],
            "seconds": round(monotonic() - start, 1),
            "tables": tables,
        }
        RUNS.mkdir(parents=True, exist_ok=True)
        file = RUNS / f"{self.section}.json"
        file.write_text(text(found), encoding="utf-8")
        return file

    @property
    def is_done(self) -> bool:
        """Whether this commit has been measured with at least this effort."""
        file = RUNS / f"{self.section}.json"
        if not file.is_file():
            return False
        found = json.loads(file.read_text(encoding="utf-8"))
        same = found["commit"] == commit() and "changed" not in found["commit"]
        return same and (found["effort"] == self.effort or (self.quick and not found["quick"]))


def every(
    runs: Iterable[tuple[Run, Callable[[], Iterable[Shown]]]], to: Console, *, resume: bool
) -> None:
    """One section after the other; what fails is said, and the next one is begun."""
    failed = []
    for run, make in runs:
        if resume and run.is_done:
            to.print(f"[dim]{run.section}: done at this commit")
            continue
        to.print(f"[dim]{run.section} …")
        try:
            run.keep(make, lambda table: show(to, *table))
        except Exception:  # noqa: BLE001 - the other sections do not depend on it
            to.print_exception()
            failed.append(run.section)
    to.print(f"kept in {RUNS.parent.name}/{RUNS.name}; load {load():.1f} on {os.cpu_count()} cores")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def text(found: dict[str, Any]) -> str:
    """The file of a section, with a row a line: runs are compared line by line."""
    head = [f' "{name}": {_line(value)}' for name, value in found.items() if name != "tables"]
    tables = [
        f'  {{"title": {_line(table["title"])},\n   "columns": {_line(table["columns"])},\n   '
        '"rows": [\n' + ",\n".join(f"    {_line(row)}" for row in table["rows"]) + "]}"
        for table in found["tables"]
    ]
    return "{\n" + ",\n".join([*head, ' "tables": [\n' + ",\n".join(tables) + "]"]) + "\n}\n"


def plain(value: Any) -> Any:
    """Values as JSON has them: six digits, and None for what is no number."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()  # a scalar of NumPy
    if isinstance(value, bool | int | str) or value is None:
        return value
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


def commit() -> str:
    """What was measured; with a word where files differ from it."""
    head = _git("rev-parse", "--short=8", "HEAD") or "unknown"
    return f"{head}, changed" if _git("status", "--porcelain", "src", "bench/*.py") else head


def machine() -> str:
    """The processor and the Python, without a name of the machine."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores of {_processor()}, {python}"


def load() -> float:
    """Processes that worked or waited in the last minute, by the system's count."""
    return round(os.getloadavg()[0], 1)


def _processor() -> str:
    try:
        said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    facts = {}
    for line in said.splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    named = facts.get("model name") or ARM.get(facts.get("CPU part", ""))
    return f"{named} ({platform.machine()})" if named else platform.machine()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
