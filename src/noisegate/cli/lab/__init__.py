"""Commands that teach, try and audit."""
