"""How a recipe orders and asks: its terms, shares of the price, transcript, provenance."""
