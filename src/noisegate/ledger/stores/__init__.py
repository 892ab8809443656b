"""Where a ledger lives: SQLite, Postgres, memory."""
