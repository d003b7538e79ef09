"""What is wrong with an object of the billing service's API."""

from __future__ import annotations

from typing import Any

from billhook.errors.root import BillhookError

__all__ = ["FieldConflict", "FieldMissing", "InvalidResource", "LimitBroken", "ResourceError", "RuleBroken"]


class ResourceError(BillhookError):
    """An object of the billing service's API is not as it must be."""


class InvalidResource(ResourceError):
    """What came is not strict JSON, or not an object of the model that was asked for.

    `details` is a list of {"loc", "msg", "type"} objects without the input's values.
    """

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        self.details = details or []
        super().__init__(message)


class RuleBroken(ResourceError):
    """What is to be sent breaks a rule that the specification states, so it cannot be made.

    `params` are the fields that are concerned, in the wire's spelling, such as `creditGrant.name`.
    """

    def __init__(self, message: str, *params: str) -> None:
        self.params = params
        super().__init__(message)


class FieldConflict(RuleBroken):
    """Fields are given that exclude each other, or a field where it does not apply."""


class FieldMissing(RuleBroken):
    """A field is not given that is needed in this request, though not in every one."""


class LimitBroken(RuleBroken):
    """A number or a size is over its limit, or under it."""
