"""Commands on policies, ledgers, keys and the service."""
