"""Itemsets and rules, small databases for many queries, exponential families."""
