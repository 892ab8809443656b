"""Summaries of tables too large to list."""
