"""The door: from a request to an answer, with a commit between them."""

from billhook.receiver.blueprint import make_blueprint
from billhook.receiver.intake import Intake

__all__ = ["Intake", "make_blueprint"]
