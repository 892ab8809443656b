"""Stability: whose rows a relation holds, and how far one unit can move an exact answer.

Imports `algebra`, `privacy`, `errors`. Read `stability.py` first (owners), then `query.py`
(sensitivities); `restrict.py` cuts a question to some keys.
"""
