"""What was raised, whether somebody had asked for it or not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.errors import InvalidResource
from billhook.events import EVENT_TYPES
from billhook.resources import PageQuery, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.sending import log
from billhook.sandbox.storage.tables.sending import raised
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire import strict_json
from billhook.wire.fields import JsonObject, ListOf, Moment, Text
from billhook.wire.reading import as_object

__all__ = ["GROUP"]

GROUP = Group("_sandbox/raised", prefix="/_sandbox/raised")


class RaisedQuery(PageQuery, register=False):
    """Which events are wanted."""

    event_type: Annotated[Text | None, Field(description="Only those of this type.")] = None


class RaisedEvent(Resource, register=False):
    """An event."""

    id: Annotated[Text, Field(description="Its id.")]
    event_type: Annotated[Text, Field(description="Its type, as in X-Webhook-Type.")]
    raised_at: Annotated[Moment, Field(description="When it was raised, by the sandbox's time.")]
    body: Annotated[JsonObject, Field(description="What is sent.", examples=[{}])]


class RaisedPage(CountedPage, register=False):
    """A page of events."""

    raised: Annotated[ListOf[RaisedEvent], Field(description="The events of this page.")]


@GROUP.operation("GET", "", takes=RaisedQuery, gives=RaisedPage)
def list_all(call: Call[RaisedQuery]) -> RaisedPage:
    """List what was raised, oldest first."""
    given = call.given
    if given.event_type is not None and given.event_type not in EVENT_TYPES:
        raise invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")
    where = () if given.event_type is None else (raised.c.event_type == given.event_type,)
    page = log.raised_events(call.tx, limit_of(given), given.cursor, *where)
    events = [
        RaisedEvent(
            id=row.id,
            event_type=row.event_type,
            raised_at=row.raised_at,
            body=as_object(strict_json.loads(row.body), InvalidResource),
        )
        for row in page.items
    ]
    return RaisedPage(raised=events, **page.fields())
