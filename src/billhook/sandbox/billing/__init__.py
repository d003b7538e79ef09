"""The business: what usage, contracts and time lead to. No HTTP."""

__all__: list[str] = []
