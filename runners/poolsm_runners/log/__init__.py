"""The event log: a port, its SQLite form, and an exchange format in JSON lines (C8-C11)."""
