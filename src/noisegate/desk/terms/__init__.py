"""What is said with an order, what the policy says about it, and the price that becomes noise."""
