"""Words become answers: SQL, what it would cost and how far it may be off, and what comes back.

Imports `curator` and below, but never `sources` or `noise`. Read `job.py` first, the steps of a
question: `reading/` (SQL to blocks), `steps/` (terms, what is ordered and shown), `drafts/` (noise
for a price), `reuse/` (what was released before), `estimates/`, `outer/` (free SQL and its error
bars). `choices/` is a job of its own.
"""
