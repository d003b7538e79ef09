"""The billing rules: how usage, contracts and time become invoices, credits and events. No HTTP."""
