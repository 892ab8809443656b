"""The page of the talks: rows are whole, and every command is there, with the options it is given."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from noisegate.cli.options import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/decks.md").read_text()
FACTS = dict(re.findall(r'^([PFV])="(.*)"$', PAGE, re.MULTILINE))
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| 00\d.* \| .* \| .* \| ", line)]


def parsed(command):
    """Read a command line as the shell hands it over, without running it."""
    words = shlex.split(re.sub(r"\$([PFV])", lambda found: FACTS[found[1]], command))
    found, context, name, rest = typer.main.get_command(app), None, words[0], words[1:]
    while True:
        context = found.make_context(name, list(rest), parent=context)
        if not hasattr(found, "resolve_command"):
            return context
        name, found, rest = found.resolve_command(context, rest)


def test_every_row_has_all_its_columns_and_lives_somewhere():
    assert len(ROWS) > 70
    assert [line for line in ROWS if line.count("|") != 8] == []
    lives = " ".join(line.split(" | ")[3] for line in ROWS)
    places = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py)?)`", lives))
    files = {str(path) for path in (ROOT / "src/noisegate").rglob("*")}
    known = {
        each
        for each in places
        for path in files
        if path.removesuffix(".py").endswith(f"/{each.removesuffix('.py')}")
    }
    assert places - known == set()


def test_every_command_of_a_row_can_be_read():
    """Whether it also runs, and what it shows, takes minutes: that is tried by hand."""
    found = [each for line in ROWS for each in re.findall(r"`(noisegate [^`]* [^`]*)`", line)]
    commands = [each for each in found if not each.endswith("--help")]
    assert len(commands) > 80
    groups = [each for each in commands if hasattr(parsed(each).command, "commands")]
    assert groups == []


def test_a_wrong_option_is_noticed():
    with pytest.raises(Exception, match="No such option: --nope"):
        parsed('noisegate ask people.csv "SELECT 1" --nope 3')
