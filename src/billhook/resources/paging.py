"""Lists: what their queries and their pages have in common. Source: spec, "Endpoints"."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from billhook.errors import InvalidJSON
from billhook.resources.base import Resource
from billhook.wire.fields import ExactDecimal
from billhook.wire.strict_json import datetime_text, dumps, loads

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
        ExactDecimal | None,
        BeforeValidator(_read_text),
        Field(description="Maximum number of items on the page.", examples=[100]),
    ] = None
    cursor: Annotated[
        StrictStr | None, Field(description="Cursor of the page: nextCursor of the previous one.")
    ] = None

    def to_query(self) -> dict[str, str]:
        """The parameters by the wire's names, as text; those never given, or None, are left out."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return {name: _as_text(value) for name, value in given.items()}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return datetime_text(value) if isinstance(value, datetime) else dumps(value).decode()


class Page(Resource, register=False):
    """One page of a list, and where the next begins."""

    has_more: Annotated[StrictBool, Field(description="Whether there is another page.", examples=[False])]
    next_cursor: Annotated[
        StrictStr | None, Field(description="Cursor of the next page; null or absent on the last page.")
    ] = None


class CountedPage(Page, register=False):
    """One page of a list, with the number of items on all pages."""

    total: Annotated[ExactDecimal, Field(description="Number of items on all pages.", examples=[1])]
