"""Few features out of many."""
