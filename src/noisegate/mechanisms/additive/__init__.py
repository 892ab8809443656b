"""Noise added to whole numbers: geometric, Gaussian, Laplace, box noise."""
