"""Private multiplicative weights: lists of counting questions, and sessions of many."""
