"""Webhooks on their way out: due, signed, sent, retried."""

__all__: list[str] = []
