"""The policy file: its form, names, tables and columns; drafts, checks and the page."""
