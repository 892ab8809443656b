"""Tables of a Postgres server: statements go to the rows, whole numbers come back."""
