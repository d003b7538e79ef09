"""Outgoing webhooks: subscriptions, the outbox, signing, sending, retries and faults."""

__all__: list[str] = []
