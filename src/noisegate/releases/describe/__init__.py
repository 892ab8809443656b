"""A table described: rows, missing values, means, quartiles and keys of its columns."""
