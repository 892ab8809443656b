"""What WHERE, joins and public facts say about the values that rows can have."""
