"""Contracts: their billing cycles, their prices, and the products that they sell."""
