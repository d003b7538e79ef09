"""Retries of what failed together come apart."""

from __future__ import annotations

from support.apps import deliver, inbox_at
from support.engines import handling
from support.inbox_view import column

WAIT = (
    "SELECT (julianday(due_at) - julianday(f.failed_at)) * 86400 FROM run r JOIN failure f ON f.run_id = r.id"
)


def test_retries_come_up_to_a_tenth_later(app_with):
    handlers = handling(lambda event: 1 / 0, retry=[100])
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline", BILLHOOK_RETRY_JITTER="0.1")

    for number in range(20):
        assert deliver(app, message_id=f"ping {number}").status_code == 200

    seconds = column(inbox_at(app), WAIT)
    assert 99.99 <= min(seconds) <= max(seconds) <= 110.01
    assert len({round(wait, 2) for wait in seconds}) > 10
