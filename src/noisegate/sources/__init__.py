"""Where the rows live: engines that count and add whole numbers, and give nothing else out.

Imports `privacy`, `errors`. Read `source.py` first: the one thing an engine is asked to do.
"""
