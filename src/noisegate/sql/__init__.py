"""Words become answers: SQL, what it would cost and how far it may be off, and what comes back.

Imports `curator` and below, but never `sources` or `noise`. Read `gate.py` first, then `run.py`:
`reading/` (SQL to blocks), `estimates/` (blocks to noise, noisy numbers to estimates), `shelf.py`
(what was released before), `outer.py` and `margins.py` (free SQL and its error bars), `answer.py`.
"""
