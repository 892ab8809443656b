"""Numbers that single rows rarely move: quantiles and graphs with noise by what the rows allow."""
