"""The queries of lists. Source: spec, "Endpoints", the pagination shape; "Limits"."""

from __future__ import annotations

from billhook.resources import PageQuery
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.paging import DEFAULT_PAGE, MAX_PAGE

__all__ = ["limit_of"]


def limit_of(query: PageQuery) -> int:
    """How many rows are wanted: 1 to 1000, 10 if not said."""
    if "limit" not in query.model_fields_set:
        return DEFAULT_PAGE
    limit = query.limit
    if limit is None or not 1 <= limit <= MAX_PAGE or limit != int(limit):
        raise invalid_request(f"limit is a whole number from 1 to {MAX_PAGE}", "limit")
    return int(limit)
