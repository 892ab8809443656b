"""What was released before, and which new questions it answers at no cost."""
