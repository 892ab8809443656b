"""A face for Postgres clients: the wire protocol, and what such clients look at before they ask.

`messages` reads and writes the protocol, `scram` authenticates, `types` writes values, `commands`
and `statements` say what a statement is, `catalogue` answers from declared facts, `answering` asks
the service, `session` is one connection, `serving` listens.
"""
