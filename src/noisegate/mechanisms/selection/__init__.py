"""Which candidate, threshold or bound: exponential mechanism, noisy max, sparse vector."""
