"""The tree is the walk of the data: rooms import downwards, and only some hold keys."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "noisegate"
FLOORS = (  # lowest first
    {"frozen"},
    {"inert", "arrow"},
    {"errors", "exact"},
    {"files", "extras", "sheets"},
    {"privacy"},
    {"algebra"},
    {"noise", "accounting", "sources", "isolated"},
    {"planning", "steward"},
    {"transforms"},
    {"mechanisms"},
    {"ledger"},
    {"curator"},
    {"desk"},
    {"sql"},
    {"programs", "releases"},
    {"federated", "synthetic", "robust"},
    {"crowd", "learners"},
    {"orders"},
    {"gate"},
    {"client"},
    {"root"},
    {"server"},
    {"audit", "lab"},
    {"dp", "shell"},
    {"cli"},
    {"__main__"},
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
SAME_FLOOR = {("exact", "errors")}
KEYLESS, KEYS = (
    {
        "desk",
        "sql",
        "programs",
        "federated",
        "releases",
        "synthetic",
        "robust",
        "learners",
        "crowd",
        "orders",
        "gate",
        "client",
        "server",
        "audit",
        "lab",
        "shell",
        "cli",
    },
    {"noise", "sources", "isolated"},
)


def room_of(file: Path) -> str:
    return file.relative_to(SRC).parts[0].removesuffix(".py")


def python_files() -> list[Path]:
    return [file for file in SRC.rglob("*.py") if file != SRC / "__init__.py"]


@cache
def read(file: Path) -> tuple[frozenset[str], dict[str, int]]:
    """What a file imports, and the lines of each function, the longest of a name: read once."""
    names: set[str] = set()
    functions: dict[str, int] = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: import by the full name"
            assert node.module != "noisegate", f"{file}: import from the defining module"
            names |= {_defining(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            functions[node.name] = max(lines, functions.get(node.name, 0))
    return frozenset(names), functions


def _defining(module: str, name: str) -> str:
    """The module that a name is imported from: itself, where it is one."""
    place = SRC.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else module


def imported_names(file: Path) -> frozenset[str]:
    return read(file)[0]


def imported_rooms(file: Path) -> set[str]:
    return {name.split(".")[1] for name in imported_names(file) if name.startswith("noisegate.")}


def test_every_room_has_a_floor():
    assert {room_of(file) for file in python_files()} <= set(FLOOR_OF)


def test_rooms_import_downwards_only():
    for file in python_files():
        room = room_of(file)
        for other in imported_rooms(file) - {room}:
            below = FLOOR_OF[other] < FLOOR_OF[room] or (room, other) in SAME_FLOOR
            assert below, f"{file.relative_to(SRC)} may not import noisegate.{other}"


def test_folders_of_a_room_import_each_other_one_way_only():
    folders = {init.parent for init in SRC.glob("*/*/__init__.py")}
    uses = {
        each: {
            other
            for other in folders - {each}
            if other.parent == each.parent
            and any(
                f"{name}.".startswith(f"noisegate.{other.parent.name}.{other.name}.")
                for file in each.rglob("*.py")
                for name in imported_names(file)
            )
        }
        for each in folders
    }
    assert tuple(TopologicalSorter(uses).static_order())  # refuses circles


def test_no_module_leads_back_to_itself():
    """Imports for types and inside functions count, too: what two files share lies below both."""
    named = {
        ".".join(file.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__"): file
        for file in python_files()
    }
    uses = {name: imported_names(file) & named.keys() - {name} for name, file in named.items()}
    assert tuple(TopologicalSorter(uses).static_order())  # refuses circles


def test_rooms_above_the_door_hold_no_key():
    for file in python_files():
        held = imported_rooms(file) & KEYS if room_of(file) in KEYLESS else set()
        assert not held, f"{file.relative_to(SRC)} holds no key to {held}"


def test_the_package_imports_nothing_heavy():
    tree = ast.parse((SRC / "__init__.py").read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in top if isinstance(node, ast.ImportFrom)] == ["typing"]
    assert not [node for node in top if isinstance(node, ast.Import)]
