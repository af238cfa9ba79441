"""Moving in: what the replaced service knew, read from its database and its servers' metadata."""
