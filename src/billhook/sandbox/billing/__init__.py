"""The billing rules: what usage, contracts and the passing of time lead to. No HTTP."""

__all__: list[str] = []
