"""How the service writes: its JSON, its types of fields and its spelling, in what it sends and is sent."""

from billhook.wire import strict_json
from billhook.wire.model import WireModel, sample

__all__ = ["WireModel", "sample", "strict_json"]
