"""The durable budget: every charge is on disk before a row is read, every answer before it is seen.

Imports `accounting`, `privacy`, `errors`. Read `store.py` first: the contract all stores keep;
`rules.py` holds the transactions, written once for memory, SQLite and Postgres.
"""
