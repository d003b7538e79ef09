"""Usage events. Source: spec, "Endpoints", Events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from billhook.client.ingestion import EventInput, EventResult, Progress, ingest
from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.client.paging import Listing
from billhook.resources import (
    Aggregation,
    AggregationRequest,
    DryRunResult,
    EventBatch,
    EventPage,
    EventQuery,
    IngestionResult,
    UsageEvent,
)

__all__ = ["AGGREGATE", "DRY_RUN", "QUERY", "SUBMIT", "SUBMIT_V1", "Events"]

# Every event has a `ref`, under which it is taken once however often it comes.
SUBMIT = ApiOperation("POST", "/v2/events", repeatable=True)
SUBMIT_V1 = ApiOperation("PUT", "/events", repeatable=True)
QUERY = ApiOperation("GET", "/events", repeatable=True)
# These two change nothing.
DRY_RUN = ApiOperation("POST", "/events/dry-run", repeatable=True)
AGGREGATE = ApiOperation("POST", "/v2/events/aggregation", repeatable=True)


class Events(ApiGroup):
    """Usage events: sent in, asked for, added up. `ingest` takes any number of them."""

    def query(
        self,
        start_time: datetime | str,
        end_time: datetime | str,
        *,
        event_name: str | None = None,
        customer_alias: str | None = None,
        limit: int | None = None,
    ) -> Listing[UsageEvent]:
        """GET /events, all pages of `limit` each, which is at most 1000. Raises RuleBroken over that."""
        return self._listing(
            QUERY,
            EventPage,
            lambda page: page.events,
            EventQuery,
            start_time=start_time,
            end_time=end_time,
            event_name=event_name,
            customer_alias=customer_alias,
            limit=limit,
        )

    def submit(self, events: Iterable[EventInput]) -> IngestionResult:
        """POST /v2/events: one batch of 1 to 1000 events, 256 KB at most. Raises RuleBroken beyond that.

        The call may be repeated: an event that a first attempt stored then comes back as invalid, because
        its ref exists.
        """
        return self._session.call(SUBMIT, IngestionResult, body=_batch(events))

    def submit_v1(self, events: Iterable[EventInput]) -> IngestionResult:
        """PUT /events: as `submit`, in the older form."""
        return self._session.call(SUBMIT_V1, IngestionResult, body=_batch(events))

    def ingest(
        self,
        events: Iterable[EventInput],
        *,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Iterator[EventResult]:
        """Send any number of events, in batches by POST /v2/events, and tell what became of each, in order.

        It goes on as its results are asked for: `for result in client.events.ingest(events)`. `on_progress`
        is called after each batch. Raises ApiError when a batch cannot be sent, after the results of the
        events in it, which are `unconfirmed`: to send them again does no harm. What `events` itself raises
        comes out as it is; an event that had no result then was not sent.
        """

        def send(body: bytes) -> IngestionResult:
            return self._session.call(SUBMIT, IngestionResult, body=body)

        return ingest(events, send, on_progress, clean=self._session.displayable)

    def dry_run(self, events: Iterable[EventInput]) -> DryRunResult:
        """POST /events/dry-run: what would become of a batch; nothing is stored. Limits as of `submit`."""
        return self._session.call(DRY_RUN, DryRunResult, body=_batch(events))

    def aggregate(self, request: AggregationRequest | Mapping[str, Any]) -> Aggregation:
        """POST /v2/events/aggregation."""
        return self._session.call(AGGREGATE, Aggregation, body=encode_body(AggregationRequest, request))


def _batch(events: Iterable[EventInput]) -> bytes:
    return encode_body(EventBatch, {"events": list(events)})
