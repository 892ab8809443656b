"""Commands that ask, release and learn."""
