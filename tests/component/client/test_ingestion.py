"""Ingestion: any iterable, cut by both limits, and what became of each event."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billhook.client import EventResult, EventState, Progress, RetryPolicy
from billhook.client.ingestion import ingest
from billhook.errors import InternalError, UnexpectedResponse
from billhook.resources import MAX_BATCH_BYTES, EventBatch, IngestionResult, UsageEvent
from support.billing_service import BROKEN, LIMITED, REFRESH_TOKEN, Taken, answered, cut, error

AT = datetime(2026, 1, 15, 12, tzinfo=UTC)
ACCEPTED, DUPLICATE, INVALID, UNCONFIRMED = EventState


def event(ref: object, **data: object) -> UsageEvent:
    return UsageEvent(name="call", timestamp=AT, customer_alias="acme", ref=str(ref), data=data)


def of_size(ref: str, size: int) -> UsageEvent:
    """An event that takes so many bytes in a request."""
    spare = size - len(event(ref, pad="").to_request())
    return event(ref, pad="x" * spare)


def states(results: list[EventResult]) -> list[EventState]:
    return [result.state for result in results]


def batches(service) -> list[int]:
    """How many events there were in each request."""
    return [len(taken.json["events"]) for taken in service.taken if "events" in taken.line]


# --- cutting --------------------------------------------------------------------------------------


def test_a_generator_of_many_is_cut_by_the_number_of_events_and_none_sends_nothing(service, client):
    assert (list(client.events.ingest([])), service.taken) == ([], [])

    results = list(client.events.ingest(event(number) for number in range(2_500)))

    assert batches(service) == [1_000, 1_000, 500]
    assert set(states(results)) == {ACCEPTED}
    assert [result.event.ref for result in results] == [str(number) for number in range(2_500)]
    assert len(service.refs) == 2_500


def test_a_batch_may_be_full_to_the_last_byte_and_not_over_it(service, client):
    frame = len('{"events":[]}')
    first = of_size("a", 100_000)
    full, over = (of_size("b", MAX_BATCH_BYTES - frame - 1 - 100_000 + more) for more in (0, 1))

    list(client.events.ingest([first, full]))
    list(client.events.ingest([first, over]))

    sizes = [len(taken.body) for taken in service.taken if taken.line == "POST /v2/events"]
    assert sizes == [MAX_BATCH_BYTES, frame + 100_000, MAX_BATCH_BYTES - 100_000]
    assert batches(service) == [2, 1, 1]


def test_an_event_may_fill_a_batch_alone_and_is_an_error_over_that(service, client):
    room = MAX_BATCH_BYTES - len('{"events":[]}')
    given_ = [event("before"), of_size("full", room), of_size("over", room + 1), event("after")]

    results = list(client.events.ingest(given_))

    assert states(results) == [ACCEPTED, ACCEPTED, INVALID, ACCEPTED]
    assert results[2].error == ("this event alone makes a request of 262145 bytes, and the limit is 262144")
    assert "over" not in service.refs


def test_the_request_body_equals_the_batch_model(service, client):
    events = [event(1), event(2, amount=1.5, text="naïve ☃")]

    list(client.events.ingest(events))

    assert service.taken[-1].body == EventBatch(events=events).to_request()


def test_events_are_taken_as_they_are_needed(service, client):
    drawn = 0

    def source() -> Iterator[UsageEvent]:
        nonlocal drawn
        for number in itertools.count():
            drawn += 1
            yield event(number)

    results = client.events.ingest(source())
    before = drawn
    first = next(results)

    assert (before, first.state) == (0, ACCEPTED)
    assert drawn == 1_001  # one more, to see that the batch is full
    assert batches(service) == [1_000]


SIZES = st.lists(st.integers(0, 3_000), max_size=60)


@settings(deadline=None, max_examples=60)
@given(SIZES, st.data())
def test_no_batch_is_over_a_limit_and_no_event_is_lost_or_moved(sizes, data):
    bodies: list[bytes] = []
    limit = data.draw(st.integers(200, 6_000), label="bytes")
    most = data.draw(st.integers(1, 20), label="events")

    def send(body: bytes, on_retry: object) -> IngestionResult:
        bodies.append(body)
        return IngestionResult.from_wire({"validEvents": json.loads(body)["events"], "invalidEvents": []})

    given_ = [event(number, pad="x" * size) for number, size in enumerate(sizes)]
    results = list(ingest(given_, send, clean=str, max_events=most, max_bytes=limit))

    assert [result.event for result in results] == given_
    assert all(len(body) <= limit and 1 <= len(json.loads(body)["events"]) <= most for body in bodies)
    fits = [len(each.to_request()) + len('{"events":[]}') <= limit for each in given_]
    assert [result.state is ACCEPTED for result in results] == fits
    sent = [each["ref"] for body in bodies for each in json.loads(body)["events"]]
    assert sent == [each.ref for each, fit in zip(given_, fits, strict=True) if fit]


# --- what became of each --------------------------------------------------------------------------


def test_each_event_has_its_own_result(service, client):
    service.refs["old"] = {}
    service.duplicate_code = "duplicate_ref"
    nonsense = event("odd").model_copy(update={"name": "nonsense"})

    results = list(client.events.ingest([event("new"), event("old"), nonsense]))

    assert [(result.state, result.error) for result in results] == [
        (ACCEPTED, None),
        (DUPLICATE, "ref already exists"),
        (INVALID, "no such event"),
    ]
    assert [result.stored for result in results] == [True, True, False]


def test_the_first_of_two_events_with_the_same_ref_is_accepted(service, client):
    results = list(client.events.ingest([event("same", n=1), event("other"), event("same", n=2)]))

    assert states(results) == [ACCEPTED, ACCEPTED, DUPLICATE]
    assert service.refs["same"]["data"] == {"n": 1}


def test_invalid_events_are_reported_and_the_others_sent(service, client):
    given_ = [
        {"name": "call", "timestamp": "yesterday", "customerAlias": "acme", "ref": "1"},
        {"name": "call", "timestamp": AT, "customer_alias": "acme", "ref": "2"},
        {"name": "call"},
        "no event at all",
        {**event("3").model_dump(), "data": {"when": object()}},
        {**event("4").model_dump(), "note": float("nan")},
        {**event("5").model_dump(), "name": "\ud800"},
    ]

    results = list(client.events.ingest(given_))

    assert states(results) == [INVALID, ACCEPTED, INVALID, INVALID, INVALID, INVALID, INVALID]
    assert [result.event for result in results] == given_
    assert results[0].error == "timestamp: Input should be an ISO 8601 date-time"
    assert results[2].error == "timestamp: Field required; customerAlias: Field required; ref: Field required"
    assert results[3].error == "Input should be a valid dictionary or instance of UsageEvent"
    assert all(result.error for result in results if result.state is INVALID)
    assert list(service.refs) == ["2"]


def test_an_answer_that_does_not_name_an_event_leaves_it_unconfirmed(service, client):
    service.answer("POST /v2/events", answered(200, {"validEvents": [], "invalidEvents": []}))

    (result,) = client.events.ingest([event(1)])

    assert (result.state, result.stored) == (UNCONFIRMED, False)
    assert result.error == "the answer does not name it"


def refused(service, entry: object, told: str) -> None:
    """Have the next batch answered with one refused event."""
    body = {"validEvents": [], "invalidEvents": [{"event": entry, "error": told}]}
    service.answer("POST /v2/events", answered(200, body))


def test_an_invalid_event_is_matched_by_its_ref(service, client):
    told = []
    for entry in ({"ref": "1"}, json.loads(event("1").to_json()), "no object"):
        refused(service, entry, "customerAlias is empty")
        (result,) = client.events.ingest([event(1)])
        told.append((result.state, result.error))

    assert told == [(INVALID, "customerAlias is empty")] * 2 + [(UNCONFIRMED, "the answer does not name it")]


def test_a_duplicate_is_told_by_its_code_and_never_by_words(service, client):
    texts = ["ref already exists", "Duplicate ref", "the customer with this reference exists twice", ""]
    codes = ["duplicate_ref", "ref_already_exists", "already_exists"]
    found = {}
    for text in [*texts, *codes]:
        refused(service, json.loads(event(1).to_json()), text)
        (result,) = client.events.ingest([event(1)])
        found[text] = result.state

    assert found == {**dict.fromkeys(texts, INVALID), **dict.fromkeys(codes, DUPLICATE)}


def test_a_ref_that_this_ingestion_had_accepted_is_a_duplicate_in_any_later_batch(service, client):
    again = [event(number) for number in (0, 999, 1_000)]

    results = list(client.events.ingest([*(event(number) for number in range(1_001)), *again]))

    assert states(results) == [ACCEPTED] * 1_001 + [DUPLICATE] * 3


def test_an_ingestion_remembers_a_limited_number_of_refs(monkeypatch):
    monkeypatch.setattr("billhook.client.ingestion._MOST_REMEMBERED", 2)
    sent: set[str] = set()

    def send(body: bytes, on_retry: object) -> IngestionResult:
        (entry,) = json.loads(body)["events"]
        fresh = entry["ref"] not in sent
        sent.add(entry["ref"])
        invalid = [] if fresh else [{"event": entry, "error": "it is there"}]
        return IngestionResult.from_wire({"validEvents": [entry] * fresh, "invalidEvents": invalid})

    results = ingest([event(ref) for ref in "abcca"], send, clean=str, max_events=1)

    assert states(results) == [ACCEPTED, ACCEPTED, ACCEPTED, DUPLICATE, INVALID]


def test_a_refusal_is_invalid_unless_a_try_before_it_may_have_had_an_effect(service, client):
    for first, state, told in (
        (LIMITED, INVALID, "this id is in use"),
        (BROKEN, UNCONFIRMED, "an attempt got no answer, and the next one: this id is in use"),
    ):
        service.answer("POST /v2/events", first)
        refused(service, json.loads(event(1).to_json()), "this id is in use")
        (result,) = client.events.ingest([event(1)])
        assert (result.state, result.error) == (state, told)


def test_a_batch_halved_after_a_lost_try_leaves_refusals_unconfirmed(service, client):
    too_large = error(413, "invalid_request_error", "request_too_large", "the batch is too large")
    service.refs["b"] = {}
    service.answer("POST /v2/events", cut, too_large)

    results = list(client.events.ingest([event("a"), event("b"), event("c")]))

    assert states(results) == [ACCEPTED, UNCONFIRMED, ACCEPTED]
    service.answer("POST /v2/events", cut, too_large)
    assert states(client.events.ingest([event("alone")])) == [UNCONFIRMED]


# --- what the service says of an event is a stranger's text ---------------------------------------


def test_the_error_of_an_event_is_truncated_cleaned_and_redacted(service, client):
    said = f"\x1b[31m{REFRESH_TOKEN}\n customerAlias is not allowed here: {'ref ' * 15_000}"
    refused(service, json.loads(event(1).to_json()), said)

    (result,) = client.events.ingest([event(1)])

    assert result.state is INVALID
    assert result.error.startswith("[31m[hidden] customerAlias is not allowed here: ref ref")
    assert (len(result.error), result.error[-1]) == (1_000, "…")


def test_events_stored_by_a_lost_attempt_count_as_stored_where_the_service_gives_a_code(service, client):
    def stored_and_lost(taken: Taken):
        service._ingest(taken)
        return BROKEN

    for code, state in (("duplicate_ref", DUPLICATE), (None, UNCONFIRMED)):
        service.duplicate_code = code
        service.answer("POST /v2/events", stored_and_lost)

        results = list(client.events.ingest([event(f"{code}-1"), event(f"{code}-2")]))

        assert states(results) == [state, state]


# --- when it cannot go on -------------------------------------------------------------------------


def test_a_batch_that_cannot_be_sent_has_its_results_before_the_error(service, client_of):
    client = client_of(service.url, retries=RetryPolicy(attempts=1))
    service.answer("POST /v2/events", service._ingest, BROKEN)
    seen: list[EventResult] = []

    with pytest.raises(InternalError, match="it is us"):
        seen.extend(client.events.ingest(event(number) for number in range(2_500)))

    assert states(seen) == [ACCEPTED] * 1_000 + [UNCONFIRMED] * 1_000
    assert "internal_error" in seen[-1].error
    assert batches(service) == [1_000, 1_000]


def test_a_service_with_smaller_limits_gets_smaller_batches(service, client):
    service.max_bytes = 40_000

    results = list(client.events.ingest(of_size(f"r{number}", 10_000) for number in range(10)))

    assert set(states(results)) == {ACCEPTED}
    assert [result.event.ref for result in results] == [f"r{number}" for number in range(10)]
    assert len(service.refs) == 10
    # A single event that is too large is reported.
    results = list(client.events.ingest([event("a"), of_size("b", 50_000), event("c")]))

    assert states(results) == [ACCEPTED, INVALID, ACCEPTED]
    assert results[1].error == "the batch is too large"


def test_an_answer_that_is_none_ends_it(service, client):
    service.answer("POST /v2/events", answered(200, {"validEvents": "all of them"}))

    with pytest.raises(UnexpectedResponse):
        list(client.events.ingest([event(1)]))


def test_an_error_of_the_event_source_is_raised_after_the_sent_results(service, client):
    def broken():
        yield from (event(number) for number in range(1_500))
        raise RuntimeError("the source is broken")

    seen: list[EventResult] = []
    with pytest.raises(RuntimeError, match="the source is broken"):
        seen.extend(client.events.ingest(broken()))

    assert states(seen) == [ACCEPTED] * 1_000
    assert list(service.refs) == [result.event.ref for result in seen]


# --- progress -------------------------------------------------------------------------------------


def test_progress_is_reported_after_each_batch(service, client):
    told: list[Progress] = []
    service.refs["0"] = {}
    service.duplicate_code = "duplicate_ref"
    given_ = [event(number) for number in range(1_500)] + [{"ref": "none"}]

    list(client.events.ingest(given_, on_progress=told.append))

    sizes = [len(taken.body) for taken in service.taken if taken.line == "POST /v2/events"]
    assert told == [
        Progress(1, sizes[0], accepted=999, duplicate=1),
        Progress(2, sum(sizes), accepted=1_499, duplicate=1, invalid=1),
    ]
