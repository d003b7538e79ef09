"""Deliveries: when they are sent, how they are retried, and what the log tells."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.webhooks import outbox
from support.processes import until
from support.receivers import (
    Hostile,
    deliveries,
    delivery,
    errors,
    flush,
    hang,
    hostile,
    later,
    read_request,
    receiving,
    subscribe,
    trigger,
)
from support.sandbox import API_TOKEN, running
from support.timeouts import scaled

SCHEDULE = (1, 5, 30)


def waits(one: dict[str, Any]) -> float:
    """Seconds from the last attempt to the next."""
    last = datetime.fromisoformat(one["attempts"][-1]["startedAt"])
    return (datetime.fromisoformat(one["nextAttemptAt"]) - last) / timedelta(seconds=1)


def test_events_a_delivery_is_a_post_of_json_with_its_type_in_a_header() -> None:
    """Source: spec, "Events", rule 1."""
    with receiving() as receiver, running() as sandbox:
        subscribe(sandbox, "MonthEndReport", f"{receiver.url}?shop=1")
        trigger(sandbox, "MonthEndReport", reportId="rep_1")
        flush(sandbox)
        found = delivery(sandbox)

    (got,) = receiver.got
    assert got.headers["x-webhook-type"] == "MonthEndReport"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.path.endswith("?shop=1")
    assert b'"reportId":"rep_1"' in got.body
    assert b"type" not in got.body
    assert (found["state"], found["id"], found["attempts"][0]["status"]) == ("delivered", got.id, 200)
    assert "nextAttemptAt" not in found


def test_a_sandbox_with_nothing_to_send_runs_no_queries() -> None:
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread().name.startswith("asyncio"):  # what the loop hands to threads
            asked.append(statement)

    with receiving() as receiver, running() as sandbox:
        event.listen(sandbox.sandbox.service._engine, "before_cursor_execute", note)
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        assert asked  # or nothing would be proved

        def is_quiet() -> bool:
            asked.clear()
            time.sleep(0.7)
            return not asked

        until(is_quiet, 30)


def test_only_2xx_is_a_success() -> None:
    """Source: spec, "Events": a receiver answers with a 2xx status."""
    refusals, successes = (300, 302, 307, 400, 404, 410, 429, 500, 503), (200, 201, 202, 204)
    statuses = (*refusals, *successes)
    with receiving(*statuses) as receiver, running() as sandbox:
        receiver.headers = {"Location": receiver.url}
        for number, _ in enumerate(statuses):
            subscribe(sandbox, "PingTest", f"{receiver.url}/{number}")
            flush(sandbox)
        found = deliveries(sandbox)

    assert [one["attempts"][0]["status"] for one in found] == list(statuses)
    assert [errors(one) for one in found] == [
        *[["redirected"]] * 3, *[["bad_status"]] * 6, *[[None]] * 4
    ]  # fmt: skip
    assert [one["state"] for one in found] == ["pending"] * 9 + ["delivered"] * 4
    assert len(receiver.got) == len(statuses)  # no redirect was followed


def test_a_refused_delivery_is_sent_again_by_the_schedule_with_the_same_id() -> None:
    with receiving(500, 503, 404) as receiver, running(retry_seconds=SCHEDULE) as sandbox:
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        planned = []
        for seconds in SCHEDULE:
            planned.append(waits(delivery(sandbox)))
            later(sandbox, seconds * 0.85)  # too early, whatever the jitter
            early = len(receiver.got)
            later(sandbox, seconds * 0.3)
            assert (early, len(receiver.got)) == (len(planned), len(planned) + 1)
        found = delivery(sandbox)

    assert all(0.9 * s <= wait <= 1.1 * s for s, wait in zip(SCHEDULE, planned, strict=True))
    assert [attempt["status"] for attempt in found["attempts"]] == [500, 503, 404, 200]
    assert found["state"] == "delivered"
    assert len({got.id for got in receiver.got}) == 1
    stamps = [int(got.headers["webhook-timestamp"]) for got in receiver.got]
    assert stamps == sorted(set(stamps))
    assert len({got.headers["webhook-signature"] for got in receiver.got}) == 4


def test_after_the_schedule_a_delivery_has_failed_and_can_be_sent_again() -> None:
    with receiving(*[500] * 3) as receiver, running(retry_seconds=(1, 5)) as sandbox:
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        later(sandbox, 2)
        later(sandbox, 6)
        failed = delivery(sandbox)
        later(sandbox, 100_000)
        assert len(receiver.got) == 3

        sandbox.ok("POST", f"/_sandbox/deliveries/{failed['id']}/resend")
        flush(sandbox)
        found = delivery(sandbox)

    assert (failed["state"], failed.get("nextAttemptAt")) == ("failed", None)
    assert (found["state"], [one["number"] for one in found["attempts"]]) == ("delivered", [1, 2, 3, 4])
    assert {got.id for got in receiver.got} == {failed["id"]}


def test_the_log_is_filtered() -> None:
    with receiving(500) as receiver, running() as sandbox:
        approved = subscribe(sandbox, "InvoiceApproved", receiver.url)
        subscribe(sandbox, "PaymentFailed", receiver.url)
        flush(sandbox)
        raised = [trigger(sandbox, "InvoiceApproved")]
        flush(sandbox)
        raised += [trigger(sandbox, name) for name in ("InvoiceApproved", "PaymentFailed")]
        flush(sandbox)
        everything = [one["raisedId"] for one in deliveries(sandbox)]
        filtered = {
            query: [raised.index(one["raisedId"]) for one in deliveries(sandbox, f"&{query}")]
            for query in (
                "state=pending", "state=delivered", "eventType=PaymentFailed",
                f"subscriptionId={approved}", f"raisedId={raised[1]}",
                "state=pending&eventType=PaymentFailed",
            )
        }  # fmt: skip
        one = deliveries(sandbox)[0]
        got = sandbox.ok("GET", f"/_sandbox/deliveries/{one['id']}")
        wrong = sandbox.call("GET", "/_sandbox/deliveries?state=lost")

    assert everything == raised
    assert list(filtered.values()) == [[0], [1, 2], [2], [0, 1], [1], []]
    assert got == one
    assert wrong.json["param"] == "state"


@pytest.mark.parametrize("is_limited", [True, False], ids=["limited", "control: not limited"])
def test_a_receiver_that_hangs_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, *, is_limited: bool
) -> None:
    at_once = 4 if is_limited else 8  # of 20, however many URLs it has
    if not is_limited:
        monkeypatch.setattr("billhook.sandbox.webhooks.sender.MAX_PER_DESTINATION", 99)
        monkeypatch.setattr("billhook.sandbox.webhooks.sender.MAX_IN_PROGRESS", 8)
    with hostile(hang) as slow, receiving() as quick, running(delivery_timeout_seconds=60) as sandbox:
        for number in range(20):
            subscribe(sandbox, "PingTest", f"{slow.url}/{number}")
        until(lambda: slow.connected >= at_once, 30)

        subscribe(sandbox, "PingTest", quick.url)

        if is_limited:
            until(lambda: quick.got, 30)
        else:
            time.sleep(0.3)
        assert (len(quick.got), slow.most_at_once) == (is_limited, at_once)


def test_a_flush_that_times_out_reports_how_many_are_due() -> None:
    with hostile(hang) as slow, running(delivery_timeout_seconds=60) as sandbox:
        subscribe(sandbox, "PingTest", slow.url)

        told = flush(sandbox, 0.2)
        wrong = sandbox.call("POST", "/_sandbox/flush", {"timeoutSeconds": 61})

    assert (told["due"], told["pending"]) == (1, 1)
    assert wrong.json["param"] == "timeoutSeconds"


def test_deliveries_in_progress_at_close_are_sent_after_a_restart(sandbox_url: str) -> None:
    with hostile(hang) as slow, running(database_url=sandbox_url, delivery_timeout_seconds=60) as sandbox:
        subscribe(sandbox, "PingTest", slow.url)
        until(lambda: slow.connected, 30)
        began = time.monotonic()
    assert time.monotonic() - began < scaled(30)  # it is broken off, not waited for

    with hostile(hang) as _, running(database_url=sandbox_url, delivery_timeout_seconds=0.3) as again:
        found = until(lambda: [one for one in deliveries(again) if one["attempts"]], 30)[0]

    assert errors(found)[:1] == ["not_connected"]  # nobody is there any more: but it was tried


@pytest.mark.slow
def test_a_process_that_is_killed_in_mid_send_sends_again_after_its_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sandbox.db'}"
    answering = threading.Event()

    def first_hangs(connection: socket.socket, receiver: Hostile) -> None:
        requests.append(read_request(connection))
        if answering.is_set():
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            receiver.ended.wait(60)

    requests: list[bytes] = []
    with hostile(first_hangs) as receiver:
        options = SandboxOptions(
            database_url=url, api_token=API_TOKEN, allow_private=True, delivery_timeout_seconds=60
        )
        made = Sandbox(options)
        with made.service.transaction(writes=True) as tx:
            asked = outbox.subscribe(tx, receiver.url, "PingTest", None, None)
            outbox.ping_subscription(tx, asked, receiver.url)
        made.close()
        code = (
            "import sys, threading; from billhook.sandbox import Sandbox, SandboxOptions\n"
            "Sandbox(SandboxOptions(database_url=sys.argv[1], allow_private=True, "
            "delivery_timeout_seconds=60)).start(); threading.Event().wait()"
        )
        process = subprocess.Popen([sys.executable, "-c", code, url])
        try:
            until(lambda: requests, 60)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        answering.set()

        with running(database_url=url) as again:
            again.real.advance(seconds=10**9)  # later than the machine's clock, which the killed one had
            again.token = ""
            flush(again)
            found = delivery(again)

    ids = [next(line for line in one.split(b"\r\n") if line.startswith(b"webhook-id")) for one in requests]
    assert found["state"] == "delivered"
    assert len(ids) == 2
    assert ids[0] == ids[1]


def test_at_most_200_bytes_of_a_text_answer_are_stored() -> None:
    with receiving() as receiver, running() as sandbox:
        receiver.headers, receiver.body = (
            {"Content-Type": "text/plain"},
            "ä\x00\x1b[31m".encode() + b"x" * 5000,
        )
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        receiver.headers = {"Content-Type": "application/octet-stream"}
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        text, other = (one["attempts"][0] for one in deliveries(sandbox))

    assert text["answer"].startswith("ä\ufffd\ufffd[31mxxx")
    assert len(text["answer"].encode()) <= 200
    assert "answer" not in other
