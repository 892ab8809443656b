"""Releases: measured once, used forever. What to measure, and how to rebuild a table from it."""
