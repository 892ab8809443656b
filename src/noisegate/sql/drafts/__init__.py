"""From a block to what is measured and which noise its price buys. No row is touched."""
