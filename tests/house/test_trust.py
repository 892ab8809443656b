"""What has to be trusted is listed, counted, and does not grow unseen."""

import json
import subprocess
import sys

import pytest
from test_layers import FLOOR_OF, SRC, imported_names, imported_rooms, python_files, room_of

HOUSE = SRC.parents[1] / "tests" / "house"
TRUSTED, UNTRUSTED, RING = (
    (HOUSE / name).read_text().split()
    for name in ("trusted.txt", "untrusted.txt", "inner_ring.txt")
)
BASE_MAX, RING_MAX = 15_000, 4_000
# What a plain question needs of each room that has optional parts; all else is loaded when used.
NEEDED = {
    "mechanisms": {"base", "catalogue", "additive", "additive.geometric", "additive.gaussian"},
    "isolated": set(),
    "curator": {"curator", "kept", "measurement", "quietly"},
    "transforms": {"checks", "query", "records", "stability"},
    "accounting": {"accountant", "accountants", "pure", "rules", "search", "tails"},
    "planning": {"calibrate"},
    "steward": set(),
}
# The only trusted code that uses untrusted rooms: how much noise to buy, and made-up rows.
EDGES = {("mechanisms", "planning"), ("curator", "steward")}
PLAIN = """
import json, sys
import noisegate
gate = noisegate.open("people.csv", epsilon=3, columns={"ward": {"in": ["n", "s"]}, "age": {"between": [0, 99]}})
gate.plan("SELECT COUNT(*) FROM people", epsilon=1)
gate.sql("SELECT COUNT(*) FROM people", epsilon=1)
gate.sql("SELECT ward, COUNT(*), SUM(age) FROM people GROUP BY ward", epsilon=1)
print(json.dumps([name for name in sys.modules if name.startswith("noisegate.")]))
"""


def lines(file):
    return len(file.read_text().splitlines())


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The modules that are loaded for a count, and for counts and sums by group, of a CSV file."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "people.csv").write_text("ward,age\nn,30\ns,40\n")
    found = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=folder, capture_output=True, text=True, check=True
    )
    return [name.removeprefix("noisegate.") for name in json.loads(found.stdout)]


def file_of(module):
    place = SRC.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def test_every_room_up_to_the_door_is_trusted_or_said_not_to_be():
    rooms = {room_of(file) for file in python_files()}
    below = {room for room in rooms if FLOOR_OF[room] <= FLOOR_OF["curator"]} | {"root"}
    assert below == {*TRUSTED, *UNTRUSTED}
    assert not {*TRUSTED} & {*UNTRUSTED}


def test_trusted_rooms_lean_on_untrusted_ones_only_where_it_is_said():
    for file in python_files():
        room = room_of(file)
        if room in TRUSTED and room != "root":  # which puts the gate together
            leaning = {(room, other) for other in imported_rooms(file) if other not in TRUSTED}
            assert leaning <= EDGES, f"{file.relative_to(SRC)} trusts {leaning - EDGES}"


def test_what_helps_a_steward_reads_policies_and_no_rows():
    for file in (SRC / "steward").glob("*.py"):
        for name in imported_names(file):
            keys = name.startswith(("noisegate.sources", "noisegate.noise", "noisegate.isolated"))
            assert not keys or name.startswith("noisegate.sources.policy."), f"{file.name}: {name}"


def test_the_inner_ring_can_be_read_in_an_afternoon():
    assert len(RING) == len(set(RING))
    assert {name.split("/")[0] for name in RING} <= set(TRUSTED)
    assert sum(lines(SRC / name) for name in RING) <= RING_MAX


def test_a_plain_question_loads_little_of_what_is_trusted(loaded):
    trusted = [name for name in loaded if name.split(".")[0] in TRUSTED]
    assert sum(lines(file_of(name)) for name in trusted) <= BASE_MAX


def test_optional_capabilities_are_not_loaded_for_a_plain_question(loaded):
    for room, needed in NEEDED.items():
        found = {name.removeprefix(f"{room}.") for name in loaded if name.startswith(f"{room}.")}
        assert found <= needed, f"{room}: {sorted(found - needed)} should be loaded when used"
