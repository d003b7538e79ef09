"""Mark fields that the sandbox adds to the specification's objects, so that no client relies on them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

__all__ = ["SANDBOX_MARK", "sandbox_field"]

SANDBOX_MARK = "The sandbox's own: the specification does not list it."


def sandbox_field(description: str, **options: Any) -> Any:
    """Return a pydantic Field whose description, shown in the OpenAPI document, has the mark."""
    return Field(description=f"{description} {SANDBOX_MARK}", **options)
