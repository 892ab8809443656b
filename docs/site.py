"""Builds the site: the pages of the repository, and one for each module of the library.

    python docs/site.py            writes .site/html, to be opened without a server
    python docs/site.py --check    writes the pages and checks links and the list; builds nothing

Pages stay where they are, so that links work in the repository too. They are copied into one
folder, and links between them follow. Modules are read, not imported.
"""

import argparse
import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

from notebooks import cells, ipynb, notebooks

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / ".site"
BOOKS = "docs/notebooks/pages"
PAGES = {
    "Start": {
        "Overview": "README.md", "Three people": "docs/start.md", "Tour": "docs/tour.md",
        "Glossary": "docs/glossary.md",
    },
    "Stories": {
        "About the notebooks": "docs/notebooks/README.md", "A hospital": f"{BOOKS}/hospital.md",
        "A city map": f"{BOOKS}/city_map.md", "A payroll survey": f"{BOOKS}/payroll.md",
        "Web logs": f"{BOOKS}/web_logs.md", "A school district": f"{BOOKS}/school_district.md",
        "Gallery of releases": f"{BOOKS}/gallery.md",
    },
    "Theory and lab": {
        "Theory in pictures": f"{BOOKS}/theory.md",
        "Differencing and averaging": f"{BOOKS}/lab_differencing_and_averaging.md",
        "Reconstruction": f"{BOOKS}/lab_reconstruction.md",
        "Linkage and membership": f"{BOOKS}/lab_linkage_and_membership.md",
        "Noise and side channels": f"{BOOKS}/lab_noise_and_side_channels.md",
        "What privacy does not promise": f"{BOOKS}/lab_what_privacy_does_not_promise.md",
    },
    "Ask": {
        "SQL": "docs/sql.md", "Describe": "docs/describe.md", "Choices": "docs/choice.md",
        "Many questions": "docs/many.md", "Thresholds": "docs/thresholds.md",
        "Parts": "docs/parts.md", "Robust numbers and graphs": "docs/robust.md",
        "Programs": "docs/apply.md",
    },
    "Release and learn": {
        "Releases": "docs/releases.md", "Synthetic rows": "docs/synthetic.md",
        "Crowds": "docs/crowd.md", "Models": "docs/learners.md", "Owners": "docs/owners.md",
    },
    "Steward": {
        "Policy": "docs/policy.md", "Ledger": "docs/ledger.md", "Engines": "docs/engines.md",
        "Signing": "docs/signing.md",
    },
    "Serve": {
        "Service": "docs/service.md", "Console": "docs/console.md",
        "Postgres clients": "docs/postgres-clients.md", "Agents": "docs/agents.md",
    },
    "Trust": {
        "Security": "SECURITY.md", "Programs: threats": "src/noisegate/isolated/THREATS.md",
        "Attacks": "docs/attacks.md", "Audits": "docs/audit.md", "Decks": "docs/decks.md",
        "Benchmarks": "docs/benchmarks.md", "Other systems": "docs/comparison.md",
        "Newcomers": "docs/newcomers.md",
    },
    "Reference": {
        "Names and commands": "docs/reference.md", "Library": "docs/library.md",
        "Architecture": "ARCHITECTURE.md",
        "Contributing": "CONTRIBUTING.md", "Changes": "CHANGELOG.md",
        "Examples": "examples/README.md",
    },
}  # fmt: skip
ROOMS = ("dp", "exact", "privacy", "noise", "accounting", "planning", "mechanisms", "learners")
CONFIG = """[project]
site_name = "noisegate"
site_description = "A privacy gate in front of sensitive tables"
docs_dir = "pages"
site_dir = "html"
use_directory_urls = false
nav = [{nav}]

[project.theme]
font = false
features = ["navigation.sections", "navigation.footer", "content.code.copy", "search.highlight"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/moon"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/sun"
toggle.name = "Light"
"""


def name_of(source: str) -> str:
    """The file of a page on the site: all are in one folder."""
    if source == "README.md":
        return "index.md"
    path = Path(source)
    named = path.name if path.stem != "README" else f"{path.parent.name}.md"
    return named.lower()


def linked(text: str, source: str, known: dict[str, str]) -> str:
    """The text with links to pages that are on the site; those to other files become names."""

    def follow(found: re.Match[str]) -> str:
        words, where = found[1], found[2]
        target, mark, part = where.partition("#")
        if "://" in where or not target:
            return found[0]
        path = ((ROOT / source).parent / target).resolve()
        inside = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        if not path.exists():
            raise SystemExit(f"{source}: there is no {where}")
        return f"[{words}]({known[inside]}{mark}{part})" if inside in known else words

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", follow, text)


def pictured(text: str, folder: Path, pages: Path) -> str:
    """The text with its pictures beside it, where they are copied to."""

    def copied(found: re.Match[str]) -> str:
        shutil.copy(folder / found[2], pages)
        return f"![{found[1]}]({Path(found[2]).name})"

    return re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", copied, text)


def library(pages: Path) -> dict[str, dict[str, str]]:
    """A page for each module with something public, by room and its name there."""
    found: dict[str, dict[str, str]] = {}
    for room in ROOMS:
        source = ROOT / "src" / "noisegate" / room
        files = sorted(source.rglob("*.py")) if source.is_dir() else [source.with_suffix(".py")]
        for file in files:
            inside = file.relative_to(ROOT / "src").with_suffix("")
            module = ".".join(part for part in inside.parts if part != "__init__")
            if text := described(file, module):
                (pages / f"{module}.md").write_text(text, encoding="utf-8")
                title = module.removeprefix(f"noisegate.{room}").strip(".") or room
                found.setdefault(f"Library: {room}", {})[title] = f"{module}.md"
    return found


def described(file: Path, module: str) -> str:
    """The docstrings of a module: its own, and those of what is public in it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    public = [each for each in tree.body if isinstance(each, kinds) and each.name[0] != "_"]
    if not public or not ast.get_docstring(tree):
        return ""
    parts = [f"# `{module}`", shown(tree)]
    for each in public:
        parts += [f"## `{each.name}`", signature(each), shown(each)]
        if isinstance(each, ast.ClassDef):
            parts += [
                part
                for member in each.body
                if isinstance(member, ast.FunctionDef) and member.name[0] != "_"
                for part in (f"### `{each.name}.{member.name}`", signature(member), shown(member))
            ]
    return "\n\n".join(part for part in parts if part) + "\n"


def signature(node: ast.ClassDef | ast.FunctionDef) -> str:
    """What it is called with; the fields of a class."""
    if isinstance(node, ast.FunctionDef):
        returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
        return f"```python\n{node.name}({ast.unparse(node.args)}){returns}\n```"
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    return "```python\n{}\n```".format("\n".join(fields)) if fields else ""


def shown(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """A docstring as Markdown: examples and indented parts as they are written.

    Indented lines right below others go on with them, as those of a claim do.
    """
    out: list[str] = []
    code, before = False, ""
    for line in (ast.get_docstring(node) or "").replace("``", "`").splitlines():
        if not code and (line.startswith(">>>") or (line.startswith("    ") and not before)):
            out += ["", "```text"]
            code = True
        elif code and not line.strip():
            out.append("```")
            code = False
        elif not code and before and re.match(r"[A-Z][\w, -]*: ", line):
            out.append("")  # a claim, why it holds, how it is rounded: a paragraph each
        out.append(line if code else line.strip())
        before = line.strip()
    return "\n".join([*out, "```"] if code else out)


def write(out: Path) -> None:
    """All pages and the settings, in one folder."""
    pages = out / "pages"
    for former in (pages, out / "html"):
        shutil.rmtree(former, ignore_errors=True)
    pages.mkdir(parents=True)
    known = {source: name_of(source) for group in PAGES.values() for source in group.values()}
    folders = ("docs", BOOKS)
    there = {f"{each}/{file.name}" for each in folders for file in (ROOT / each).glob("*.md")}
    if missing := sorted(there - set(known)):
        raise SystemExit(f"docs/site.py does not list {', '.join(missing)}")
    for source, name in known.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = pictured(text, (ROOT / source).parent, pages)
        (pages / name).write_text(linked(text, source, known), encoding="utf-8")
    for book in notebooks():
        (pages / f"{book.stem}.ipynb").write_text(ipynb(cells(book)), encoding="utf-8")
        with (pages / f"{book.stem}.md").open("a", encoding="utf-8") as page:
            page.write(f"\n[This page as a Jupyter notebook]({book.stem}.ipynb)\n")
    groups = {group: {title: known[each] for title, each in listed.items()}
              for group, listed in PAGES.items()} | library(pages)  # fmt: skip
    nav = ", ".join(
        "{{ {} = [{}] }}".format(quoted(group), ", ".join(
            f"{{ {quoted(title)} = {quoted(name)} }}" for title, name in listed.items()
        ))
        for group, listed in groups.items()
    )  # fmt: skip
    (out / "zensical.toml").write_text(CONFIG.format(nav=nav), encoding="utf-8")


def quoted(text: str) -> str:
    """As TOML has it."""
    return f'"{text}"'


def main() -> None:
    """Write, and build unless all is only checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--to", type=Path, default=OUT)
    said = parser.parse_args()
    write(said.to)
    if not said.check:
        program = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
        subprocess.run(program, cwd=said.to, check=True)
        sys.stdout.write(f"open {said.to.name}/html/index.html\n")


if __name__ == "__main__":
    main()
