"""Usage: events, measurements, and submission to the clouds' marketplaces.

Source: spec, "Endpoints", Events; Measurements; Cloud usage submission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from billhook.client.ingestion import EventInput, EventResult, Progress, ingest
from billhook.client.operation import ApiOperation, Listing
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.errors import ApiError
from billhook.resources import (
    Aggregation,
    AggregationRequest,
    CloudUsageSubmission,
    DryRunResult,
    EventBatch,
    EventPage,
    EventQuery,
    IngestionResult,
    Measurement,
    MeasurementResponse,
    NewMeasurement,
    UsageEvent,
)

__all__ = [
    "AGGREGATE",
    "CREATE_MEASUREMENT",
    "DRY_RUN",
    "QUERY",
    "SUBMIT",
    "SUBMIT_CLOUD_USAGE",
    "SUBMIT_V1",
    "CloudUsage",
    "Events",
    "Measurements",
]

# Repeatable: the service stores an event once for each `ref`, however often it is sent.
SUBMIT = ApiOperation("POST", "/v2/events", repeatable=True)
SUBMIT_V1 = ApiOperation("PUT", "/events", repeatable=True)
QUERY = ApiOperation("GET", "/events", repeatable=True)
# Repeatable although they are POST: they change nothing.
DRY_RUN = ApiOperation("POST", "/events/dry-run", repeatable=True)
AGGREGATE = ApiOperation("POST", "/v2/events/aggregation", repeatable=True)
# Not repeatable: the specification does not show what a second measurement of a day does.
CREATE_MEASUREMENT = ApiOperation("POST", "/measurements", repeatable=False)
# Not repeatable: results have idempotency keys, but the specification does not show how they are used.
SUBMIT_CLOUD_USAGE = ApiOperation("POST", "/cloudUsageSubmission", repeatable=False)


class Events(ApiGroup):
    """Usage events: send, query and aggregate them. `ingest` sends any number of them."""

    def query(
        self,
        start_time: datetime | str,
        end_time: datetime | str,
        *,
        event_name: str | None = None,
        customer_alias: str | None = None,
        limit: int | None = None,
    ) -> Listing[UsageEvent]:
        """List the events from `start_time` to before `end_time`, in pages of `limit`, at most 1000.

        Calls GET /events. Raises RuleBroken for a larger limit.
        """
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
        """Send one batch of 1 to 1000 events, at most 256 KB. Calls POST /v2/events.

        The client may repeat the call: the response then lists events that the first attempt stored as
        invalid, because their refs exist. Raises RuleBroken for a batch outside these limits.
        """
        return self._session.call(SUBMIT, IngestionResult, body=_batch(events))

    def submit_v1(self, events: Iterable[EventInput]) -> IngestionResult:
        """Send one batch like `submit`, by the older endpoint. Calls PUT /events."""
        return self._session.call(SUBMIT_V1, IngestionResult, body=_batch(events))

    def ingest(
        self,
        events: Iterable[EventInput],
        *,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Iterator[EventResult]:
        """Send any number of events in batches, and yield the result of each event, in order.

        It is lazy: iterate to send, `for result in client.events.ingest(events)`. `on_progress` is called
        after each batch. Calls POST /v2/events. Raises ApiError if a batch cannot be sent, after it has
        yielded the batch's results as `unconfirmed`: these events can safely be sent again. An exception of
        `events` itself is passed on; events without a result were not sent then.

        The text of a refusal is not interpreted: see EventState on what counts as a duplicate.
        """

        def send(body: bytes, on_retry: Callable[[ApiError], object]) -> IngestionResult:
            return self._session.call(SUBMIT, IngestionResult, body=body, on_retry=on_retry)

        return ingest(events, send, on_progress, clean=self._session.displayable)

    def dry_run(self, events: Iterable[EventInput]) -> DryRunResult:
        """Return how the service would ingest a batch, without storing it; limits as for `submit`.

        Calls POST /events/dry-run.
        """
        return self._session.call(DRY_RUN, DryRunResult, body=_batch(events))

    def aggregate(self, request: AggregationRequest | Mapping[str, Any]) -> Aggregation:
        """Aggregate stored events by meter and group. Calls POST /v2/events/aggregation."""
        return self._session.call(AGGREGATE, Aggregation, body=encode_body(AggregationRequest, request))


def _batch(events: Iterable[EventInput]) -> bytes:
    return encode_body(EventBatch, {"events": list(events)})


class Measurements(ApiGroup):
    """Measurements: the usage of a day as one figure."""

    def create(self, measurement: NewMeasurement | Mapping[str, Any]) -> Measurement:
        """Set a customer's usage of one day. Calls POST /measurements."""
        body = encode_body(NewMeasurement, measurement)
        return self._session.call(CREATE_MEASUREMENT, MeasurementResponse, body=body).measurement


class CloudUsage(ApiGroup):
    """The results of usage that was submitted to a cloud marketplace."""

    def submit(self, submission: CloudUsageSubmission | Mapping[str, Any]) -> None:
        """Submit the results to the service. Calls POST /cloudUsageSubmission, whose response is empty."""
        self._session.call_untyped(SUBMIT_CLOUD_USAGE, encode_body(CloudUsageSubmission, submission))
