"""The composition root: a policy, or a table and a budget, become a gate; keys are handed out.

Read `opening.py` first. `arrays.py` is a budget for arrays, `rehearsal.py` a door in front of
made-up rows, `stewards.py` what is done with a policy before anybody asks.
"""

from noisegate.connect.arrays import Memory, memory
from noisegate.connect.opening import ledger_beside, open, open_policy  # noqa: A004 - noisegate.open
from noisegate.connect.rehearsal import Rehearsal, made_up_rows
from noisegate.connect.stewards import (
    check_policy,
    check_rows,
    draft_policy,
    policy_page,
    policy_schema,
)

__all__ = [
    "Memory",
    "Rehearsal",
    "check_policy",
    "check_rows",
    "draft_policy",
    "ledger_beside",
    "made_up_rows",
    "memory",
    "open",
    "open_policy",
    "policy_page",
    "policy_schema",
]
