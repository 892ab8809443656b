"""Contribution bounds and value bounds of a question: declared, implied, or found privately."""
