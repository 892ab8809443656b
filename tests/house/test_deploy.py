"""What is deployed says what the command understands: the unit for systemd, the Dockerfile."""

import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

from typer.main import get_command

from noisegate.cli import app
from noisegate.server.serve import PREFIX, Serving

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "noisegate.service").read_text()
DOCKER = (ROOT / "deploy" / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def line(text, name):
    """What follows a word at the beginning of a line, which stands there once."""
    (found,) = re.findall(rf"^{name}(.*)$", text, re.MULTILINE)
    return found.strip()


def parsed(words):
    """The command that a line gives, read as the shell and the command line read it."""
    root = get_command(app)  # whose settings a command keeps that is once made with them
    return root.commands["serve"].make_context("serve", list(words), **root.context_settings).params


def test_the_unit_starts_a_command_that_there_is():
    program, command, *words = shlex.split(line(UNIT, "ExecStart="))
    assert (Path(program).name, command) == ("noisegate", "serve")
    assert parsed(words)["settings"] == "/srv/noisegate/service.toml"
    name, _, value = line(UNIT, "Environment=").partition("=")
    known = {f"{PREFIX}{each.name.upper()}" for each in fields(Serving)}
    assert name in known
    assert value.startswith(f"/var/lib/{line(UNIT, 'StateDirectory=')}/")
    assert line(UNIT, "WorkingDirectory=") == line(UNIT, "ReadWritePaths=") == "/srv/noisegate"


def test_the_image_starts_a_command_that_there_is():
    assert shlex.split(line(DOCKER, "ENTRYPOINT").strip("[]").replace(",", " ")) == [
        "noisegate", "serve",
    ]  # fmt: skip
    asked = shlex.split(line(DOCKER, "# Run: docker run"))
    said = parsed(asked[asked.index("noisegate") + 1 :])
    assert (said["host"], said["port"]) == ("0.0.0.0", 8443)
    assert f"{said['port']}:{said['port']}" in asked
    assert said["settings"] == "/data/service.toml"
    assert "WORKDIR /data\n" in DOCKER


def test_both_let_questions_end_for_as_long():
    stop = re.search(r"--stop-timeout (\d+)", DOCKER)
    assert stop is not None
    assert int(stop[1]) == int(line(UNIT, "TimeoutStopSec="))


def test_the_image_is_built_from_what_there_is():
    for name in line(DOCKER, r"COPY (?!src|--from)").split()[:-1]:
        assert (ROOT / name).is_file(), name
    (package,) = re.findall(r"\"\.\[([a-z,]+)\]\"", DOCKER)
    assert set(package.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert "--constraint requirements.lock" in DOCKER
    versions = set(re.findall(r"^FROM python:(\S+)-slim", DOCKER, re.MULTILINE))
    least = PROJECT["requires-python"].removeprefix(">=")
    assert all(tuple(map(int, each.split("."))) >= (3, 11) for each in {*versions, least})
    assert len(versions) == 1


def test_systemd_understands_the_unit(tmp_path):
    """Where systemd is installed, by its own word."""
    assert re.findall(r"^\[(.*)\]$", UNIT, re.MULTILINE) == ["Unit", "Service", "Install"]
    if shutil.which("systemd-analyze") is None:
        return
    unit = tmp_path / "noisegate.service"
    here = UNIT.replace("/usr/local/bin/noisegate", "/bin/true").replace(
        "=noisegate\n", "=root\n", 1
    )
    unit.write_text(here)
    found = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    own = [each for each in found.stderr.splitlines() if unit.name in each]
    assert (found.returncode, own) == (0, [])
