"""Invoices: from the charges of a billing cycle to approval and payment."""
