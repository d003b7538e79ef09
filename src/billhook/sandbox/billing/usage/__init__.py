"""Usage: meters, usage events, and the units that customers use each day."""
