"""The door: from a request to an answer, with a commit between them."""

from billhook.receiver.blueprint import make_blueprint
from billhook.receiver.intake import Intake
from billhook.receiver.late import LateBlueprint

__all__ = ["Intake", "LateBlueprint", "make_blueprint"]
