"""What the groups of operations have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from billhook.client.operation import ApiOperation
from billhook.client.paging import Listing, ListingPage
from billhook.client.session import Session
from billhook.resources import PageQuery, Resource
from billhook.resources.paging import Page as AnsweredPage

__all__ = ["ApiGroup", "encode_body"]

P = TypeVar("P", bound=AnsweredPage)
T = TypeVar("T")


class ApiGroup:
    """The operations of one chapter of the specification; an attribute of BillingClient."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _listing(
        self,
        operation: ApiOperation,
        model: type[P],
        items: Callable[[P], Sequence[T]],
        query: type[PageQuery],
        **parameters: object,
    ) -> Listing[T]:
        """The list that a query with these parameters asks for; None is none. Nothing is sent yet."""
        given = {name: value for name, value in parameters.items() if value is not None}
        asked = query.model_validate(given).to_query()

        def fetch(cursor: str | None) -> ListingPage[T]:
            place = {} if cursor is None else {"cursor": cursor}
            answered = self._session.call(operation, model, query={**asked, **place})
            total = getattr(answered, "total", None)
            return ListingPage(
                tuple(items(answered)),
                None if total is None else int(total),
                # Where a list is not said to tell hasMore, a cursor to more is word enough.
                answered.has_more if "has_more" in answered.model_fields_set else bool(answered.next_cursor),
                answered.next_cursor,
            )

        return Listing(operation.name, fetch)


def encode_body(model: type[Resource], value: Resource | Mapping[str, Any]) -> bytes:
    """The body of a request: `value`, or the `model` made of it.

    Raises RuleBroken, in the specification's words, and pydantic's ValidationError; nothing was sent then.
    """
    made = value if isinstance(value, model) else model.model_validate(value)
    return made.to_request()
