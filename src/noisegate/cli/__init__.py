"""The command line: ask, plan, look into the ledger, learn what ε means.

Nothing heavy is imported before a command runs, so that help is quick. Read `app.py` first.
"""

from noisegate.cli import (
    accounts,
    agents,
    apply,
    audits,
    choose,
    describe,
    labs,
    learn,
    ledgers,
    lessons,
    many,
    orders,
    questions,
    releases,
    robust,
    serving,
    signing,
    stewards,
)
from noisegate.cli.app import (
    account_app,
    app,
    key_app,
    lab_app,
    ledger_app,
    main,
    policy_app,
    token_app,
)

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
    "labs",
    "learn",
    "ledger_app",
    "ledgers",
    "lessons",
    "main",
    "many",
    "orders",
    "policy_app",
    "questions",
    "releases",
    "robust",
    "serving",
    "signing",
    "stewards",
    "token_app",
]
