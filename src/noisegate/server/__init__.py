"""The gate as a place: many analysts reach it, and only noisy answers leave.

Read `service.py` first: what every face (HTTP, Postgres wire, agents, pages) asks for. `people.py`
says who somebody is, `store.py` keeps people, tokens, runs and the access log, `queue.py` lets
everybody have a turn, `results.py` is what leaves, `refusals.py` what is said instead.

Faces parse, authenticate, hand an order to the service and write what comes back. They hold no
rows: a mistake in them can waste budget, and cannot leak.
"""
