"""The cells of a release: axes, grid, workload, estimates over cells, and how they are finished."""
