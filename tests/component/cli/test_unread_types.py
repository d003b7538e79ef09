"""What the commands make of deliveries whose type is in the body, before and after a worker has read it."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Thread

import pytest

from billhook import Source
from billhook.extension import get_state
from billhook.inbox import Deliveries, DeliveryFilter
from support.apps import make_app
from support.inbox_view import incoming, place_of, rows
from support.receivers import receiving
from support.signing import SECRET, signed

CREATED = b'{"type":"order created","orderId":"o_1"}'


@pytest.fixture
def acme(tmp_path, inbox_url, frozen_clock):
    """An app whose default source names the type in the body; its deliveries wait to be handled."""
    made = make_app(
        tmp_path,
        BILLHOOK_ENGINE="worker",
        BILLHOOK_INBOX_URL=inbox_url,
        BILLHOOK_TYPE_FIELD="type",
        clock=frozen_clock,
    )
    yield made
    get_state(made).close()


def store(app, body=CREATED, key="k1", **more):
    new = incoming(key, event_type="", body=body)
    return get_state(app).inbox.put(replace(new, type_field="type", **more)).delivery_id


def test_a_type_is_shown_as_unread_then_in_quotes_then_as_none(run, acme):
    store(acme)
    store(acme, b"{}", "k2")

    unread = run("deliveries", "list").stdout
    get_state(acme).handle_due()
    read = run("deliveries", "list").stdout
    shown = [run("deliveries", "show", number).stdout.splitlines()[0] for number in ("1", "2")]

    assert unread.count("(not read yet)") == 2
    assert '"order created"' in read
    assert "(no type)" in read
    assert shown == ['delivery 1: "order created", done', "delivery 2: (no type), quarantined"]


def test_tail_reads_the_type_itself(run, acme, monkeypatch):
    def follow(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Deliveries, "follow", follow)
    store(acme)
    store(acme, b'{"type":5}', "k2")

    first, second = run("deliveries", "tail").stdout.splitlines()

    assert '  "order created"  ' in first
    assert "  (not read yet)  " in second


@pytest.mark.parametrize("event_type", ["order created", ("other", "order created")])
def test_who_follows_a_type_gets_deliveries_once_they_are_read(acme, event_type):
    state, found = get_state(acme), []
    selection = DeliveryFilter(event_type=event_type)
    stream = Deliveries(state.inbox).follow(selection, after=0, idle_seconds=3)
    following = Thread(target=lambda: found.extend(one.summary for one in stream))
    store(acme)
    store(acme, b'{"type":"another"}', "k2")
    following.start()
    following.join(0.5)  # it has seen both unread by then; the result does not depend on it

    state.handle_due()
    following.join(20)

    assert [(summary.id, summary.event_type) for summary in found] == [(1, "order created")]


def test_deliveries_without_a_type_are_replayed_by_the_field_that_an_operator_names(run, acme, inbox_url):
    get_state(acme).inbox.put(incoming("k1", event_type="", body=CREATED))  # as before the option was set
    store(acme, b'{"kind":"x"}', "k2")
    get_state(acme).handle_due()

    refused = run("deliveries", "replay", "1")
    again = run("deliveries", "replay", "--state", "quarantined", "--yes", "--json")
    done = run("deliveries", "replay", "1", "--type-field", "type", "--yes", "--json")
    get_state(acme).handle_due()

    told = "delivery 1 has no event type: give one with --as TYPE, or the field of its body that has it with"
    assert f"Error: {told}" in refused.stderr
    # One without a field is selected by its id alone; one with a field is read by that again.
    counts = [json.loads(one.stdout) for one in (again, done)]
    assert [(one["selected"], one["reread"]) for one in counts] == [(1, 1)] * 2
    found = rows(place_of(inbox_url), "SELECT event_type, state FROM delivery ORDER BY id")
    assert found == [("order created", "done"), ("", "quarantined")]


def test_doctor_does_not_take_an_unread_type_for_a_missing_one(run, acme):
    def told():
        found = json.loads(run("doctor", "--json", SECRETS=SECRET).stdout)["findings"]
        return [each["what"] for each in found if each["code"] in ("no-type", "unknown-type")]

    store(acme)
    store(acme, b"{}", "k2")
    before = told()
    get_state(acme).handle_due()

    assert before == []
    assert told() == [
        "1 of the newest deliveries name no usable event type",
        '1 of the newest deliveries are of the unknown type "order created"',
    ]


def test_send_writes_the_type_into_a_sample_and_leaves_a_file_as_it_is(run, tmp_path):
    file = tmp_path / "body.json"
    file.write_bytes(b'{"kind": "x"}')
    options = {"SECRETS": SECRET, "TYPE_FIELD": "event.type"}

    with receiving() as receiver:
        sample = run("send", "PingTest", "--to", receiver.url, **options)
        as_is = run("send", "orders/create", "--to", receiver.url, "--file", str(file), **options)
        sent = receiver.got

    assert (sample.exit_code, sample.stderr) == (0, "")
    assert (as_is.exit_code, as_is.stderr) == (0, "note: no event type: the body has no field 'event'\n")
    assert [json.loads(each.body) for each in sent] == [{"event": {"type": "PingTest"}}, {"kind": "x"}]
    assert not any("x-webhook-type" in map(str.lower, each.headers) for each in sent)


def test_forward_sends_no_header_where_the_type_is_in_the_body(run, acme, secret_file):
    store(acme)
    get_state(acme).handle_due()

    with receiving() as receiver:
        where = ("--to", receiver.url, "--secret-file", secret_file(SECRET), "--yes")
        done = run("deliveries", "forward", "1", *where)
        (sent,) = receiver.got

    assert done.exit_code == 0, done.output
    assert sent.body == CREATED
    assert "x-webhook-type" not in map(str.lower, sent.headers)


def test_send_to_a_source_of_the_app_is_read_by_it(tmp_path, inbox_url):
    acme = Source("acme", secrets=[SECRET], type_field="type")
    app = make_app(tmp_path, BILLHOOK_ENGINE="inline", BILLHOOK_INBOX_URL=inbox_url, sources=[acme])

    result = app.test_cli_runner().invoke(args=["billhook", "send", "PingTest", "--source", "acme"])

    get_state(app).close()
    assert result.exit_code == 0, result.output
    found = rows(place_of(inbox_url), "SELECT source, event_type, state FROM delivery")
    assert found == [("acme", "PingTest", "done")]


def test_doctor_names_the_field_that_has_the_type(run, tmp_path, secret_file):
    def request(body):
        headers = {name: text for name, text in signed(body).items() if name != "X-Webhook-Type"}
        lines = ["POST /hooks HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
        file = tmp_path / "request"
        file.write_bytes("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return str(file)

    secret = ("--secret-file", secret_file(SECRET))
    told = [
        run("doctor", "signature", "--request", request(body), *secret, **options).stdout
        for body, options in (
            (b"{}", {}),
            (b'{"event_type":"a/b"}', {"TYPE_FIELD": "event_type"}),
            (b"{}", {"TYPE_FIELD": "event_type"}),
        )
    ]

    assert "waits in quarantine; a proxy in front can add it" in told[0]
    assert "quarantine" not in told[1]
    assert "the body has no event type in the field 'event_type': such a delivery waits in" in told[2]
