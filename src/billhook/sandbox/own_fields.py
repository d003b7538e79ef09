"""Marking what the sandbox adds to the specification's objects, so that nobody leans on it unawares."""

from __future__ import annotations

from typing import Any

from pydantic import Field

__all__ = ["MARK", "own"]

MARK = "The sandbox's own: the specification does not list it."


def own(description: str, **facts: Any) -> Any:
    """What `Field` gives, with the mark in its description: it is what the OpenAPI document shows of it."""
    return Field(description=f"{description} {MARK}", **facts)
