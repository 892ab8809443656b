"""What may be said about rows: a closed language of expressions, relations and tallies.

Syntax and facts only: nothing here reads a row or claims privacy. Imports `privacy`, `errors`,
`exact`. Read `expression.py`, then `relation.py`, then `tally.py`.
"""
