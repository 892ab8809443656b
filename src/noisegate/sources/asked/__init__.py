"""What engines have in common that are asked in statements, and send whole columns back."""
