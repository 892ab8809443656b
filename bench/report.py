"""Write docs/benchmarks.md and its pictures from what the runs left.

    python bench/report.py           takes in what was run here, then writes the page
    python bench/report.py --check   says whether the page is what would be written

The page depends on `bench/results/*.json` alone, so whoever has the repository can draw it again.
What was run here is in `.bench/results`; it replaces what is kept for the same section, unless it
was run with less effort. A new section is a `Place` of `places.py`: nothing else knows of it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import fill

from keep import ROOT, RUNS
from places import HEAD, PLACES, Place, Record, Table
from show import Column, Row, cell

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
DRAWN = ROOT / "docs" / "benchmarks"
BUSY = 0.75  # of the cores: what else was at work before a run


def take_in(runs: Path = RUNS, results: Path = RESULTS) -> list[str]:
    """What was run here, where it is no less than what is kept."""
    results.mkdir(parents=True, exist_ok=True)
    taken = []
    for file in sorted(runs.glob("*.json")):
        mine, kept = file.read_text(encoding="utf-8"), results / file.name
        known = kept.read_text(encoding="utf-8") if kept.is_file() else None
        less = known is not None and json.loads(mine)["quick"] and not json.loads(known)["quick"]
        if mine != known and not less:
            kept.write_text(mine, encoding="utf-8")
            taken.append(file.stem)
    return taken


def page(results: Path = RESULTS) -> tuple[str, dict[str, str]]:
    """The page, and its pictures by the names of their files."""
    records = {file.stem: json.loads(file.read_text(encoding="utf-8"))
               for file in sorted(results.glob("*.json"))}  # fmt: skip
    parts, glance, drawn = [HEAD], [], dict[str, str]()
    for group, places in PLACES.items():
        parts.append(f"## {group}")
        for place in places:
            found = [records[name] for name in place.sections if name in records]
            tables = place.tables(found) if found else []
            if any(each["quick"] for each in found):
                tables = [_unjudged(table) for table in tables]
            parts += [f"### {place.title}", place.words, _facts(place, found)]
            glance.append(_glance(place, found, tables))
            if place.picture is not None and found:
                drawn[place.file] = place.picture(tables)
                parts.append(f"![{place.says}]({DRAWN.name}/{place.file})\n\n*{place.says}*")
            parts += [text for each in tables for text in (f"**{_safe(each['title'])}**",
                      markdown(each["columns"], each["rows"]))]  # fmt: skip
    parts.insert(1, markdown(GLANCE, glance))
    return "\n\n".join(map(_wrapped, parts)) + "\n", drawn


def _wrapped(part: str) -> str:
    """Prose at a readable width; tables, headings and what is indented stay."""
    kept = ("|", "#", "!", " ", "-")
    return "\n".join(
        line
        if line.startswith(kept)
        else fill(line, 120, break_on_hyphens=False, break_long_words=False)
        for line in part.split("\n")
    )


GLANCE: tuple[Column, ...] = (
    ("section", "section", ""),
    ("run on", "date", ""),
    ("commit", "commit", ""),
    ("load before", "load", ""),
    ("targets met", "met", ""),
    ("missed", "missed", ""),
)


def _glance(place: Place, found: Sequence[Record], tables: Iterable[Table]) -> Row:
    row: Row = {"section": f"[{place.title}](#{_anchor(place.title)})"}
    if not found:
        return row | {"date": "not run"}
    said = [row[field] for table in tables for _, field, style in table["columns"] if style == "met"
            for row in table["rows"] if row.get(field) is not None]  # fmt: skip
    return row | {
        "date": _each(found, lambda each: each["date"].partition(" ")[0]),
        "commit": _each(found, lambda each: each["commit"]),
        "load": f"{max(each['load'][0] for each in found):.1f}",
        "met": f"{sum(said)} of {len(said)}" if said else None,
        "missed": str(len(said) - sum(said)) if said else None,
    }


def _unjudged(table: Table) -> Table:
    """Targets are of whole runs."""
    shown = [each for each in table["columns"] if each[2] != "met" and each[0].strip() != "target"]
    return table | {"columns": shown}


def _facts(place: Place, found: Sequence[Record]) -> str:
    if not found:
        return f"*Not run.* To run it: `{place.command}`"
    busy = max(each["load"][0] / each["cores"] for each in found) > BUSY
    facts = [
        _each(found, lambda each: each["date"]),
        "commit " + _each(found, lambda each: each["commit"]),
        _each(found, lambda each: each["machine"]),
        f"load {_load(found)}" + " (busy with other work)" * busy,
        _each(found, lambda each: each["effort"]),
        f"{sum(each['seconds'] for each in found):,.0f} s",
    ]  # fmt: skip
    missing = [name for name in place.sections if name not in {each["section"] for each in found}]
    said = f"*{' · '.join(facts)}*"
    if any(each["quick"] for each in found):
        said += " **With the least effort: it shows that it works, and no figure to rely on.**"
    if missing:
        said += f" Not run: {', '.join(missing)}."
    commands = dict.fromkeys(each["command"] for each in found)
    short = place.command if len(commands) > 1 else next(iter(commands))
    return f"{said} `{short}`"


def _load(found: Sequence[Record]) -> str:
    before, after = (max(each["load"][place] for each in found) for place in (0, 1))
    return "up to " * (len(found) > 1) + f"{before:.1f} before, {after:.1f} after"


def _each(found: Sequence[Record], fact: Callable[[Record], str]) -> str:
    """What is told of all sections of a place: once, or from the least to the greatest."""
    said = sorted({fact(each) for each in found})
    return said[0] if len(said) == 1 else f"{said[0]} to {said[-1]}"


def markdown(columns: Iterable[Sequence[str]], rows: Sequence[Row]) -> str:
    """A table, without the columns that no row has a value for."""
    shown = [each for each in columns if any(row.get(each[1]) is not None for row in rows)]
    lines = [
        "| " + " | ".join(_safe(heading.strip()) for heading, _, _ in shown) + " |",
        "|" + "|".join("--:" if style and style != "met" else "---" for _, _, style in shown) + "|",
    ]
    lines += [
        "| " + " | ".join(_word(row, field, style) for _, field, style in shown) + " |"
        for row in rows
    ]
    return "\n".join(lines)


def _word(row: Row, field: str, style: str) -> str:
    if style == "met" and row.get(field) is not None:
        return "met" if row[field] else "**missed**"
    said = cell(row, field, style)
    return said if said.startswith("[") else _safe(said)


def _safe(text: str) -> str:
    for letter in "\\|*_<":
        text = text.replace(letter, f"\\{letter}")
    return text


def _anchor(title: str) -> str:
    """As Markdown makes it of a heading."""
    kept = "".join(each for each in title.lower() if each.isalnum() or each in " -")
    return kept.strip().replace(" ", "-")


def main() -> None:
    """Take in, draw, write; or only compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    said = parser.parse_args()
    if said.check:
        text, drawn = page()
        files = {PAGE: text} | {DRAWN / name: svg for name, svg in drawn.items()}
        other = [file.name for file, whole in files.items()
                 if not file.is_file() or file.read_text(encoding="utf-8") != whole]  # fmt: skip
        sys.exit(f"not what would be written: {', '.join(other)}" if other else 0)
    taken = take_in()
    text, drawn = page()
    DRAWN.mkdir(parents=True, exist_ok=True)
    for file in DRAWN.glob("*.svg"):
        if file.name not in drawn:
            file.unlink()
    for name, svg in drawn.items():
        (DRAWN / name).write_text(svg, encoding="utf-8")
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} written; taken in: {', '.join(taken) or 'nothing new'}")


if __name__ == "__main__":
    main()
