"""The command line: ask, plan, look into the ledger, learn what ε means.

Nothing heavy is imported before a command runs, so that help is quick. Read `options.py` first;
each folder holds the commands of some people, which are registered when its modules are imported.
"""

# ruff: noqa: F401 - imported to be registered

from noisegate.cli.analysts import apply, choose, learn, many, orders, questions, releases, robust
from noisegate.cli.lab import audits, lessons, trials
from noisegate.cli.options import app, main, run
from noisegate.cli.stewards import accounts, ledgers, owners, policies, serving

__all__ = ["app", "main", "run"]
