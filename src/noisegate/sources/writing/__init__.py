"""The SQL that touches rows, written from the algebra, total on every row."""
