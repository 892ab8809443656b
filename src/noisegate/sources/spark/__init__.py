"""Tables of a Spark cluster: statements go to the rows, whole numbers come back."""
