"""Recipes on two and more dimensions: grids, quadtrees, kd-trees, PrivTree."""
