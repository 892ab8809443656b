"""Words become plans: SQL, what it would cost and how far it may be off, and the answer.

Imports `curator` and below, but never `sources` or `noise`. Read `gate.py` first.
"""
