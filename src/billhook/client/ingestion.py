"""Send any number of usage events in batches within both limits, and report the result of each event.

Source: spec, "Endpoints", PUT /events and POST /v2/events; "Limits"; "Errors", on per-event failures.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from billhook.client.retries import may_be_done
from billhook.errors import ApiError, ConfigError, RequestTooLarge, ResourceError
from billhook.fields.model import describe_invalid
from billhook.resources import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, IngestionResult, UsageEvent

EventInput = UsageEvent | Mapping[str, Any]
"""A usage event from the user: the model, or a mapping with its fields."""


class EventState(StrEnum):
    """The result of an event.

    `DUPLICATE`: the service refused the event because it has its ref: this ingestion sent the ref before, or
    the service gave a code that says so. `UNCONFIRMED`: it is unknown whether the event was stored; a refusal
    is unconfirmed after an attempt without an answer, which may have stored the event. `INVALID`: the service
    refused the event for the reason in `error`, possibly because the ref exists from an earlier ingestion.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    INVALID = "invalid"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True)
class EventResult:
    """One event as given, and its result; `error` says why it was not accepted."""

    event: EventInput
    state: EventState
    error: str | None = None

    @property
    def stored(self) -> bool:
        """True if the service has the event, from this call or an earlier one."""
        return self.state in (EventState.ACCEPTED, EventState.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an ingestion after a batch: requests, bytes of their bodies, events by state.

    Unconfirmed events are not counted.
    """

    batches: int = 0
    sent_bytes: int = 0
    accepted: int = 0
    duplicate: int = 0
    invalid: int = 0


_HEAD, _BETWEEN, _TAIL = b'{"events":[', b",", b"]}"
# Codes for an existing ref, if the service gives one. The specification shows only an error text, which is
# not reliable enough to decide by.
_DUPLICATE_CODES = frozenset({"already_exists", "duplicate_ref", "ref_already_exists"})
_MOST_REMEMBERED = 100_000

Send = Callable[..., IngestionResult]
"""Sends the `body` of one batch, and calls `on_retry` with the error of each attempt that it repeats."""


@dataclass(frozen=True, slots=True)
class _Item:
    """An event ready to be sent."""

    given: EventInput
    ref: str
    encoded: bytes


_Entry = _Item | EventResult  # an EventResult if the event cannot be sent


def ingest(
    events: Iterable[EventInput],
    send: Send,
    on_progress: Callable[[Progress], object] | None = None,
    *,
    clean: Callable[[str], str],
    max_events: int = MAX_BATCH_EVENTS,
    max_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[EventResult]:
    """Send `events` by `send`; yield results in the order of events.

    `clean` redacts and shortens the service's error texts before they are used.
    """
    sender = _BatchSender(send, clean)
    counts: Counter[EventState] = Counter()
    for batch in _batches((_item(given, max_bytes) for given in events), max_events, max_bytes):
        sent = iter(sender.results([each for each in batch if isinstance(each, _Item)]))
        results = [each if isinstance(each, EventResult) else next(sent) for each in batch]
        counts.update(result.state for result in results)
        if on_progress is not None:
            known = (counts[state] for state in EventState if state is not EventState.UNCONFIRMED)
            on_progress(Progress(sender.requests, sender.sent_bytes, *known))
        yield from results
        if sender.failure is not None:
            raise sender.failure


def _item(given: EventInput, max_bytes: int) -> _Entry:
    """Encode an event, or say why it cannot be sent."""
    try:
        event = UsageEvent.model_validate(given)
        encoded = event.to_request()
        alone = len(_HEAD) + len(encoded) + len(_TAIL)
        if alone <= max_bytes:
            return _Item(given, event.ref, encoded)
        problem = f"this event alone makes a request of {alone} bytes, and the limit is {max_bytes}"
    except ValidationError as error:
        problem = describe_invalid(error)
    except (TypeError, ValueError, ResourceError) as error:
        problem = str(error)
    return EventResult(given, EventState.INVALID, problem)


def _batches(items: Iterable[_Entry], max_events: int, max_bytes: int) -> Iterator[list[_Entry]]:
    """Split into batches within both limits; an unsendable event counts towards the number, not the size."""
    batch: list[_Entry] = []
    size = len(_HEAD) + len(_TAIL)
    for item in items:
        length = len(item.encoded) if isinstance(item, _Item) else 0
        # `size` counts a comma after each event, so it is the size of the body if this event is the last one.
        if batch and (len(batch) == max_events or size + length > max_bytes):
            yield batch
            batch, size = [], len(_HEAD) + len(_TAIL)
        batch.append(item)
        size += length + len(_BETWEEN)
    if batch:
        yield batch


class _BatchSender:
    """Sends the batches of one ingestion; `failure` is the error that ended it."""

    def __init__(self, send: Send, clean: Callable[[str], str]) -> None:
        self.failure: ApiError | ConfigError | None = None
        self.requests = 0
        self.sent_bytes = 0
        self._send = send
        self._clean = clean
        self._accepted: dict[str, None] = {}
        self._lost: set[str] = set()

    def results(self, items: list[_Item]) -> list[EventResult]:
        """Send a batch, halved if it is too large for the service; return the result of each event."""

        def note(error: ApiError) -> None:
            if may_be_done(error):
                self._lost.update(item.ref for item in items)

        if items and self.failure is None:
            body = _HEAD + _BETWEEN.join(item.encoded for item in items) + _TAIL
            self.requests += 1
            self.sent_bytes += len(body)
            try:
                return self._outcomes(items, self._send(body=body, on_retry=note))
            except RequestTooLarge as error:
                too_large = error.message
            except (ApiError, ConfigError) as error:  # ConfigError: the client was closed meanwhile
                self.failure = error
        if self.failure is not None or not items:
            return [EventResult(item.given, EventState.UNCONFIRMED, str(self.failure)) for item in items]
        if len(items) == 1:
            return [EventResult(items[0].given, *self._refused(items[0].ref, too_large))]
        # A proxy may have a lower limit than the service; the halves keep the order.
        half = len(items) // 2
        return self.results(items[:half]) + self.results(items[half:])

    def _outcomes(self, items: list[_Item], answer: IngestionResult) -> list[EventResult]:
        """Return the result of each event; if two have the same ref, the first one is the accepted one."""
        # Match by ref, not by position: the response lists valid and invalid events separately.
        by_ref: defaultdict[str, deque[tuple[EventState, str | None]]] = defaultdict(deque)
        for event in answer.valid_events:
            by_ref[event.ref].append((EventState.ACCEPTED, None))
            self._accepted[event.ref] = None
        for refused in answer.invalid_events:
            # The service may return an invalid event as any JSON.
            event_json = refused.event
            ref = event_json.get("ref") if isinstance(event_json, dict) else getattr(event_json, "ref", None)
            code = (refused.model_extra or {}).get("code")
            by_ref[str(ref)].append(self._refused(str(ref), refused.error, code))
        # An ingestion may have any number of events, so forget the oldest refs.
        for ref in list(self._accepted)[:-_MOST_REMEMBERED]:
            del self._accepted[ref]
        self._lost.difference_update(by_ref)
        unnamed = EventState.UNCONFIRMED, "the answer does not name it"
        return [
            EventResult(item.given, *(by_ref[item.ref].popleft() if by_ref[item.ref] else unnamed))
            for item in items
        ]

    def _refused(self, ref: str, error: str, code: object = None) -> tuple[EventState, str]:
        """Return the result of an event that the service calls invalid, perhaps because it has the event."""
        text = self._clean(error)
        if ref in self._accepted or not _DUPLICATE_CODES.isdisjoint((error, str(code))):
            return EventState.DUPLICATE, text
        if ref in self._lost:
            return EventState.UNCONFIRMED, f"an attempt got no answer, and the next one: {text}"
        return EventState.INVALID, text
