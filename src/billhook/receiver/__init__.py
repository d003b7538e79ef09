"""The receiver: verify a webhook request, store it, and answer after the commit."""

from billhook.receiver.blueprint import DeferredBlueprint, make_blueprint
from billhook.receiver.intake import Intake

__all__ = ["DeferredBlueprint", "Intake", "make_blueprint"]
