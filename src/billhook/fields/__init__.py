"""How the service writes its data: its JSON, its types of fields, and its names in camelCase."""

from billhook.fields import strict_json
from billhook.fields.model import WireModel, sample

__all__ = ["WireModel", "sample", "strict_json"]
