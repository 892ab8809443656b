"""Blending in a crowd: exact counts of a secret sample, the small ones not shown."""
