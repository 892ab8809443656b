"""SQL text to a `Question`: an untrusted reader, which can misread but cannot leak.

Read `reader.py` first. `sight.py` says which columns are in sight, `expressions.py` reads what is
computed from one row, `relations.py` FROM and WHERE, `per_unit.py` and `blocks.py` aggregation,
`statement.py` what the SQL says about paying. What has no meaning here is refused by name.
"""
