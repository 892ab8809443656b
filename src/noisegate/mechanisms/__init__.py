"""One mechanism per file: what a use is (event), how it draws (sample), how far it errs (interval).

Imports `noise`, `privacy`, `exact` and `errors`. Read `base.py` first, then `geometric.py`.
"""
