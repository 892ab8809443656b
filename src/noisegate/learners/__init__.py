"""Learners: programs on top of K that see rows through statistics alone."""
