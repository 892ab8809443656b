"""Scalar expressions of SQL: arithmetic, decimals, dates and times, strings."""
