"""The receiver: verify a webhook request, store it, and answer after the commit."""
