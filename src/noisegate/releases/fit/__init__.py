"""Fits to noisy sums: marginal tables, multiplicative weights, posterior samples."""
