"""A Flask app as an ASGI application: deliveries on the loop, other paths in the app, and its lifespan."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc

import pytest
from flask import Flask, current_app, request

from billhook import Billhook, signals
from billhook.errors import ConfigError, InboxUnavailable
from billhook.extension import get_state
from billhook.inbox.probe import StartupCheck
from billhook.receiver import intake
from support.processes import until
from support.signing import PATH, signed


async def ask(application, method="POST", path=PATH, headers=None, body=b"{}", root_path="", more=()):
    """Send one request in pieces; return the status, the headers and the body of the response."""
    pieces = [body, *more]
    left = [{"body": piece, "more_body": n < len(pieces)} for n, piece in enumerate(pieces, 1)]
    sent = []

    async def receive():
        return {"type": "http.request", **left.pop(0)} if left else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    names = [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()]
    scope = {
        "type": "http", "method": method, "path": path, "root_path": root_path, "headers": names,
        "query_string": b"", "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    await application(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(each.get("body", b"") for each in sent)


@pytest.fixture
def flask_app(plain_app) -> Flask:
    app = plain_app()
    Billhook(app)
    app.add_url_rule("/other", view_func=lambda: {"body": request.get_data(as_text=True)}, methods=["POST"])
    return app


@pytest.fixture
def application(flask_app):
    return Billhook().asgi_app(flask_app)


@pytest.mark.parametrize(
    ("path", "root_path"), [(PATH, ""), (PATH + "/", ""), ("/api" + PATH, "/api"), ("http://r" + PATH, "")]
)
def test_a_delivery_is_stored_wherever_the_application_is_mounted(flask_app, application, path, root_path):
    status, headers, body = asyncio.run(ask(application, path=path, root_path=root_path, headers=signed()))

    assert (status, json.loads(body)) == (200, {"status": "accepted"})
    assert headers[b"content-length"] == str(len(body)).encode()
    (stored,) = get_state(flask_app).inbox.received(10)
    assert stored.body == b"{}"


def test_a_body_in_tiny_pieces_takes_little_more_memory_than_its_size(flask_app, application):
    size = 200_000
    body = b"{" + b" " * (size - 2) + b"}"
    pieces = ({"body": body[at : at + 2], "more_body": at + 2 < size} for at in range(0, size, 2))
    answers = []

    async def receive():
        return {"type": "http.request", **next(pieces)}

    async def send(message):
        answers.append(message)

    headers = [(name.lower().encode(), text.encode()) for name, text in signed(body).items()]
    scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}

    async def deliver():
        await ask(application, headers=signed())  # what is made once is not counted
        tracemalloc.start()
        await application(scope, receive, send)

    try:
        asyncio.run(deliver())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert answers[0]["status"] == 200
    assert get_state(flask_app).inbox.received(10)[1].body == body
    assert peak < 10 * size  # in a list of pieces it is thirty times the size


def test_a_target_that_is_no_path_goes_to_the_flask_app(application):
    status, _, _ = asyncio.run(ask(application, "OPTIONS", path="*", headers=signed()))

    assert status == 404


def test_other_paths_go_to_the_flask_app_with_their_whole_body(application):
    status, _, body = asyncio.run(ask(application, path="/other", body=b"one ", more=[b"two"]))

    assert (status, json.loads(body)) == (200, {"body": "one two"})


def test_a_forged_delivery_is_401_and_any_method_but_post_is_405(application):
    async def both():
        return [await ask(application, headers=signed(b"[]")), await ask(application, "GET", body=b"")]

    forged, get = asyncio.run(both())

    assert (forged[0], get[0], get[1][b"allow"]) == (401, 405, b"POST")


def test_a_client_that_disconnects_within_its_body_is_400_and_nothing_is_stored(flask_app, application):
    async def cut(scope, receive, send):
        async def disconnects():
            return {"type": "http.disconnect"}

        await application(scope, disconnects, send)

    status, _, body = asyncio.run(ask(cut, headers=signed()))

    assert (status, json.loads(body)["code"]) == (400, "incomplete_body")
    assert get_state(flask_app).inbox.received(10) == []


def test_another_view_is_not_given_a_part_of_a_body_as_the_whole(flask_app, application):
    used = []

    def use():
        used.append(request.get_data())
        return {}

    flask_app.add_url_rule("/import", view_func=use, methods=["POST"])

    async def cut(scope, receive, send):
        pieces = [{"type": "http.request", "body": b"a part", "more_body": True}, {"type": "http.disconnect"}]

        async def disconnects():
            return pieces.pop(0)

        await application(scope, disconnects, send)

    status, _, _ = asyncio.run(ask(cut, path="/import"))
    whole, _, _ = asyncio.run(ask(application, path="/import", body=b"the ", more=[b"whole"]))

    assert (status, whole) == (500, 200)
    assert used == [b"the whole"]


def test_observers_run_outside_the_event_loop_within_the_app_context(flask_app, application):
    seen = []

    def observe(sender, **_):
        seen.append((sender, current_app._get_current_object(), threading.current_thread()))

    async def deliver():
        return (await ask(application, headers=signed()))[0], threading.current_thread()

    with signals.delivery_accepted.connected_to(observe, sender=flask_app):
        status, loop_thread = asyncio.run(deliver())

    ((sender, app, thread),) = seen
    assert (status, sender, app) == (200, flask_app, flask_app)
    assert thread is not loop_thread


def test_without_observers_and_engine_no_thread_takes_part_in_the_answer(plain_app, monkeypatch):
    monkeypatch.delattr(asyncio, "to_thread")
    for each in intake.SIGNALS:
        monkeypatch.setattr(each, "receivers", {})  # those of other tests in this process
    app = plain_app(BILLHOOK_ENGINE="worker")
    Billhook(app)

    status, _, body = asyncio.run(ask(Billhook().asgi_app(app), headers=signed()))

    assert (status, json.loads(body)) == (200, {"status": "accepted"})


def test_a_hundred_concurrent_deliveries_are_stored_in_few_transactions(flask_app, application, monkeypatch):
    committer = get_state(flask_app).inbox._committer
    batches = []
    insert = committer._insert_batch
    monkeypatch.setattr(
        committer, "_insert_batch", lambda batch: (batches.append(len(batch)), insert(batch))[1]
    )

    async def crowd():
        return await asyncio.gather(
            *(ask(application, headers=signed(message_id=f"m{n}")) for n in range(100))
        )

    replies = asyncio.run(crowd())

    assert [status for status, _, _ in replies] == [200] * 100
    assert sum(batches) == 100
    assert len(batches) < 20


def test_a_delivery_that_is_not_committed_in_time_is_503_and_may_be_stored(
    flask_app, application, monkeypatch
):
    state = get_state(flask_app)
    committer = state.inbox._committer
    go_on = threading.Event()
    insert = committer._insert_batch
    monkeypatch.setattr(committer, "_insert_batch", lambda batch: (go_on.wait(10), insert(batch))[1])
    state.intake.deadline_seconds = 0.3

    async def late():
        response = await ask(application, headers=signed())
        go_on.set()
        while not state.inbox.received(10):  # its result comes to this loop, for a request that is answered
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return response

    status, headers, _ = asyncio.run(late())

    assert status == 503
    assert b"retry-after" in headers


def test_a_commit_that_fails_is_503_for_every_request_that_waits_for_it(flask_app, application, monkeypatch):
    def fail(batch):
        raise InboxUnavailable("the disk is full")

    monkeypatch.setattr(get_state(flask_app).inbox._committer, "_insert_batch", fail)

    async def crowd():
        return await asyncio.gather(*(ask(application, headers=signed()) for _ in range(5)))

    assert {status for status, _, _ in asyncio.run(crowd())} == {503}


def test_a_delivery_waits_for_the_check_of_a_database_that_was_slow_at_start(flask_app, application):
    checked, go_on = threading.Event(), threading.Event()
    committer = get_state(flask_app).inbox._committer
    committer.startup_check = StartupCheck(lambda: (go_on.wait(10), checked.set())[1], "a database")

    async def deliver():
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        return await ask(application, headers=signed())

    status, _, _ = asyncio.run(deliver())

    assert (status, checked.is_set()) == (200, True)


def test_a_body_over_the_limit_is_413_and_the_rest_of_it_is_read(flask_app, application):
    get_state(flask_app).intake.max_body_bytes = 10
    left = [b"x" * 6] * 4
    taken = []

    async def counted(scope, receive, send):
        async def count():
            message = await receive()
            taken.append(message)
            return message

        await application(scope, count, send)

    status, _, _ = asyncio.run(ask(counted, headers=signed(), body=left[0], more=left[1:]))

    assert (status, len(taken)) == (413, 4)


def test_an_endless_body_is_drained_up_to_a_limit(flask_app, application):
    taken = []

    async def endless(scope, receive, send):
        async def more():
            taken.append(1)
            return {"type": "http.request", "body": b"x" * 300_000, "more_body": True}

        await application(scope, more, send)

    status, _, _ = asyncio.run(ask(endless, headers=signed()))

    assert (status, len(taken)) == (413, 5)


def test_a_body_that_is_shorter_than_its_length_is_400(flask_app, application):
    status, _, body = asyncio.run(ask(application, headers={**signed(), "Content-Length": "3"}))

    assert (status, json.loads(body)["code"]) == (400, "incomplete_body")
    assert get_state(flask_app).inbox.received(10) == []


def test_a_mounted_application_starts_the_engine_with_its_first_delivery(plain_app):
    app = plain_app(BILLHOOK_ENGINE="thread")
    hooks = Billhook(app)
    state = get_state(app)
    try:
        status, _, _ = asyncio.run(ask(hooks.asgi_app(app), headers=signed()))

        assert status == 200
        until(lambda: state.inbox.received(10) == [])
    finally:
        state.close()


@pytest.mark.slow
def test_a_body_that_does_not_arrive_in_time_is_400(flask_app, application):
    get_state(flask_app).intake.body_seconds = 0.1

    async def silent(scope, receive, send):
        await application(scope, lambda: asyncio.sleep(60), send)

    status, _, body = asyncio.run(ask(silent, headers=signed()))

    assert (status, json.loads(body)["code"]) == (400, "incomplete_body")


def test_without_memory_the_response_is_503(flask_app, application, monkeypatch):
    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr(get_state(flask_app).intake, "verify", no_memory)

    assert asyncio.run(ask(application, headers=signed()))[0] == 503


def test_the_lifespan_starts_the_engine_and_stops_it(plain_app):
    app = plain_app(BILLHOOK_ENGINE="thread")
    Billhook(app)
    state = get_state(app)
    messages = iter(["lifespan.startup", "lifespan.shutdown"])
    sent = []

    async def receive():
        return {"type": next(messages)}

    async def send(message):
        sent.append((message["type"], state.engine.running))

    asyncio.run(Billhook().asgi_app(app)({"type": "lifespan"}, receive, send))

    assert sent == [("lifespan.startup.complete", True), ("lifespan.shutdown.complete", False)]


def test_an_app_without_billhook_has_no_asgi_application():
    with pytest.raises(ConfigError, match="init_app"):
        Billhook().asgi_app(Flask("empty"))
