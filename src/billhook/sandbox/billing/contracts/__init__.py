"""Customers and what they have agreed to pay."""
