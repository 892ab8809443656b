"""The free SQL over released tables: run by an engine of its own, followed by error bars."""
