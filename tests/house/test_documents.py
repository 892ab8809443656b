"""The documents say what is there, and their examples run."""

import re
import shlex
import shutil
import subprocess
import sys

from test_layers import FLOOR_OF, SRC, python_files, room_of

import noisegate
from noisegate.cli import app, ledger_app

ROOT = SRC.parents[1]


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    shutil.copy(ROOT / "examples" / "clinic.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(block, scope)
    assert scope["answer"].columns == ("ward", "n")
    assert scope["gate"].ledger.verify().ok


def test_the_commands_of_the_readme_run(tmp_path):
    """Every `noisegate` line of the page, in order, on the rows that come with it."""
    for file in (ROOT / "examples").glob("*.csv"):
        shutil.copy(file, tmp_path)
    lines = re.findall(r"^\$ noisegate (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        words = [sys.executable, "-m", "noisegate", *shlex.split(line, comments=True)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    # the page shows the refusal that comes when the budget is used up
    fresh = next(line for line in lines if "--fresh" in line)
    words = [sys.executable, "-m", "noisegate", *shlex.split(fresh)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    page = " ".join((ROOT / "README.md").read_text().split())
    assert " ".join(done.stderr.split()) in page


def test_every_public_name_is_documented():
    documented = set(
        re.findall(r"^### `(\w+)`", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    )
    assert set(noisegate.__all__) == documented


def test_every_command_is_documented():
    text = (ROOT / "docs/reference.md").read_text()
    for command in app.registered_commands:
        assert f"`noisegate {command.name or command.callback.__name__}" in text
    for command in ledger_app.registered_commands:
        assert f"`noisegate ledger {command.name}" in text


def test_every_sampler_of_the_noise_room_is_documented():
    text = (ROOT / "docs/reference.md").read_text()
    names = re.findall(r"import (\w+) as \1", (SRC / "noise/__init__.py").read_text())
    assert len(names) > 8
    assert [name for name in names if name not in text] == []


def test_the_architecture_lists_every_room():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {room_of(file) for file in python_files()}
    assert rooms <= set(FLOOR_OF)
    assert [room for room in sorted(rooms) if f"`{room}`" not in text] == []


def test_the_changelog_knows_the_version():
    assert f"## {noisegate.__version__}" in (ROOT / "CHANGELOG.md").read_text()
