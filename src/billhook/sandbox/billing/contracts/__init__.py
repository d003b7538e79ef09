"""Contracts: their billing cycles, their prices, and the products that they sell."""

__all__: list[str] = []
