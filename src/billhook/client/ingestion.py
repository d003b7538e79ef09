"""Any number of events, cut into batches by both limits, and what became of each.

Source: spec, "Endpoints", PUT /events and POST /v2/events; "Limits"; "Errors", on per-event failures.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from billhook.client.outcomes import EventResult, EventState, Given, Progress
from billhook.errors import ApiError, RequestTooLarge, ResourceError
from billhook.resources import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, IngestionResult, UsageEvent
from billhook.wire.reading import in_words

__all__ = ["ingest"]

_HEAD, _BETWEEN, _TAIL = b'{"events":[', b",", b"]}"
# The specification shows no code for it and no wording. What is not surely a duplicate counts as invalid.
# One pattern of two words with anything between them would take the square of the time.
_DUPLICATE = re.compile(r"\bduplicat", re.IGNORECASE)
_REF = re.compile(r"\bref(?:erence)?\b", re.IGNORECASE)
_ALREADY = re.compile(r"\balready\b", re.IGNORECASE)
_TAKEN = re.compile(r"\b(?:already|exists?|(?:been|is|was) (?:used|taken))\b", re.IGNORECASE)
_DENIED = re.compile(r"\bnot\b|n't\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Item:
    """An event on its way; one with a `problem` is not sent."""

    given: Given
    ref: str = ""
    encoded: bytes = b""
    problem: str | None = None


def ingest(
    events: Iterable[Given],
    send: Callable[[bytes], IngestionResult],
    on_progress: Callable[[Progress], object] | None = None,
    *,
    clean: Callable[[str], str],
    max_events: int = MAX_BATCH_EVENTS,
    max_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[EventResult]:
    """Send `events` by `send`, which takes the body of one batch; the results come in the events' order.

    `clean` makes what the service says of an event fit to be shown, before anything else looks at it.
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


def _item(given: Given, max_bytes: int) -> _Item:
    """The event as it will be sent, or why it cannot be."""
    try:
        event = given if isinstance(given, UsageEvent) else UsageEvent.model_validate(given)
        encoded = event.to_request()
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        return _Item(given, problem=in_words(found))
    except (TypeError, ValueError, ResourceError) as error:
        return _Item(given, problem=str(error))
    alone = len(_HEAD) + len(encoded) + len(_TAIL)
    if alone > max_bytes:
        problem = f"this event alone makes a request of {alone} bytes, and the limit is {max_bytes}"
        return _Item(given, problem=problem)
    return _Item(given, event.ref, encoded)


def _batches(items: Iterable[_Item], max_events: int, max_bytes: int) -> Iterator[list[_Item]]:
    """Cut so that neither limit is passed; what is not sent counts as events, and has no size."""
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
    """Some events on their way, and then their results."""

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
        """Send; returns what prevented it. A service with a smaller limit than ours gets smaller parts."""
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
    """What the answer says of each; of two with the same ref, the first is the one that was taken."""
    said: defaultdict[str, deque[tuple[EventState, str | None]]] = defaultdict(deque)
    for event in answer.valid_events:
        said[event.ref].append((EventState.ACCEPTED, None))
    for refused in answer.invalid_events:
        whose = refused.event
        ref = whose.get("ref") if isinstance(whose, dict) else getattr(whose, "ref", None)
        error = clean(refused.error)
        state = EventState.DUPLICATE if _is_duplicate(error) else EventState.INVALID
        said[str(ref)].append((state, error))
    for item in part:
        outcomes = said[item.ref]
        unnamed = (EventState.UNCONFIRMED, "the answer does not name it")
        yield id(item), EventResult(item.given, *(outcomes.popleft() if outcomes else unnamed))


def _is_duplicate(error: str) -> bool:
    if _DENIED.search(error):
        return False
    ref, already = _REF.search(error), _ALREADY.search(error)
    return (
        _DUPLICATE.search(error) is not None
        or (ref is not None and _TAKEN.search(error, ref.end()) is not None)
        or (already is not None and _REF.search(error, already.end()) is not None)
    )
