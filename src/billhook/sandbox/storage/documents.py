"""Resources as the objects of JSON that they are kept as, and sent as."""

from __future__ import annotations

from typing import Any, cast

from billhook.resources import Resource
from billhook.wire import strict_json

__all__ = ["as_document", "as_sent"]


def as_document(resource: Resource) -> dict[str, Any]:
    """All that `resource` has, in the wire's spelling."""
    return cast("dict[str, Any]", strict_json.loads(resource.to_json()))


def as_sent(given: Resource) -> dict[str, Any]:
    """What a request gives, in the wire's spelling; what is read-only in it is left out."""
    return cast("dict[str, Any]", strict_json.loads(given.to_request()))
