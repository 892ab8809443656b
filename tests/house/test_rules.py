"""Rules of the house that no linter knows."""

import ast
import inspect
import re
import subprocess
from pathlib import Path

from test_layers import SRC, imported_names, python_files, read, room_of

import noisegate.noise

ROOT = SRC.parents[1]


def test_only_the_bit_source_touches_randomness():
    banned = {"random", "secrets", "numpy.random"}
    tokens = {"secrets"}  # of people, which are not noise
    for file in python_files():
        allowed = tokens if room_of(file) == "server" else set()
        assert not (banned - allowed) & imported_names(file), (
            f"{file}: take `bits` as an argument instead"
        )
        text = file.read_text()
        public = file == SRC / "releases" / "cells" / "chance.py"  # of what is released already
        assert public or "np.random" not in text, f"{file}: take `bits`, or releases.chance"
        assert "urandom" not in text or file.name == "bits.py", f"{file}: use noise.bits"


def test_no_public_sampler_takes_a_seed():
    for name in dir(noisegate.noise):
        thing = getattr(noisegate.noise, name)
        if inspect.isfunction(thing):
            taken = {"seed", "rng", "random_state", "generator"} & set(
                inspect.signature(thing).parameters
            )
            assert not taken, f"{name} takes {taken}"


def test_functions_stay_short():
    for file in python_files():
        for name, lines in read(file)[1].items():
            assert lines <= 60, f"{file.name}:{name} has {lines} lines; split it"


def test_modules_stay_one_concept():
    for file in python_files():
        assert len(file.read_text().splitlines()) <= 500, f"{file} is long; split it"


def test_every_citation_is_in_the_references():
    known = set(
        re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text(), re.MULTILINE)
    )
    for file in python_files():
        for line in file.read_text().splitlines():
            for group in re.findall(r"\[([^\]]*)\]", line):
                keys = re.findall(r"\b([A-Z][A-Za-z]*\d\d)\b", group)
                missing = [key for key in keys if key not in known]
                assert not missing, f"{file.name} cites {missing}: add to docs/references.bib"


def test_every_mechanism_and_accountant_states_its_claim():
    for room in ("mechanisms", "accounting"):
        for file in (SRC / room).rglob("*.py"):
            tree = ast.parse(file.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    for item in node.body:
                        is_event = isinstance(item, ast.FunctionDef) and item.name == "event"
                        if is_event and not item.decorator_list:
                            doc = ast.get_docstring(item) or ""
                            for word in ("Claim:", "Adjacency:", "Why:"):
                                assert word in doc, f"{file.name} {node.name}.event lacks {word}"


def test_no_two_classes_of_a_room_share_a_name():
    """But for what each engine has of its own kind, and a recipe that is called as its table."""
    alike = {("sources", "Place"), ("sources", "Stored"), ("releases", "Marginals")}
    seen = {}
    for file in SRC.rglob("*.py"):
        room = file.relative_to(SRC).parts[0]
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                seen.setdefault((room, node.name), []).append(file.name)
    assert {name for name, files in seen.items() if len(files) > 1} == alike


def test_dataclasses_are_those_that_are_quick_to_make():
    """But for one with an ``InitVar``."""
    for file in SRC.rglob("*.py"):
        said = re.findall(
            r"^from dataclasses import (.*)|^import dataclasses", file.read_text(), re.MULTILINE
        )
        assert file.name == "frozen.py" or all("InitVar" in each for each in said), file.name


def test_no_writer_reader_or_node_of_sqlglot_is_inherited_from():
    """Its compiled build (`sqlglotc`, which other packages bring along) forbids that when used."""
    for file in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                for base in map(ast.unparse, node.bases):
                    compiled = base.endswith((".Generator", ".Parser")) or base.startswith("exp.")
                    assert not compiled, f"{file.name} {node.name}"


def test_no_file_names_a_machine_or_a_registry():
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    hosts = re.compile(r"https?://[^\s\"']*(pypi|simple/|registry\.)")
    homes = re.compile(r"(?<![\w./])/(work|root|home|farm)/\w")
    for name in filter(lambda name: (ROOT / name).is_file(), files.stdout.splitlines()):
        text = (ROOT / name).read_text(errors="ignore")
        assert not hosts.search(text), f"{name} names a registry"
        assert not homes.search(text), f"{name} names a path of a machine"


def test_help_imports_nothing_heavy():
    code = "import noisegate.cli, sys; print(sorted({m.split('.')[0] for m in sys.modules}))"
    python = Path(__import__("sys").executable)
    loaded = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "duckdb", "sqlglot", "scipy", "flint", "cryptography", "pandas"):
        assert f"'{heavy}'" not in loaded, f"`noisegate --help` imports {heavy}"


def test_every_test_that_the_security_page_names_exists():
    named = re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text())
    defined = {
        found
        for file in (ROOT / "tests").rglob("test_*.py")
        for found in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 40
    assert set(named) <= defined
    files = re.findall(r"`((?:tests|src)/[\w/.]+)`", (ROOT / "SECURITY.md").read_text())
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_every_test_that_make_quick_names_exists():
    """One that does not makes pytest run none of the others."""
    (named,) = re.findall(
        r"^QUICK := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    whole, units = named.split("$(addprefix tests/unit/,")
    files = re.findall(r"tests/[\w/.]+", whole)
    files += [f"tests/unit/{file}" for file in re.findall(r"[\w/]+\.py", units)]
    assert len(files) > 15
    assert [file for file in files if not (ROOT / file).exists()] == []
