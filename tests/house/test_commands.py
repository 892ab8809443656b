"""Every command keeps the same rules, so that a new one cannot forget them.

Help with an example, `--json`, `--plan` where something is paid for, and one meaning for each
option: the words up to the first colon are the same wherever it is taken.
"""

import json
import re
import shlex
import sys
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import takewhile

import pytest
from test_layers import SRC
from typer.main import get_command

from noisegate import errors
from noisegate.cli import app
from noisegate.cli.ending import ended
from noisegate.cli.help import EXAMPLES, EXIT_CODES, Command

ROOT = get_command(app)
TALKING = {"demo", "shell", "serve", "mcp"}  # with people, or by a protocol, until they are ended


def walk(command, path=()):
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(each, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(walk(ROOT))
every = pytest.mark.parametrize("name", COMMANDS)


def options(name):
    return {opt: each for each in COMMANDS[name].params for opt in each.opts if opt[:1] == "-"}


def run(*words):
    """The command line to its end, in this process: its code and what it printed."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["noisegate", *words])
        code = ended(ROOT)
    return code, out.getvalue(), err.getvalue()


@every
def test_help_has_headings_and_an_example_that_can_be_typed(name):
    assert isinstance(COMMANDS[name], Command)
    code, shown, _ = run(*name.split(), "-h")
    assert code == 0
    assert "\nExample:\n" in shown
    for line in EXAMPLES[name].splitlines():
        assert f"\n  {line}" in shown  # in one piece: to be copied
        words = list(takewhile(lambda word: word not in (">", ">>"), shlex.split(line)))
        start = 1 + len(name.split())
        assert words[:start] == ["noisegate", *name.split()]
        said = ["SELECT 1" if word[:1] == "@" else word for word in words[start:]]
        COMMANDS[name].make_context(
            name, said, **ROOT.context_settings
        )  # refuses options that there are not
    if {"--practice", "--epsilon"} <= options(name).keys():
        for heading in ("Price and error", "Output", "Table, unit and budget"):
            assert f"\n{heading}:\n" in shown


def test_there_is_no_example_of_a_command_that_is_gone():
    assert set(EXAMPLES) == set(COMMANDS)


@every
def test_json_is_printed_and_so_are_refusals(name):
    if name in TALKING:
        return
    assert "--json" in options(name)
    code, shown, told = run(*name.split(), "--json", "--no-such-option")
    error = json.loads(shown)["error"]
    assert (code, error["code"], set(error)) == (2, "usage", {"code", "message", "fix"})
    assert "no-such-option" in told


@every
def test_whoever_pays_can_see_the_price_first(name):
    taken = options(name)
    opens_a_gate = "--practice" in taken and name not in TALKING
    if opens_a_gate or ("--budget" in taken and name.startswith("owner")):
        assert {"--plan", "--json"} <= taken.keys()
    if opens_a_gate:
        assert {"--epsilon", "--confidence"} <= taken.keys() or name == "order"


@every
def test_sql_is_said_or_in_a_file_or_from_another_program(name, tmp_path):
    for each in COMMANDS[name].params:
        if each.name == "sql":
            (tmp_path / "q.sql").write_text("SELECT 7")
            context = COMMANDS[name].make_context(
                name, [], resilient_parsing=True, **ROOT.context_settings
            )
            assert each.process_value(context, f"@{tmp_path / 'q.sql'}") == "SELECT 7"
            assert "@FILE" in each.help


def test_an_option_means_the_same_everywhere():
    meanings = defaultdict(lambda: defaultdict(list))
    for name, command in COMMANDS.items():
        for each in command.params:
            if each.param_type_name == "option":
                meaning = re.split(r"[:.]", each.help)[0]
                meanings[each.opts[0]][meaning].append(name)
    several = {option: dict(found) for option, found in meanings.items() if len(found) > 1}
    assert several == {}
    assert set(meanings["--delta"]) == {"δ of the budget"}


def test_exit_codes_are_told_and_distinct():
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {each.exit_code for each in kinds if issubclass(each, errors.NoisegateError)}
    told = list(map(int, re.findall(r"\b(\d+) \w", EXIT_CODES)))
    assert codes | {0, 6, 130} <= set(told)
    assert len(told) == len(set(told))
    page = (SRC.parents[1] / "docs" / "reference.md").read_text()
    (written,) = re.findall(r"^Exit codes: (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    assert list(map(int, re.findall(r"(?:^|· )(\d+) ", written.replace("\n", " ")))) == told
