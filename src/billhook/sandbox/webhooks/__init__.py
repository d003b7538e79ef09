"""Outgoing webhooks: subscriptions, the outbox, signing, sending, retries and faults."""
