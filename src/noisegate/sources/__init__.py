"""Where the rows live: engines that give out whole numbers per cell, and the policies of data sets.

Imports `algebra`, `privacy`, `errors`. Read `source.py` first: the things an engine is asked.
`duckdb/` writes and runs them; `policy/` reads policies.
"""
