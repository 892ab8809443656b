"""Runs the notebooks and writes their pages.

    python docs/notebooks.py                   runs all, writes docs/notebooks/pages
    python docs/notebooks.py hospital          runs one
    python docs/notebooks.py --ipynb folder    writes all as .ipynb files, which are not run

A notebook is a Python file whose cells begin with ``# %%``, as editors and Jupytext read it; text
stands in ``# %% [markdown]`` cells. Tags: ``# %% tags=["parameters"]`` is a cell of numbers that
a test makes smaller, ``hide`` folds the code of a cell away, ``refused`` says that it ends with a
refusal. What a cell ends with is shown as Jupyter shows it. Noise differs from run to run.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"
PAGES = FOLDER / "pages"
HEAD = re.compile(r"^# %%(.*)$", re.MULTILINE)
IMAGE = re.compile(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]+)" ?/?>')
LARGE = 120_000  # bytes: a map of thousands of squares is smaller as an image
FORMS = ("image/svg+xml", "text/markdown", "text/html", "text/plain")  # the first is shown
TAGS = {"refused": "raises-exception", "hide": "hide-input", "parameters": "parameters"}
Shown = dict[str, str]


@dataclass
class Cell:
    """A part of a notebook, and what it showed."""

    text: str
    code: bool
    tags: frozenset[str] = frozenset()
    shown: list[Shown] = field(default_factory=list)


def notebooks() -> list[Path]:
    """All of them, by name."""
    return sorted(FOLDER.glob("*.py"))


def cells(file: Path) -> list[Cell]:
    """The cells of a notebook."""
    _, *parts = HEAD.split(file.read_text(encoding="utf-8"))
    found = []
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        code = "[markdown]" not in head
        text = body.strip("\n")
        if not code:
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n"))
        found.append(Cell(text, code, frozenset(re.findall(r'"(\w+)"', head))))
    return found


def bundle(thing: Any) -> Shown:  # noqa: ANN401 - whatever a cell ends with
    """How Jupyter would show it; a chart of altair's is drawn, and needs no network."""
    if type(thing).__module__.startswith("altair."):
        from noisegate.desk.display.drawing import svg  # noqa: PLC0415 - the site is built without it

        if not hasattr(thing.padding, "keys"):  # letters may be wider than measured
            thing = thing.properties(padding={"left": 16, "top": 5, "right": 48, "bottom": 5})
        return {FORMS[0]: svg(thing)}
    if hasattr(thing, "_repr_mimebundle_"):
        return dict(thing._repr_mimebundle_())
    names = {"_repr_svg_": FORMS[0], "_repr_markdown_": FORMS[1], "_repr_html_": FORMS[2]}
    found = {form: getattr(thing, name)() for name, form in names.items() if hasattr(thing, name)}
    return {form: text for form, text in found.items() if text} | {"text/plain": repr(thing)}


def run(
    file: Path, render: Callable[[Any], Shown] = bundle, **parameters: object
) -> tuple[list[Cell], dict[str, Any]]:
    """Run all cells in a folder of their own: the cells with what they showed, and the names."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    found = cells(file)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in found:
            if cell.code:
                cell.shown = list(_ran(cell, scope, render))
            if "parameters" in cell.tags:
                unknown = parameters.keys() - scope.keys()
                if unknown:
                    raise KeyError(f"{file.name} has no parameter {min(unknown)}.")
                scope.update(parameters)
    return found, scope


def _ran(cell: Cell, scope: dict[str, Any], render: Callable[[Any], Shown]) -> Iterator[Shown]:
    """Run one cell; what it printed comes first, then what it ends with."""
    tree = ast.parse(cell.text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value, refused = io.StringIO(), None, ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(tree, "<cell>", "exec"), scope)  # noqa: S102 - a notebook is run
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), scope)  # noqa: S307
        except Exception as error:
            from noisegate.desk.display.notebook import shown_refusal  # noqa: PLC0415 - built without it

            if "refused" not in cell.tags or not hasattr(error, "fix"):
                raise
            refused = "\n".join(shown_refusal(error))
    if "refused" in cell.tags and not refused:
        raise AssertionError(f"This was not refused: {cell.text}")
    if said := printed.getvalue() + refused:
        yield {"text/plain": said.rstrip("\n")}
    if value is not None and not cell.text.rstrip().endswith(";"):
        yield render(value)


def page(name: str, ran: list[Cell]) -> dict[str, bytes]:
    """The files of a page: Markdown, and its pictures by name."""
    pictures: dict[str, bytes] = {}

    def drawn(svg: str) -> str:
        label, held = f"{name}-{len(pictures) + 1}.svg", svg.strip().encode() + b"\n"
        if len(held) > LARGE:
            import vl_convert  # noqa: PLC0415 - the site is built without it

            label, held = label.replace(".svg", ".png"), vl_convert.svg_to_png(svg, scale=1)
        pictures[label] = held
        return f"![chart]({label})"

    parts = []
    for cell in ran:
        if not cell.code:
            parts.append(cell.text)
            continue
        block = f"```python\n{cell.text}\n```"
        parts.append(folded("Code", block) if "hide" in cell.tags else block)
        parts += [_written(shown, drawn) for shown in cell.shown]
    return {f"{name}.md": ("\n\n".join(parts) + "\n").encode(), **pictures}


def folded(title: str, text: str) -> str:
    """Markdown that is seen when its title is clicked on."""
    return f"<details markdown><summary>{title}</summary>\n\n{text}\n\n</details>"


def _written(shown: Shown, drawn: Callable[[str], str]) -> str:
    """What a cell showed, as Markdown."""
    form = next(each for each in FORMS if each in shown)
    text = shown[form]
    if form == FORMS[0]:
        return drawn(text)
    if form == FORMS[1]:
        title, _, rest = text.strip().partition("\n")
        return folded(title.lstrip("# "), rest.strip())
    if form != FORMS[2]:
        return f"```text\n{text}\n```"
    bare = re.sub(r"<style.*?</style>|\n\s*", "", text, flags=re.DOTALL)
    bare = re.sub(r'<table border="1" class="dataframe">', "<table>", bare)  # as pages have them
    bare = bare.replace(' style="text-align: right;"', "")
    parts = IMAGE.split(bare)  # every second one is a picture
    return "\n\n".join(
        drawn(base64.b64decode(part).decode()) if place % 2 else f"<div>{part}</div>"
        for place, part in enumerate(parts)
        if part
    )


def ipynb(parts: list[Cell]) -> str:
    """A notebook in Jupyter's own format, without outputs; a refusal does not end its run."""
    made = [
        {"cell_type": "code", "execution_count": None, "outputs": [], "source": each.text}
        if each.code
        else {"cell_type": "markdown", "source": each.text}
        for each in parts
    ]
    about = [
        {"tags": tags, **({"jupyter": {"source_hidden": True}} if "hide" in each.tags else {})}
        if (tags := [TAGS[name] for name in sorted(each.tags)])
        else {}
        for each in parts
    ]
    listed = [
        {"id": f"cell-{n}", "metadata": metadata, **each}
        for n, (metadata, each) in enumerate(zip(about, made, strict=True))
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    whole = {"cells": listed, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Run notebooks, or write them as .ipynb files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ipynb", type=Path)
    said = parser.parse_args()
    for file in notebooks():
        if said.names and file.stem not in said.names:
            continue
        if said.ipynb:
            said.ipynb.mkdir(parents=True, exist_ok=True)
            (said.ipynb / f"{file.stem}.ipynb").write_text(ipynb(cells(file)), encoding="utf-8")
            continue
        made = page(file.stem, run(file)[0])
        PAGES.mkdir(exist_ok=True)
        for former in PAGES.glob(f"{file.stem}-[0-9]*"):
            former.unlink()
        for label, held in made.items():
            (PAGES / label).write_bytes(held)
        sys.stdout.write(f"{file.stem}: {len(made) - 1} pictures\n")


if __name__ == "__main__":
    main()
