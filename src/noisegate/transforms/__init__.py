"""Stability: how far an exact answer can move when one unit comes or goes. One rule per file.

Imports `sources`, `privacy`, `errors`. Read `query.py` first: what every rule returns.
"""
