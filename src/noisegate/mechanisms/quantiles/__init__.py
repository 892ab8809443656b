"""Quantiles by the exponential mechanism and what builds on them."""
