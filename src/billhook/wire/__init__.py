"""How the service writes: its JSON, its types of fields and its spelling, in what it sends and is sent."""

from billhook.wire import strict_json
from billhook.wire.samples import sample
from billhook.wire.shape import Shape

__all__ = ["Shape", "sample", "strict_json"]
