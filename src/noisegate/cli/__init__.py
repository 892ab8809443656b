"""The command line: ask, plan, look into the ledger, learn what ε means.

Nothing heavy is imported before a command runs, so that help is quick. Read `app.py` first; each
folder holds the commands of some people.
"""

from noisegate.cli.analysts import (
    apply,
    choose,
    describe,
    learn,
    many,
    orders,
    questions,
    releases,
    robust,
)
from noisegate.cli.app import (
    account_app,
    app,
    key_app,
    lab_app,
    ledger_app,
    main,
    owner_app,
    policy_app,
    token_app,
)
from noisegate.cli.lab import audits, lessons, trials
from noisegate.cli.stewards import accounts, agents, ledgers, owners, policies, serving, signing

__all__ = [
    "account_app",
    "accounts",
    "agents",
    "app",
    "apply",
    "audits",
    "choose",
    "describe",
    "key_app",
    "lab_app",
    "learn",
    "ledger_app",
    "ledgers",
    "lessons",
    "main",
    "many",
    "orders",
    "owner_app",
    "owners",
    "policies",
    "policy_app",
    "questions",
    "releases",
    "robust",
    "serving",
    "signing",
    "token_app",
    "trials",
]
