"""Where programs that nobody trusts run on rows: one block each, locked in, for a fixed time.

Imports `errors`. Read `cell.py` first: what a program is given and what comes back. `template.py`
is the clean process that a fresh child is copied from for each block, `lockdown.py` what a child
cannot do.
"""
