"""Meters, what was used on each day, and what it costs."""
