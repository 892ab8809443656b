"""What is installed is what is imported: of the core, and of each extra."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULE = {  # where a package's module has another name
    "argon2-cffi": "argon2", "dp-accounting": "dp_accounting", "pyjwt": "jwt",
    "pyspark-client": "pyspark", "python-flint": "flint", "scikit-learn": "sklearn",
    "vl-convert-python": "vl_convert",
}  # fmt: skip
THEIRS = {"pandas", "polars", "IPython"}  # frames and notebooks of those who have them
BROUGHT = {  # by a package that is declared, and cannot do without it
    "anyio": "starlette", "joblib": "sklearn", "markdown_it": "rich", "markupsafe": "jinja2",
    "mcp_types": "mcp", "pydantic": "mcp",
}  # fmt: skip

NAMED = {"extra", "import_module"}


def modules(requirements):
    names = (re.match(r"[\w.-]+", each)[0].lower() for each in requirements)
    return {MODULE.get(name, name) for name in names}


def imported():
    """Top-level modules that the sources import, also by name."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in NAMED:
                found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    tops = {name.partition(".")[0] for name in found}
    return tops - set(sys.stdlib_module_names) - {"noisegate"}


def test_every_package_is_imported_and_every_import_is_declared():
    extras = PROJECT["optional-dependencies"]
    declared = modules(PROJECT["dependencies"])
    for name, requirements in extras.items():
        if name != "all":
            declared |= modules(requirements)
    used = imported()
    assert declared - used == set()
    assert used - declared - THEIRS == set(BROUGHT)
    assert set(BROUGHT.values()) <= declared
    everything = re.fullmatch(r"noisegate-dp\[(.*)\]", extras["all"][0])[1].split(",")
    assert set(everything) == set(extras) - {"all"}
