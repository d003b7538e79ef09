"""Retries of what failed together come apart."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.events import PingTest
from support.apps import deliver, inbox_at
from support.inbox_view import column
from support.signing import signed

WAIT = (
    "SELECT (julianday(due_at) - julianday(f.failed_at)) * 86400 FROM run r JOIN failure f ON f.run_id = r.id"
)


@pytest.mark.parametrize(("jitter", "least", "most"), [("0.1", 100, 110), (0, 100, 100)])
def test_retries_come_up_to_a_tenth_later(app_with, jitter, least, most):
    handlers = Handlers()
    handlers.on(PingTest, retry=[100])(lambda event: 1 / 0)
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline", BILLHOOK_RETRY_JITTER=jitter)

    for number in range(20):
        assert deliver(app, headers=signed(message_id=f"ping {number}")).status_code == 200

    seconds = column(inbox_at(app), WAIT)
    assert least - 0.01 <= min(seconds) <= max(seconds) <= most + 0.01
    assert (len({round(wait, 2) for wait in seconds}) > 10) == bool(jitter)
