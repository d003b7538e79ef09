"""Invoices: their lines, their states, and the statements of running cycles."""
