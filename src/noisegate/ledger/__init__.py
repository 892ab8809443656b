"""The durable budget: charged before a row is read. Begin with `ledger.py`, then `rules.py`."""
