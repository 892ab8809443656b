"""Any program on private rows, by sample and aggregate: its text, the order, what is released."""
