"""What is released: tables, maps, distribution functions, box plots, cubes of marginals."""
