"""Models of where rows lie: k-means, mixtures, principal components, scaling."""
