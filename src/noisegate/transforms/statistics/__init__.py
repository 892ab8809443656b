"""Whole-number statistics of rows: what learners ask, and how far one row moves them."""
