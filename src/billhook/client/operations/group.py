"""The base class of the operation groups, and the encoding of request bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from billhook.client.operation import ApiOperation, Listing, ListingPage
from billhook.client.session import Session
from billhook.resources import PageQuery, Resource
from billhook.resources.base import Page as AnsweredPage

__all__ = ["ApiGroup", "encode_body"]

P = TypeVar("P", bound=AnsweredPage)
T = TypeVar("T")


class ApiGroup:
    """The operations of one section of the specification; an attribute of BillingClient."""

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
        """Return the list for a query with these parameters, without sending a request yet.

        Parameters that are None are left out.
        """
        # Validated now, so that a mistake is raised here and not at the first iteration.
        present = {name: value for name, value in parameters.items() if value is not None}
        asked = query.model_validate(present).to_query()

        def fetch(cursor: str | None) -> ListingPage[T]:
            # The filters go with every page: the specification does not say that a cursor contains them.
            place = {} if cursor is None else {"cursor": cursor}
            answered = self._session.call(operation, model, query={**asked, **place})
            total = getattr(answered, "total", None)
            return ListingPage(
                tuple(items(answered)),
                None if total is None else int(total),
                # The specification shows hasMore for some lists only; elsewhere a cursor means more.
                answered.has_more if "has_more" in answered.model_fields_set else bool(answered.next_cursor),
                answered.next_cursor,
            )

        return Listing(operation.name, fetch)


def encode_body(model: type[Resource], value: Resource | Mapping[str, Any]) -> bytes:
    """Return the body of a request: the JSON of `value`, validated as a `model`.

    Raises RuleBroken or pydantic's ValidationError, before anything is sent.
    """
    resource = value if isinstance(value, model) else model.model_validate(value)
    return resource.to_request()
