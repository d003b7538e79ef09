"""Watching an inbox: figures, conditions, issues, and who is notified of them."""
