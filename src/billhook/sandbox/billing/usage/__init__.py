"""Usage: meters, usage events, and the units that customers use each day."""

__all__: list[str] = []
