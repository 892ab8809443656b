"""One mechanism per file: what a use is (event), how it draws (sample), how far it errs (interval).

Each says itself which questions it takes (require) and by which sensitivity (takes).
Imports `transforms`, `noise`, `algebra`, `privacy`, `exact`, `errors`, and `planning` for how much
noise to buy. Read `base.py` first, then `geometric.py`; `catalogue.py` is the closed list.
"""
