"""A Flask app as an ASGI application: deliveries on the loop, other paths in the app, and its lifespan."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from contextlib import suppress

import pytest
from flask import Flask, current_app, request

from billhook import Billhook, Handlers, signals
from billhook.errors import ConfigError, InboxUnavailable, OutOfResources
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox import Counted, PutStatus, Receipt
from billhook.inbox.storing.probe import StartupCheck
from billhook.inbox.watching.backlog_pace import read_not_stored
from billhook.receiver import delivery_rules
from support.processes import until
from support.signing import PATH, signed


def pieces(*bodies):
    """The messages of a body in pieces."""
    return [
        {"type": "http.request", "body": body, "more_body": number < len(bodies)}
        for number, body in enumerate(bodies, 1)
    ]


async def ask(application, method="POST", path=PATH, headers=None, body=b"{}", root_path="", messages=None):
    """Send one request; return the status, the headers and the body of the response.

    `messages` is what comes instead of the body in one piece, a list or a coroutine function; behind a list
    the client has left.
    """
    left = pieces(body) if messages is None else messages
    sent = []

    async def receive():
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    names = [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()]
    scope = {
        "type": "http", "method": method, "path": path, "root_path": root_path, "headers": names,
        "query_string": b"", "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    await application(scope, messages if callable(messages) else receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(each.get("body", b"") for each in sent)


def answered(application, **request):
    """The status and the JSON of the response to one request."""
    status, _, body = asyncio.run(ask(application, **request))
    return status, json.loads(body)


def codes(application, **request):
    status, found = answered(application, **request)
    return status, found.get("code")


@pytest.fixture
def flask_app(app_with) -> Flask:
    app = app_with()
    app.add_url_rule("/other", view_func=lambda: {"body": request.get_data(as_text=True)}, methods=["POST"])
    return app


@pytest.fixture
def application(flask_app):
    return Billhook().asgi_app(flask_app)


def test_a_delivery_is_stored_wherever_the_application_is_mounted_at_any_spelling(flask_app, application):
    places = [
        (PATH, ""), (PATH + "/", ""), ("/api" + PATH, "/api"), (PATH, "/api"), ("//webhooks/billing", ""),
        ("http://receiver" + PATH, ""), ("https://r:1" + PATH, ""),
    ]  # fmt: skip

    async def other_paths(scope, receive, send):
        pytest.fail(f"{scope['path']} is received in the threads of other paths")

    application._other_paths = other_paths

    async def deliver():
        return [
            await ask(application, path=path, root_path=root, headers=signed(message_id=f"m{number}"))
            for number, (path, root) in enumerate(places)
        ]

    replies = asyncio.run(deliver())

    found = [(status, json.loads(body)) for status, _, body in replies]
    assert found == [(200, {"status": "accepted"})] * len(places)
    assert {headers[b"content-length"] for _, headers, _ in replies} == {b"22"}
    assert [stored.body for stored in get_state(flask_app).inbox.received(10)] == [b"{}"] * len(places)


def test_a_body_in_tiny_pieces_takes_little_more_memory_than_its_size(flask_app, application):
    size = 60_000
    body = b"{" + b" " * (size - 2) + b"}"
    tiny = ({"body": body[at : at + 2], "more_body": at + 2 < size} for at in range(0, size, 2))

    async def receive():
        return {"type": "http.request", **next(tiny)}

    async def deliver():
        await ask(application, headers=signed())  # what is made once is not counted
        tracemalloc.start()
        return (await ask(application, headers=signed(body), messages=receive))[0]

    try:
        status = asyncio.run(deliver())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert status == 200
    assert get_state(flask_app).inbox.received(10)[1].body == body
    assert peak < 10 * size  # in a list of pieces it is thirty times the size


class Uncopied(bytes):
    """The first piece of a body: it raises where the next is added by making a new body of both."""

    def __add__(self, other):
        raise AssertionError("copied")


def test_the_pieces_of_a_body_are_added_without_a_copy_for_each(application):
    messages = pieces(Uncopied(b'{"a"'), b":1", b"}")

    status, _, _ = asyncio.run(ask(application, headers=signed(b'{"a":1}'), messages=messages))

    assert status == 200


def test_a_target_that_is_no_path_goes_to_the_flask_app(application):
    status, _, _ = asyncio.run(ask(application, "OPTIONS", path="*", headers=signed()))

    assert status == 404


def test_the_head_of_an_answer_is_made_once(application):
    """As it is for each delivery, and the same object: a server only reads it."""
    heads = []

    async def send(message):
        if "status" in message:
            heads.append(message)

    async def deliver():
        for _ in range(2):
            left = pieces(b"{}")
            headers = [(name.lower().encode(), text.encode()) for name, text in signed().items()]
            scope = {"type": "http", "method": "POST", "path": PATH, "root_path": "", "headers": headers}

            async def receive(left=left):
                return left.pop(0)

            await application(scope, receive, send)

    asyncio.run(deliver())

    assert heads[0]["status"] == 200
    assert heads[0] is heads[1]


def test_a_forged_delivery_is_401(application):
    assert codes(application, headers=signed(b"[]")) == (401, "authentication_failed")


def test_any_method_but_post_is_405_with_an_allow_header(flask_app, application):
    methods = ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PURGE"]

    async def deliver():
        return [
            await ask(application, method, path=path, headers=signed())
            for path in (PATH, PATH + "/")
            for method in methods
        ]

    replies = asyncio.run(deliver())

    assert {(status, headers[b"allow"]) for status, headers, _ in replies} == {(405, b"POST")}
    assert [body == b"" for _, _, body in replies] == [method == "HEAD" for method in methods] * 2
    assert get_state(flask_app).inbox.received(10) == []


def test_a_client_that_disconnects_within_its_body_is_400_and_nothing_is_stored(flask_app, application):
    cut_short = pieces(b"{}", b"")[:1]

    assert codes(application, headers=signed(), messages=cut_short) == (400, "incomplete_body")
    assert get_state(flask_app).inbox.received(10) == []


def test_another_view_is_not_given_a_part_of_a_body_as_the_whole(flask_app, application):
    used = []

    def use():
        used.append(request.get_data())
        return {}

    flask_app.add_url_rule("/import", view_func=use, methods=["POST"])

    status, _, _ = asyncio.run(ask(application, path="/import", messages=pieces(b"a part", b"")[:1]))
    whole, _, _ = asyncio.run(ask(application, path="/import", messages=pieces(b"the ", b"whole")))

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


def test_observers_of_refusals_hold_up_no_answer(flask_app, application, monkeypatch, caplog):
    monkeypatch.setattr("billhook.receiver.asgi.MAX_WAITING", 5)
    application = Billhook().asgi_app(flask_app)
    go_on, told, accepted = threading.Event(), [], []

    def observe(sender, *, cause, **_):
        go_on.wait(30)
        told.append((sender, current_app._get_current_object(), cause))
        raise LookupError("an observer's mistake")

    async def deliver():
        refused = [(await ask(application))[0] for _ in range(20)]
        return refused, (await ask(application, headers=signed()))[0]

    with (
        signals.delivery_rejected.connected_to(observe, sender=flask_app),
        signals.delivery_accepted.connected_to(lambda *_, **facts: accepted.append(facts), sender=flask_app),
    ):
        statuses = asyncio.run(deliver())
        answered_before = not told
        go_on.set()
        until(lambda: len(told) >= 5)

    assert (statuses, answered_before, len(accepted)) == (([401] * 20, 200), True, 1)
    assert set(told) == {(flask_app, flask_app, "missing")}
    assert len(told) <= 6  # one is told while five wait
    assert "observers of delivery_rejected are too slow" in caplog.text
    assert caplog.text.count("an observer of a lifecycle signal raised") == 1


def test_a_refusal_is_answered_where_no_thread_can_be_started_for_its_observers(
    flask_app, application, monkeypatch, caplog
):
    def fail(*_):
        raise OutOfResources("no thread")

    monkeypatch.setattr("billhook.receiver.asgi.start_thread", fail)
    with signals.delivery_rejected.connected_to(lambda *_, **__: None, sender=flask_app):
        assert asyncio.run(ask(application))[0] == 401
    application.refused_by_server(400)  # the server calls it, and nothing of it is observed

    assert "observers of delivery_rejected are too slow" in caplog.text
    assert "request refused by the server with 400 (Bad Request)" in caplog.text


def test_without_observers_and_engine_no_thread_takes_part_in_the_answer(app_with, monkeypatch):
    monkeypatch.delattr(asyncio, "to_thread")
    for each in delivery_rules.SIGNALS:
        monkeypatch.setattr(each, "receivers", {})  # those of other tests in this process
    app = app_with(BILLHOOK_ENGINE="worker")

    assert answered(Billhook().asgi_app(app), headers=signed()) == (200, {"status": "accepted"})


def crowd(application, number):
    """The statuses of so many deliveries at once."""

    async def deliver():
        asked = (ask(application, headers=signed(message_id=f"m{n}")) for n in range(number))
        return await asyncio.gather(*asked)

    return [status for status, _, _ in asyncio.run(deliver())]


def test_a_hundred_concurrent_deliveries_are_stored_in_few_transactions(flask_app, application, monkeypatch):
    committer = get_state(flask_app).inbox._committer
    batches = []
    insert = committer._insert_batch
    monkeypatch.setattr(
        committer, "_insert_batch", lambda batch: (batches.append(len(batch)), insert(batch))[1]
    )

    assert crowd(application, 100) == [200] * 100
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
    state.rules.deadline_seconds = 0.3

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

    assert crowd(application, 5) == [503] * 5


def test_a_delivery_waits_for_the_check_of_a_database_that_was_slow_at_start(flask_app, application):
    checked, go_on = threading.Event(), threading.Event()
    committer = get_state(flask_app).inbox._committer
    committer.startup_check = StartupCheck(lambda: (go_on.wait(10), checked.set())[1], "a database")

    async def deliver():
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        return await ask(application, headers=signed())

    status, _, _ = asyncio.run(deliver())

    assert (status, checked.is_set()) == (200, True)
    assert committer.startup_check is None  # no later delivery costs a thread for it


def test_a_body_over_the_limit_is_413_and_the_rest_of_it_is_read(flask_app, application):
    get_state(flask_app).rules.max_body_bytes = 10
    behind = {"type": "http.disconnect"}
    left = [*pieces(*[b"x" * 6] * 4)[:3], {"type": "http.request"}, behind]

    status, _, _ = asyncio.run(ask(application, headers=signed(), messages=left))

    assert (status, left) == (413, [behind])


def test_a_length_over_the_limit_is_413_before_any_of_the_body_is_read(application):
    order = []

    async def noted(scope, receive, send):
        async def note(message):
            order.append(message["type"])
            await send(message)

        await application(scope, receive, note)

    async def receive():
        order.append("body")
        return {"type": "http.disconnect"}

    headers = {**signed(), "Content-Length": "10000000000"}
    status, _, _ = asyncio.run(ask(noted, headers=headers, messages=receive))

    assert (status, order) == (413, ["http.response.start", "http.response.body", "body"])


def test_the_rest_of_a_refused_body_is_awaited_as_long_as_a_body(flask_app):
    rules = get_state(flask_app).rules
    rules.max_body_bytes, rules.body_seconds = 1, 0.05
    application, taken = Billhook().asgi_app(flask_app), []

    async def receive():
        taken.append(1)
        await asyncio.sleep(60 * (len(taken) - 1))
        return {"type": "http.request", "body": b"xx", "more_body": True}

    request = ask(application, headers=signed(), messages=receive)
    status, _, _ = asyncio.run(asyncio.wait_for(request, 20))

    assert (status, len(taken)) == (413, 2)


def test_an_endless_body_is_drained_up_to_a_limit(flask_app, application):
    get_state(flask_app).rules.max_body_bytes = 10
    taken = []

    async def receive():
        taken.append(1)
        return {"type": "http.request", "body": b"x" * (delivery_rules.DRAIN_BYTES // 4), "more_body": True}

    status, _, _ = asyncio.run(ask(application, headers=signed(), messages=receive))

    assert (status, len(taken)) == (413, 6)  # one that is refused, and one beyond the limit


def test_a_body_that_is_shorter_than_its_length_is_400(flask_app, application):
    headers = {**signed(), "Content-Length": "3"}

    assert codes(application, headers=headers) == (400, "incomplete_body")
    assert get_state(flask_app).inbox.received(10) == []


def test_a_mounted_application_starts_the_engine_with_its_first_delivery(app_with):
    app = app_with(BILLHOOK_ENGINE="thread")

    status, _, _ = asyncio.run(ask(Billhook().asgi_app(app), headers=signed()))

    assert status == 200
    until(lambda: get_state(app).inbox.received(10) == [])


def test_a_body_that_does_not_arrive_in_time_is_400_at_any_spelling(flask_app):
    get_state(flask_app).rules.body_seconds = 0.1
    application = Billhook().asgi_app(flask_app)

    async def silence():
        await asyncio.sleep(60)

    async def deliver():
        paths = (PATH, "//webhooks/billing")
        return await asyncio.gather(
            *(ask(application, path=path, headers=signed(), messages=silence) for path in paths)
        )

    replies = asyncio.run(deliver())

    found = [(status, json.loads(body)["code"]) for status, _, body in replies]
    assert found == [(400, "incomplete_body")] * 2


def test_the_time_of_a_body_is_over_where_its_server_loses_the_cancellation(flask_app):
    """As `asyncio.wait_for` does until Python 3.12."""
    get_state(flask_app).rules.body_seconds = 0.05

    async def receive():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return pieces(b"{}")[0]

    application = Billhook().asgi_app(flask_app)
    assert codes(application, headers=signed(), messages=receive) == (400, "incomplete_body")


@pytest.mark.parametrize("verified", [False, True])
def test_without_memory_the_response_is_503_and_a_verified_delivery_is_counted_as_not_stored(
    flask_app, application, monkeypatch, verified
):
    state = get_state(flask_app)

    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr(*((state.inbox, "put_async") if verified else (state.rules, "verify")), no_memory)
    statuses = [asyncio.run(ask(application, headers=headers))[0] for headers in (signed(), {})]
    state.inbox._counts.close()

    assert statuses == [503, 401 if verified else 503]
    not_stored = read_not_stored(state.inbox, state.inbox.now())
    assert (not_stored and not_stored[0]) == (1 if verified else None)


def test_where_no_thread_can_be_started_pages_and_observed_deliveries_are_503(
    flask_app, application, monkeypatch, caplog
):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    called = []
    flask_app.before_request(lambda: called.append(request.get_data()))

    async def asked():
        get_state(flask_app).inbox.start()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            page = await ask(application, path="/other", body=b"given up")
            with signals.delivery_accepted.connected_to(lambda *_, **__: None, sender=flask_app):
                delivery = await ask(application, headers=signed(message_id="k"))
        return page, delivery, await ask(application, path="/other", body=b"later")

    page, delivery, later = asyncio.run(asked())

    assert (page[0], page[2]) == (503, b'{"status": "unavailable"}')
    assert (delivery[0], b"retry-after" in delivery[1]) == (503, True)
    assert later[0] == 200
    assert called == [b"later"]
    assert "request refused by the server with 503" in caplog.text


def test_a_commit_has_what_reading_has_left_of_the_deadline(flask_app, application, monkeypatch):
    limits, seconds = [], get_state(flask_app).rules.deadline_seconds

    async def put(delivery, left):
        limits.append(left)
        return Receipt(PutStatus.ACCEPTED, 1, delivery.event_type)

    async def receive():
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + seconds - 1  # what reading took
        return pieces(b"{}")[0]

    monkeypatch.setattr(get_state(flask_app).inbox, "put_async", put)

    assert codes(application, headers=signed(), messages=receive)[0] == 200
    assert limits[0] <= 1


@pytest.mark.parametrize("error", [RuntimeError("another"), MemoryError("late")])
def test_another_failure_of_a_page_is_raised_and_so_is_one_after_its_beginning(application, error):
    async def other_paths(scope, receive, send):
        if isinstance(error, MemoryError):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    application._other_paths = other_paths

    with pytest.raises(type(error), match=str(error)):
        asyncio.run(ask(application, path="/other"))


def test_the_lifespan_starts_the_engine_and_stops_it(app_with):
    app = app_with(BILLHOOK_ENGINE="thread")
    state = get_state(app)
    messages = iter(["lifespan.startup", "lifespan.shutdown"])
    sent = []

    async def receive():
        return {"type": next(messages)}

    async def send(message):
        sent.append((message["type"], state.engine.running))

    asyncio.run(Billhook().asgi_app(app)({"type": "lifespan"}, receive, send))

    assert sent == [("lifespan.startup.complete", True), ("lifespan.shutdown.complete", False)]


async def lifespan(application, step):
    """Serve one life: between its startup and its shutdown, `step` is awaited."""
    sent = []

    async def receive():
        if not sent:
            return {"type": "lifespan.startup"}
        await step()
        return {"type": "lifespan.shutdown"}

    async def send(message):
        sent.append(message["type"])

    await application({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize("engine", ["thread", "inline", "worker"])
def test_each_further_lifespan_receives_handles_and_counts_again(app_with, engine):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="note")(lambda event, delivery: calls.append(delivery.key))
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE=engine)
    state, application, answers = get_state(app), Billhook().asgi_app(app), []

    def a_life(number):
        async def step():
            both = [signed(b"{}", message_id=f"m{number}"), {}]
            answers.extend([(await ask(application, headers=headers))[0] for headers in both])
            if engine == "thread":
                await asyncio.to_thread(until, lambda: calls[-1:] == [f"m{number}"])

        asyncio.run(lifespan(application, step))

    for number in range(3):
        a_life(number)
        between, _ = codes(application, headers=signed(b"{}", message_id="between"))
        assert between == 503  # no server is there: nothing starts by itself
        state.close()  # another time, as at the process's end

    assert answers == [200, 401] * 3
    assert calls == ([] if engine == "worker" else ["m0", "m1", "m2"])
    refused = state.inbox.read_counts(only=[Counted.REFUSED])
    assert sum(each.number for each in refused.values()) >= 3


def test_an_app_without_billhook_has_no_asgi_application():
    with pytest.raises(ConfigError, match="init_app"):
        Billhook().asgi_app(Flask("empty"))
