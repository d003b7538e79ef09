"""Lists: what their queries and their pages have in common. Source: spec, "Endpoints"."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field

from billhook.errors import InvalidJSON
from billhook.resources.base import Resource
from billhook.wire.fields import Flag, Number, Text
from billhook.wire.strict_json import dumps, loads, moment_text

__all__ = ["CountedPage", "Page", "PageQuery"]


def _read_text(value: object) -> object:
    """In a URL all is text: `10` there is the number 10."""
    if isinstance(value, str):
        with contextlib.suppress(InvalidJSON):
            return loads(value.encode("utf-8", "replace"))
    return value


class PageQuery(Resource):
    """Which page of a list is wanted: the parameters of the URL.

    Source: spec, "Endpoints", the pagination shape.
    """

    limit: Annotated[
        Number | None,
        BeforeValidator(_read_text),
        Field(description="How many there may be on the page.", examples=[100]),
    ] = None
    cursor: Annotated[
        Text | None, Field(description="Where the page begins: nextCursor of the one before it.")
    ] = None

    def to_query(self) -> dict[str, str]:
        """The parameters by the wire's names, as text; those never given, or None, are left out."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return {name: _as_text(value) for name, value in given.items()}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return moment_text(value) if isinstance(value, datetime) else dumps(value).decode()


class Page(Resource, register=False):
    """One page of a list, and where the next begins."""

    has_more: Annotated[Flag, Field(description="Is there another page?", examples=[False])]
    next_cursor: Annotated[
        Text | None, Field(description="The cursor of the next page; null, or left out, after the last.")
    ] = None


class CountedPage(Page, register=False):
    """One page of a list whose length is told."""

    total: Annotated[Number, Field(description="How many there are on all pages.", examples=[1])]
