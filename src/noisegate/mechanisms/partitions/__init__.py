"""Which partition of the cells, or which query, to measure next."""
