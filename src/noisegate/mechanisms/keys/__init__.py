"""Partition selection: which keys or sparse cells are shown."""
