"""Storing deliveries durably: group commit, and the counts that are written beside it."""
