"""Invoices: from the charges of a billing cycle to approval and payment."""

__all__: list[str] = []
