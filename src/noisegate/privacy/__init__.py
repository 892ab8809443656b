"""The nouns: unit, distance, loss, event, guarantee, release, capability, and their theorems.

Imports only `errors` and `exact`. Read `event.py` first: everything else prices or prints events.
"""
