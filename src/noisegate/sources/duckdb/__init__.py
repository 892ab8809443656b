"""Rows in DuckDB: opening files and databases, types, checks, one pass per question."""
