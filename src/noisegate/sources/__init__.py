"""Where the rows live: engines that give out whole numbers per cell, and the policies of data sets.

Imports `algebra`, `privacy`, `errors`. Read `source.py` first: the four things an engine is asked.
`duckdb_*.py` write and run them; `policy*.py` read, draft, check and show policies; `practice.py`
makes up rows from a policy alone.
"""
