"""Trees over cells: dyadic and nested partitions, their priors, posteriors and errors."""
