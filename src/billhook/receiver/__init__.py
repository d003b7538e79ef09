"""The receiver: verify a webhook request, store it, and answer after the commit."""

from billhook.receiver.blueprint import (
    DeferredBlueprint,
    make_blueprint,
    make_health_blueprint,
    webhook_routes,
)
from billhook.receiver.intake import DeliveryRules
from billhook.receiver.wsgi import WsgiReceiver

__all__ = [
    "DeferredBlueprint",
    "DeliveryRules",
    "WsgiReceiver",
    "make_blueprint",
    "make_health_blueprint",
    "webhook_routes",
]
