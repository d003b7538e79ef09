"""What every object of the service has in common: the wire's spelling, and room for what is not listed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["Shape"]


class Shape(BaseModel):
    """An object as the service writes it, or a part of one.

    Immutable; snake_case here and camelCase on the wire, and either when constructing. Fields that the
    specification does not list are kept, and readable in `model_extra`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
    )
