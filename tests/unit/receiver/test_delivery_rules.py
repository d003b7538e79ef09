"""Every case of what `DeliveryRules` decides: a delivery is stored as what, or refused with which answer."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from datetime import timedelta

import pytest

from billhook import Source
from billhook.clock import FrozenClock
from billhook.errors import (
    BacklogFull,
    BodyIncomplete,
    BodyTooLarge,
    DeadlinePassed,
    Draining,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
)
from billhook.events import EVENT_TYPES
from billhook.inbox import Counted, NewDelivery, PutStatus, Receipt
from billhook.receiver.delivery_rules import SIGNALS, DeliveryRules, RequestHeaders
from billhook.receiver.responses import ACCEPTED, DUPLICATE, WebhookResponse, error_response
from billhook.signing import SignatureTemplate
from support.signing import APPROVED, OTHER_SECRET, SECRET, signed

SOURCE = Source("default", secrets=[SECRET])
TYPE_IN_BODY = Source("default", secrets=[SECRET], type_field="type")
MARK = "echo-me-not-7391"


class Seen:
    """The sender of the rules' signals; notes them, whom the rules woke, and what it counted."""

    def __init__(self):
        self.woken, self.counted, self.signals = [], [], []

    def count(self, what, at, **about):
        self.counted.append((what, at, about))


@pytest.fixture
def seen():
    noted = Seen()
    with ExitStack() as connected:
        for signal in SIGNALS:

            def note(sender, _name=signal.name, **facts):
                noted.signals.append((_name, facts))

            connected.enter_context(signal.connected_to(note, sender=noted))
        yield noted


@pytest.fixture
def inbox_clock(frozen_clock):
    return FrozenClock(frozen_clock.now())


@pytest.fixture
def make_rules(seen, frozen_clock, inbox_clock):
    return lambda wake: DeliveryRules(
        frozen_clock,
        inbox_clock,
        sender=seen,
        wake=wake,
        count=seen.count,
        known_types=EVENT_TYPES,
        max_body_bytes=100,
        deadline_seconds=10,
    )


@pytest.fixture
def rules(make_rules, seen):
    return make_rules(seen.woken.append)


def decide(rules, headers, body=b"{}", source=SOURCE):
    """The delivery to store, or the answer to one that is refused: as both receivers do it."""
    try:
        names = RequestHeaders({name.lower(): text for name, text in headers.items()})
        return rules.verify(source, names, body)
    except (RequestError, SignatureError) as error:
        return rules.rejected(source, error)


# --- authentic ------------------------------------------------------------------------------------

DELIVERIES = [
    ("InvoiceApproved", APPROVED),
    ("SomethingNewNextYear", b'{"anything": [1, 2]}'),
    ("InvoiceApproved", b'{"date": "2026-01-15T09:30:00Z", "invoiceId": "inv_1", "extra": true}'),
    ("InvoiceApproved", b"{broken json"),
    ("InvoiceApproved", b'{"date": "not a date"}'),
    ("PingTest", b""),
    ("PingTest", b"\x00\xff\xfe\r\n\r\n\x80"),
    ("a.b-c_D9", b"{}"),
    ("T" * 128, b"{}"),
]
NO_TYPES = [
    None, "", " ", "9Ping", "-Ping", "Ping Test", "Ping/Test", "Pïng", "T" * 129, MARK + "!",
    "PingTest,PingTest", "PingTest,InvoiceApproved", "PingTest,",  # sent twice
]  # fmt: skip


def with_type(headers, event_type):
    kept = {name: text for name, text in headers.items() if name != "X-Webhook-Type"}
    return kept if event_type is None else {**kept, "X-Webhook-Type": event_type}


def test_an_authentic_delivery_of_any_type_and_body_is_to_be_stored_as_it_came(
    rules, frozen_clock, inbox_clock
):
    now = frozen_clock.now()
    inbox_clock.advance(seconds=7)

    found = [decide(rules, signed(body, kind, at=now), body) for kind, body in DELIVERIES]

    assert [(one.event_type, one.body) for one in found] == DELIVERIES
    facts = {(one.source, one.signed_at, one.received_at) for one in found}
    assert facts == {("default", now, inbox_clock.now())}
    assert {one.event_type for one in found if one.known} == {"InvoiceApproved", "PingTest"}


def test_an_authentic_delivery_is_stored_under_its_id_with_its_headers(rules):
    headers = {**signed(message_id="msg_1"), "Cookie": "session=1"}

    found = decide(rules, headers)

    assert found.key == "msg_1"
    stored = {name.upper().replace("-", "_"): text for name, text in headers.items() if name != "Cookie"}
    assert json.loads(found.headers) == stored


def test_an_authentic_delivery_whose_header_names_no_type_is_to_be_stored_without_one(rules):
    found = [decide(rules, with_type(signed(), event_type)) for event_type in NO_TYPES]

    assert [(one.event_type, one.known) for one in found] == [("", False)] * len(NO_TYPES)


# --- refused --------------------------------------------------------------------------------------

UNAUTHENTICATED = WebhookResponse(
    401,
    b'{"type": "authentication_error", "code": "authentication_failed", '
    b'"message": "The delivery could not be authenticated."}',
)


def unauthentic(now):
    """Headers of deliveries that are not authentic, by what is wrong and the cause that is logged."""
    good = signed(at=now)

    def without(name):
        return {key: text for key, text in good.items() if key != name}

    return {
        ("no signature", "missing"): without("webhook-signature"),
        ("no id", "missing"): without("webhook-id"),
        ("no timestamp", "missing"): without("webhook-timestamp"),
        ("malformed signature", "malformed"): {**good, "webhook-signature": MARK},
        ("wrong secret", "mismatch"): signed(secret=OTHER_SECRET, at=now),
        ("another body", "mismatch"): signed(b"[]", at=now),
        ("stale", "stale"): signed(at=now - timedelta(seconds=301)),
        ("in the future", "future"): signed(at=now + timedelta(seconds=301)),
    }  # fmt: skip


def test_every_delivery_that_is_not_authentic_gets_the_same_401_and_is_counted(rules, seen, frozen_clock):
    cases = unauthentic(frozen_clock.now())

    answers = {wrong: decide(rules, headers) for (wrong, _), headers in cases.items()}

    assert {wrong: answer for wrong, answer in answers.items() if answer != UNAUTHENTICATED} == {}
    ages = {"stale": 301, "future": 301}
    facts = [{"source": "default", "cause": cause, "duration_seconds": ages.get(cause)} for _, cause in cases]
    assert seen.counted == [(Counted.REFUSED, frozen_clock.now(), about) for about in facts]


def test_without_a_good_signature_neither_type_nor_body_makes_a_difference(rules):
    forged = signed(secret=OTHER_SECRET)

    answers = [decide(rules, with_type(forged, event_type)) for event_type in [*NO_TYPES, "PingTest"]]
    answers += [decide(rules, forged, body) for body in (b"", b"no JSON", b'{"a": 1, "a": 2}')]

    assert set(answers) == {UNAUTHENTICATED}


def test_a_scheme_that_signs_the_type_refuses_what_names_none(rules, frozen_clock):
    scheme = SignatureTemplate(content="{timestamp}.{type}.{body}")
    secret = "a text of sixteen or more"
    source = Source("default", scheme, secrets=[secret])
    good = scheme.sign(b"{}", secret, event_type="PingTest", now=frozen_clock.now())

    found = [
        decide(rules, {**good, "X-Webhook-Type": kind}, source=source)
        for kind in ("", "9", "PingTest,PingTest", "PingTest")
    ]

    assert found[:3] == [UNAUTHENTICATED] * 3
    assert found[3].event_type == "PingTest"


def test_a_signature_is_good_within_the_tolerance_on_both_sides_of_now(rules, frozen_clock):
    ages = (-301, -300, 300, 301)

    found = [decide(rules, signed(at=frozen_clock.now() + timedelta(seconds=age))) for age in ages]

    assert [isinstance(one, NewDelivery) for one in found] == [False, True, True, False]


def test_the_age_of_a_signature_goes_by_one_clock_and_all_that_is_stored_by_the_inboxes(
    rules, seen, frozen_clock, inbox_clock
):
    inbox_clock.advance(seconds=400)

    found = decide(rules, signed(at=frozen_clock.now()))
    decide(rules, signed(at=inbox_clock.now()))

    assert (found.signed_at, found.received_at) == (frozen_clock.now(), inbox_clock.now())
    assert [(at, about["cause"]) for _, at, about in seen.counted] == [(inbox_clock.now(), "future")]


def test_a_content_encoding_is_415_with_or_without_a_good_signature(rules):
    encodings = ["gzip", "GZIP", "br", "deflate", "identity, gzip", "gzip, identity", MARK]

    answers = [
        decide(rules, {**headers, "Content-Encoding": encoding})
        for encoding in encodings
        for headers in (signed(), signed(secret=OTHER_SECRET))
    ]

    told = {(answer.status, json.loads(answer.body)["code"]) for answer in answers}
    assert told == {(415, "unsupported_content_encoding")}


def test_the_identity_encoding_is_none(rules):
    found = [decide(rules, {**signed(), "Content-Encoding": same}) for same in ("identity", " Identity ", "")]

    assert [one.body for one in found] == [b"{}"] * 3


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "level"),
    [
        (BodyIncomplete("1 of 2"), 400, "invalid_request_error", "incomplete_body", logging.WARNING),
        (BodyTooLarge("over 100"), 413, "invalid_request_error", "request_too_large", logging.WARNING),
        *(
            (error("why"), 503, "api_error", "internal_error", logging.ERROR)
            for error in (InboxUnavailable, DeadlinePassed, BacklogFull, Draining, OutOfResources)
        ),
    ],
    ids=lambda value: value.cause if isinstance(value, Exception) else "",
)
def test_a_refusal_is_answered_logged_counted_and_signalled(
    rules, seen, frozen_clock, caplog, error, status, kind, code, level
):
    answer = rules.rejected(SOURCE, error)

    found = json.loads(answer.body)
    assert (answer.status, found["type"], found["code"]) == (status, kind, code)
    assert sorted(found) == ["code", "message", "type"]
    assert [name for name, _ in answer.headers] == (["Retry-After"] if status == 503 else [])
    reason = f"{error.cause}: {error}" if status == 503 else error.cause
    (record,) = caplog.records
    assert record.getMessage() == f"delivery to source default refused with {status} ({reason})"
    assert (record.levelno, record.source, record.cause) == (level, "default", error.cause)
    about = {"source": "default", "cause": error.cause, "duration_seconds": None}
    assert seen.counted == [(Counted.REFUSED, frozen_clock.now(), about)]
    facts = {"source": "default", "status": status, "cause": error.cause}
    assert seen.signals == [("delivery_rejected", facts)]


def test_a_body_has_seven_tenths_of_the_time_and_its_commit_the_rest(rules):
    assert (rules.deadline_seconds, rules.body_seconds) == (10, pytest.approx(7))


def test_retry_after_is_spread_from_five_seconds_to_a_minute():
    waits = [
        int(dict(error_response(kind("x")).headers)["Retry-After"])
        for kind in (BacklogFull, DeadlinePassed, Draining, InboxUnavailable)
        for _ in range(250)
    ]

    assert (min(waits), max(waits)) == (5, 60)
    assert len(set(waits)) == 56


def test_nothing_that_an_attacker_sends_is_answered_or_logged(rules, caplog):
    names = ["X-Webhook-Type", "webhook-signature", "webhook-timestamp", "webhook-id"]
    marked = dict.fromkeys(names, MARK)

    answers = [
        decide(rules, headers, MARK.encode())
        for headers in (signed(), marked, {**signed(), "webhook-id": MARK + "."}, {"Content-Encoding": MARK})
    ]

    assert [answer.status for answer in answers] == [401, 401, 401, 415]
    assert MARK not in str(answers)
    assert MARK not in caplog.text
    assert "delivery to source default refused with 401 (malformed)" in caplog.messages


def test_a_flood_of_refusals_is_one_line_and_a_number(rules, monkeypatch, caplog):
    monkeypatch.setattr(rules._rejections, "monotonic", lambda: 1.0)  # all in one second, on any machine
    for number in range(300):
        decide(rules, {**signed(), "webhook-id": f"attacker.{number}"})
    assert len(caplog.records) == 1

    rules.close()

    assert caplog.messages[1].startswith("delivery to source default refused with 401 (malformed); 299 times")


def test_the_number_of_refusals_is_logged_with_the_next_stored_delivery(rules, monkeypatch, caplog):
    for _ in range(3):
        decide(rules, {})
    monkeypatch.setattr(rules._rejections, "interval_seconds", 0)

    store(rules, PutStatus.ACCEPTED)

    assert "refused with 401 (missing); 2 times" in caplog.messages[-1]


# --- stored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named_in", "headers", "event_type"),
    [
        *(
            ("X-GitHub-Event", {"X-GitHub-Event": text}, text if fits else "")
            for text, fits in (
                ("push", True), ("orders/create", True), ("a b", True), ("1", True), ("push,push", False),
                (" a", False), ("\xe9", False),
            )
        ),
        ("X-GitHub-Event", {"x-github-event": "push", "X-Webhook-Type": "PingTest"}, "push"),
        ("X-GitHub-Event", {"X-Webhook-Type": "PingTest"}, ""),
        # The default header has names of its own, also where a source names it.
        ("x-webhook-type", {"X-Webhook-Type": "PingTest"}, "PingTest"),
        ("x-webhook-type", {"X-Webhook-Type": "orders/create"}, ""),
    ],
)  # fmt: skip
def test_a_source_may_name_its_types_in_another_header(rules, named_in, headers, event_type):
    source = Source("default", secrets=[SECRET], type_header=named_in)

    assert decide(rules, with_type(signed(), None) | headers, source=source).event_type == event_type


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (None, "is missing"), ("", "is missing"), ("PingTest,PingTest", "is sent twice, or has a comma"),
        ("PingTest,", "is sent twice, or has a comma"), ("orders/create", "is malformed"),
        ("1", "is malformed"),
    ],
)  # fmt: skip
def test_why_a_delivery_has_no_type_is_told(rules, named, why):
    delivery = decide(rules, with_type(signed(), named))

    assert (delivery.event_type, delivery.type_field) == ("", None)
    assert delivery.untyped == f"no event type: its header X-Webhook-Type {why}"


@pytest.mark.parametrize("body", [b'{"type":"a"}', b"not JSON", b""])
def test_a_type_in_the_body_is_not_read_by_the_receiver_and_no_header_counts(rules, body):
    delivery = decide(rules, signed(body), body, TYPE_IN_BODY)

    assert (delivery.event_type, delivery.type_field, delivery.known) == ("", "type", False)
    assert delivery.body == body


@pytest.mark.parametrize(
    ("stored_as", "counted_as"), [("PingTest", "PingTest"), ("orders/create", "*"), ("", "*")]
)
def test_a_duplicate_with_its_type_in_the_body_is_counted_as_what_was_read(
    rules, seen, stored_as, counted_as
):
    delivery = decide(rules, signed(message_id="msg_1"), source=TYPE_IN_BODY)

    assert rules.stored(delivery, Receipt(PutStatus.DUPLICATE, 7, stored_as)) == DUPLICATE

    assert [about["event_type"] for _, _, about in seen.counted] == [counted_as]
    assert seen.signals == [("delivery_duplicate", {**FACTS, "event_type": stored_as})]


def store(rules, status, event_type="PingTest", **more):
    """The answer when the inbox has committed a delivery with this status."""
    delivery = decide(rules, with_type(signed(message_id="msg_1"), event_type))
    return rules.stored(delivery, Receipt(status, 7, "PingTest", **more))


FACTS = {"source": "default", "key": "msg_1", "event_type": "PingTest"}


def test_an_accepted_delivery_is_signalled_and_wakes_the_engine(rules, seen, caplog):
    assert store(rules, PutStatus.ACCEPTED) == ACCEPTED

    assert seen.woken == [7]
    assert seen.signals == [("delivery_accepted", {**FACTS, "delivery_id": 7})]
    assert (seen.counted, caplog.messages) == ([], [])


def test_a_duplicate_is_counted_and_wakes_nobody(rules, seen, frozen_clock, caplog):
    assert store(rules, PutStatus.DUPLICATE) == DUPLICATE

    assert seen.woken == []
    assert seen.signals == [("delivery_duplicate", FACTS)]
    about = {"source": "default", "event_type": "PingTest"}
    assert seen.counted == [(Counted.DUPLICATE, frozen_clock.now(), about)]
    assert caplog.messages == []


def test_an_unknown_type_beyond_the_names_that_are_kept_is_a_duplicate_in_the_log(rules, seen, caplog):
    assert store(rules, PutStatus.SURPLUS, "Odd") == DUPLICATE

    assert caplog.messages == [
        "the type Odd is not kept: delivery 7 has the same body, and names as many types as are kept"
    ]
    assert caplog.records[0].delivery_id == 7
    assert [about["event_type"] for _, _, about in seen.counted] == ["*"]
    assert (seen.woken, seen.signals) == ([], [("delivery_duplicate", {**FACTS, "event_type": "Odd"})])


def test_a_conflict_is_accepted_logged_and_signalled_and_wakes_nobody(rules, seen, caplog):
    answer = store(rules, PutStatus.CONFLICT, "Odd", conflict_of=3, error="type conflict with delivery 3")

    assert answer == ACCEPTED
    assert caplog.messages == ["delivery 7 (Odd) is quarantined: type conflict with delivery 3"]
    about = {"delivery_id": 7, "conflict_of": 3, "stored_event_type": "PingTest"}
    quarantined = {"delivery_id": 7, "event_type": "Odd", "error": "type conflict with delivery 3"}
    assert seen.signals == [
        ("delivery_conflict", {**FACTS, "event_type": "Odd", **about}),
        ("delivery_quarantined", quarantined),
    ]
    assert (seen.woken, seen.counted) == ([], [])


def test_a_delivery_without_a_type_is_accepted_and_quarantined(rules, seen, caplog):
    assert store(rules, PutStatus.UNTYPED, None, error="no event type") == ACCEPTED

    assert caplog.messages == ["delivery 7 (no type) is quarantined: no event type"]
    facts = {"delivery_id": 7, "event_type": "", "error": "no event type"}
    assert seen.signals == [("delivery_quarantined", facts)]
    assert seen.woken == []


def test_an_engine_that_cannot_be_woken_changes_no_answer(make_rules, caplog):
    def fail(delivery_id):
        raise OSError("too many open files")

    answers = [store(make_rules(wake), PutStatus.ACCEPTED) for wake in (None, fail)]

    assert answers == [ACCEPTED, ACCEPTED]
    (record,) = caplog.records
    assert record.getMessage() == "could not wake the engine for delivery 7"
    assert (record.delivery_id, record.cause) == (7, "OSError")


def test_what_the_server_refuses_by_itself_is_logged_once_a_second_and_counted(rules, seen, caplog):
    for _ in range(3):
        rules.refused_by_server(431)
    rules.close()

    assert caplog.messages == [
        "request refused by the server with 431 (Request Header Fields Too Large)",
        "request refused by the server with 431 (Request Header Fields Too Large); 2 times in 0 s",
    ]
    assert [(about["source"], about["cause"]) for _, _, about in seen.counted] == [("", "http_431")] * 3
    assert seen.signals == []
