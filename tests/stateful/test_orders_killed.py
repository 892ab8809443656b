"""Kills at random moments, by the thousand: nothing over, nothing lost, nothing drawn twice.

A few of them always; 100,000 kills and races, and every kind of order, with `make audit`. A kill
counts if it came amid an order or request that had begun and not ended.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from orders import ORDERS

HERE = Path(__file__).parent
NEVER = ("lost", "over", "redrawn", "unsound", "failed", "unpaid")
FEW = ("sql", "undeclared_keys", "series", "histogram", "many")


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
    counts = counted("storm.py", quick_path, 120, "", *FEW)
    assert min(counts["kills"], counts["races"]) > 10


@pytest.mark.long
def test_an_order_killed_at_random_is_charged_for_what_was_seen(quick_path):
    counted("order_storm.py", quick_path, 2, "", "many")


BROKEN = {
    "it shows what it drew, not what was stored": (
        "ledger.Ledger", "_settle_request",
        "lambda ledger, name, answer: (was(ledger, name, answer), answer)[1]",
    ),
    "it shows what it did not store": ("ledger.Ledger", "_settle_request", "lambda *words: words[2]"),
    "it looks at what is spent, not at the price": (
        "account.Prices", "fits", "lambda prices, account, _: account.spent <= prices.limit(account)",
    ),
    "it runs an allowance again": ("rules.Rules", "_resume", "lambda *_: None"),
}  # fmt: skip
SABOTAGE = """
import sys
sys.path.insert(0, {here!r})
import storm
from noisegate.ledger import account, ledger, rules
was = {owner}.{method}
{owner}.{method} = {broken}
storm.main({directory!r}, 100, "", "sql", "histogram")
"""


@pytest.mark.audit
@pytest.mark.parametrize("fault", BROKEN)
def test_that_check_catches_a_ledger_that_is_broken(fault, quick_path):
    owner, method, broken = BROKEN[fault]
    script = SABOTAGE.format(
        here=str(HERE), owner=owner, method=method, broken=broken, directory=str(quick_path)
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    counts = json.loads(found.stdout.splitlines()[-1])
    assert any(counts.get(name) for name in NEVER)


HALVES = list(ORDERS)[0::2], list(ORDERS)[1::2]
TOTAL = 100_000  # kills and races, of which
AT_THE_DOOR = 100  # kills of each order, or a tenth of that of one that runs by the clock
ON_A_SERVER = 1_000  # kills and races


@pytest.mark.audit
@pytest.mark.parametrize("half", [0, 1])
def test_100_000_kills_and_races_lose_nothing_and_pass_no_budget(
    half, server, quick_path, record_property
):
    """Two halves for two cores: orders through the door, and their requests on both ledgers."""
    few = "sql", "series", "histogram", "many"
    kinds = {
        "orders, SQLite": counted("order_storm.py", quick_path, AT_THE_DOOR, "", *HALVES[half]),
        "orders, Postgres": counted("order_storm.py", quick_path, 10, server.fresh(), *few),
        "requests, Postgres": counted("storm.py", quick_path, ON_A_SERVER, server.fresh()),
    }
    rest = TOTAL // 2 - sum(each["kills"] + each["races"] for each in kinds.values())
    kinds["requests, SQLite"] = counted("storm.py", quick_path, rest)
    for name, each in kinds.items():
        record_property("counts", f"{name}: {each['kills']:,} kills, {each['races']:,} races")
    assert sum(each["kills"] + each["races"] for each in kinds.values()) >= TOTAL // 2
    assert all(each["kills"] > 0 for each in kinds.values())
