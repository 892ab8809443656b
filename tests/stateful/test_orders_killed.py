"""Kills at random moments, by the thousand: nothing over, nothing lost, nothing drawn twice.

A few of them always; 100,000 kills and races, and every kind of order, with `make audit`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from orders import ORDERS

HERE = Path(__file__).parent
NEVER = ("lost", "over", "redrawn", "unsound", "failed", "unpaid")


def counted(script, *words):
    """The counts of a storm, which must have done no harm."""
    command = [sys.executable, HERE / script, *map(str, words)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    counts = json.loads(found.stdout.splitlines()[-1])
    print(script, counts)  # noqa: T201 - shown where it fails
    assert {name: counts[name] for name in NEVER if counts.get(name)} == {}
    return counts


def test_killed_and_racing_processes_lose_nothing_and_pass_no_budget(quick_path):
    counts = counted("storm.py", quick_path, 300)
    assert min(counts["kills"], counts["races"]) > 10


def test_an_order_killed_at_random_is_charged_for_what_was_seen(quick_path):
    counted("order_storm.py", quick_path, 2, "many")


@pytest.mark.audit
@pytest.mark.parametrize("half", [1, 2])
def test_100_000_kills_and_races_lose_nothing_and_pass_no_budget(half, quick_path, capsys):
    """Two halves for two cores: about a third of each are kills. Seven minutes."""
    counts = counted("storm.py", quick_path, 50_000)
    assert counts["kills"] > 5_000
    with capsys.disabled():
        print(f"\nhalf {half} of the kills and races: {counts}")  # noqa: T201


@pytest.mark.audit
def test_1_000_kills_and_races_on_a_server_lose_nothing(server, quick_path):
    counted("storm.py", quick_path, 1_000, server.fresh())


@pytest.mark.audit
@pytest.mark.parametrize("order", ORDERS)
def test_every_kind_of_order_killed_at_random_is_charged_for_what_was_seen(order, quick_path):
    counted("order_storm.py", quick_path, 10, order)
