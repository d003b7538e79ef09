"""Send any number of usage events in batches within both limits, and report the result of each event.

Source: spec, "Endpoints", PUT /events and POST /v2/events; "Limits"; "Errors", on per-event failures.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from billhook.errors import ApiError, RequestTooLarge, ResourceError
from billhook.fields.model import describe_details
from billhook.resources import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, IngestionResult, UsageEvent

__all__ = ["EventInput", "EventResult", "EventState", "Progress", "ingest"]


EventInput = UsageEvent | Mapping[str, Any]
"""A usage event from the user: the model, or a mapping with its fields."""


class EventState(StrEnum):
    """The result of an event. `UNCONFIRMED`: it was sent, and it is not known whether it was stored."""

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
    """Progress of an ingestion after a batch: requests, bytes of their bodies, events by state."""

    batches: int = 0
    sent_bytes: int = 0
    accepted: int = 0
    duplicate: int = 0
    invalid: int = 0

    def after(self, batches: int, sent_bytes: int, results: Sequence[EventResult]) -> Progress:
        """Return the progress after another batch. Unconfirmed events are not counted: the ingestion ends."""
        states = [result.state for result in results]
        return Progress(
            self.batches + batches,
            self.sent_bytes + sent_bytes,
            self.accepted + states.count(EventState.ACCEPTED),
            self.duplicate + states.count(EventState.DUPLICATE),
            self.invalid + states.count(EventState.INVALID),
        )


_HEAD, _BETWEEN, _TAIL = b'{"events":[', b",", b"]}"
# The specification shows neither a code nor a text for a duplicate. An error that is not surely one counts as
# invalid. Single words, because a pattern with anything between two of them takes quadratic time.
_DUPLICATE = re.compile(r"\bduplicat", re.IGNORECASE)
_REF = re.compile(r"\bref(?:erence)?\b", re.IGNORECASE)
_ALREADY = re.compile(r"\balready\b", re.IGNORECASE)
_TAKEN = re.compile(r"\b(?:already|exists?|(?:been|is|was) (?:used|taken))\b", re.IGNORECASE)
_DENIED = re.compile(r"\bnot\b|n't\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Item:
    """An event ready to be sent; one with a `problem` is not sent."""

    given: EventInput
    ref: str = ""
    encoded: bytes = b""
    problem: str | None = None


def ingest(
    events: Iterable[EventInput],
    send: Callable[[bytes], IngestionResult],
    on_progress: Callable[[Progress], object] | None = None,
    *,
    clean: Callable[[str], str],
    max_events: int = MAX_BATCH_EVENTS,
    max_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[EventResult]:
    """Send `events` by `send`, which takes the body of one batch; yield results in the order of events.

    `clean` redacts and shortens the service's error texts before they are used.
    """
    progress = Progress()
    for items in _batches((_item(given, max_bytes) for given in events), max_events, max_bytes):
        batch = _Batch(items, send, clean)
        failure = batch.run()
        progress = progress.after(batch.requests, batch.sent_bytes, batch.results)
        if on_progress is not None:
            on_progress(progress)
        yield from batch.results
        if failure is not None:
            raise failure


def _item(given: EventInput, max_bytes: int) -> _Item:
    """Encode an event, or state why it cannot be sent."""
    try:
        event = given if isinstance(given, UsageEvent) else UsageEvent.model_validate(given)
        encoded = event.to_request()
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        return _Item(given, problem=describe_details(found))
    except (TypeError, ValueError, ResourceError) as error:
        return _Item(given, problem=str(error))
    alone = len(_HEAD) + len(encoded) + len(_TAIL)
    if alone > max_bytes:
        problem = f"this event alone makes a request of {alone} bytes, and the limit is {max_bytes}"
        return _Item(given, problem=problem)
    return _Item(given, event.ref, encoded)


def _batches(items: Iterable[_Item], max_events: int, max_bytes: int) -> Iterator[list[_Item]]:
    """Split into batches within both limits; an unsendable event counts towards the number, not the size."""
    batch: list[_Item] = []
    size = len(_HEAD) + len(_TAIL)
    for item in items:
        # `size` has a comma after each event, and so it is the body's size with this one as the last.
        if batch and (len(batch) == max_events or size + len(item.encoded) > max_bytes):
            yield batch
            batch, size = [], len(_HEAD) + len(_TAIL)
        batch.append(item)
        size += len(item.encoded) + len(_BETWEEN)
    if batch:
        yield batch


class _Batch:
    """The events of one batch, and their results."""

    def __init__(
        self, items: list[_Item], send: Callable[[bytes], IngestionResult], clean: Callable[[str], str]
    ) -> None:
        self.results: list[EventResult] = []
        self.requests = 0
        self.sent_bytes = 0
        self._items = items
        self._send = send
        self._clean = clean

    def run(self) -> ApiError | None:
        """Send the batch, halved if it is too large for the service; return the error that stopped it."""
        failure: ApiError | None = None
        found: dict[int, EventResult] = {}
        parts = deque([[item for item in self._items if item.problem is None]])
        while parts and failure is None:
            part = parts.popleft()
            if not part:
                continue
            try:
                answer = self._send_part(part)
            except RequestTooLarge as error:
                # A proxy may have a lower limit than the service; the halves keep the order.
                if len(part) > 1:
                    half = len(part) // 2
                    parts.extendleft([part[half:], part[:half]])
                else:
                    found[id(part[0])] = EventResult(part[0].given, EventState.INVALID, error.message)
            except ApiError as error:
                failure = error
            else:
                found.update(_results(part, answer, self._clean))
        for item in self._items:
            missing = EventResult(item.given, EventState.INVALID, item.problem)
            if item.problem is None:
                missing = EventResult(item.given, EventState.UNCONFIRMED, str(failure))
            self.results.append(found.get(id(item), missing))
        return failure

    def _send_part(self, part: list[_Item]) -> IngestionResult:
        body = _HEAD + _BETWEEN.join(item.encoded for item in part) + _TAIL
        self.requests += 1
        self.sent_bytes += len(body)
        return self._send(body)


def _results(
    part: list[_Item], answer: IngestionResult, clean: Callable[[str], str]
) -> Iterator[tuple[int, EventResult]]:
    """Return the result of each event; of two with the same ref, the first is the accepted one."""
    # By ref, not by position: the response lists valid and invalid events apart.
    by_ref: defaultdict[str, deque[tuple[EventState, str | None]]] = defaultdict(deque)
    for event in answer.valid_events:
        by_ref[event.ref].append((EventState.ACCEPTED, None))
    for refused in answer.invalid_events:
        # An event that is no event at all is returned as any JSON.
        event_json = refused.event
        ref = event_json.get("ref") if isinstance(event_json, dict) else getattr(event_json, "ref", None)
        error = clean(refused.error)
        state = EventState.DUPLICATE if _is_duplicate(error) else EventState.INVALID
        by_ref[str(ref)].append((state, error))
    for item in part:
        outcomes = by_ref[item.ref]
        unnamed = (EventState.UNCONFIRMED, "the answer does not name it")
        yield id(item), EventResult(item.given, *(outcomes.popleft() if outcomes else unnamed))


def _is_duplicate(error: str) -> bool:
    # "the ref must not be empty" or "does not exist" is no duplicate.
    if _DENIED.search(error):
        return False
    ref, already = _REF.search(error), _ALREADY.search(error)
    return (
        _DUPLICATE.search(error) is not None
        or (ref is not None and _TAKEN.search(error, ref.end()) is not None)
        or (already is not None and _REF.search(error, already.end()) is not None)
    )
