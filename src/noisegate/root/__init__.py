"""The composition root: a policy, or a table and a budget, become a gate; keys are handed out.

Read `opening.py` first, then `hosting.py`, which is for policies; `parts.py` is what both are made
of. `arrays.py` is a budget for
arrays, `rehearsal.py` a door in front of made-up rows, `stewards.py` what is done with a policy
before anybody asks. Each is loaded when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisegate.root.arrays import Memory as Memory
    from noisegate.root.arrays import memory as memory
    from noisegate.root.drafting import draft_policy as draft_policy
    from noisegate.root.hosting import Hosted as Hosted
    from noisegate.root.hosting import open_policy as open_policy
    from noisegate.root.opening import open as open  # noqa: A004 - noisegate.open
    from noisegate.root.parts import ledger_beside as ledger_beside
    from noisegate.root.rehearsal import Rehearsal as Rehearsal
    from noisegate.root.rehearsal import made_up_rows as made_up_rows
    from noisegate.root.stewards import Amendment as Amendment
    from noisegate.root.stewards import amendment as amendment
    from noisegate.root.stewards import check_policy as check_policy
    from noisegate.root.stewards import check_rows as check_rows
    from noisegate.root.stewards import policy_page as policy_page
    from noisegate.root.stewards import policy_schema as policy_schema
    from noisegate.sources.policy.policy import read_policy as read_policy
    from noisegate.sources.policy.purposes import PURPOSE as PURPOSE
    from noisegate.sources.stopping import Stop as Stop
    from noisegate.sources.stopping import stopping as stopping

_HOME = {
    "Memory": "arrays", "memory": "arrays",
    "Hosted": "hosting", "ledger_beside": "parts", "open": "opening", "open_policy": "hosting",
    "Rehearsal": "rehearsal", "made_up_rows": "rehearsal",
    "Amendment": "stewards", "amendment": "stewards",
    "check_policy": "stewards", "check_rows": "stewards", "draft_policy": "drafting",
    "policy_page": "stewards", "policy_schema": "stewards", "read_policy": ".sources.policy.policy",
    "PURPOSE": ".sources.policy.purposes",
    "Stop": ".sources.stopping", "stopping": ".sources.stopping",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _HOME:
        raise AttributeError(f"module 'noisegate.root' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", "noisegate.root"), name)
