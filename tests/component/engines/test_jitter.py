"""Retries of what failed together come apart, on every engine that settles results."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.events import PingTest
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.processes import until
from support.signing import signed

FAILED = (
    "SELECT (julianday(due_at) - julianday(f.failed_at)) * 86400 FROM run r JOIN failure f ON f.run_id = r.id"
)


def failing():
    handlers = Handlers()

    @handlers.on(PingTest, retry=[100])
    def fail(event):
        raise OSError("the mail server is down")

    return handlers


@pytest.mark.parametrize("engine", ["worker", "inline"])
@pytest.mark.parametrize(("jitter", "least", "most"), [(None, 100, 110), (0, 100, 100)])
def test_retries_come_up_to_a_tenth_later(app_with, running, engine, jitter, least, most):
    config = {"BILLHOOK_RETRY_JITTER": jitter} if jitter is not None else {"BILLHOOK_RETRY_JITTER": "0.1"}
    make = running if engine == "worker" else lambda handlers, **more: app_with(handlers=[handlers], **more)
    app = make(failing(), BILLHOOK_ENGINE=engine, **config)

    for number in range(20):
        assert deliver(app, headers=signed(message_id=f"ping {number}")).status_code == 200

    waits = until(lambda: found if len(found := rows(inbox_at(app), FAILED)) == 20 else None, 10)
    seconds = [wait for (wait,) in waits]
    assert least - 0.01 <= min(seconds) <= max(seconds) <= most + 0.01
    assert (len({round(wait, 2) for wait in seconds}) > 10) == (jitter is None)
