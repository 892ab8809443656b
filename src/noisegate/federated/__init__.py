"""Sums of several parties without a trusted curator: the aggregator, who learns the sum only."""
