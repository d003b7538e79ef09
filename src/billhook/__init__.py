"""billhook receives the signed webhooks of a usage-billing service: verified, stored, answered, handled."""

from billhook import errors, signals
from billhook.errors import Discard, Retry
from billhook.extension import Billhook
from billhook.handlers import Delivery, Handlers
from billhook.signing.source import Source

__all__ = ["Billhook", "Delivery", "Discard", "Handlers", "Retry", "Source", "errors", "signals"]
