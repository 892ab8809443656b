"""The log held against itself and against what was noted elsewhere."""
