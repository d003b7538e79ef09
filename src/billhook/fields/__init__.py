"""How the service writes: its JSON, its types of fields and its spelling, in what it sends and is sent."""

from billhook.fields import strict_json
from billhook.fields.model import WireModel, sample

__all__ = ["WireModel", "sample", "strict_json"]
