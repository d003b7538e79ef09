"""What the health checks say."""

from __future__ import annotations

import pytest
from flask import Flask

from billhook.errors import InboxUnavailable, SchemaMismatch
from billhook.receiver.blueprint import make_health_blueprint


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (None, 200, '{"status": "ready"}'),
        (SchemaMismatch("9999", "0001", stores=True), 200, "waits for an upgrade of this process"),
        (SchemaMismatch("9999", "0001"), 503, '{"status": "unavailable"}'),
        (InboxUnavailable("away"), 503, '{"status": "unavailable"}'),
        (OSError("full"), 503, '{"status": "unavailable"}'),
    ],
)
def test_ready_says_whether_a_delivery_could_be_stored(error, status, text):
    def check_writable():
        if error is not None:
            raise error

    app = Flask("shop")
    app.register_blueprint(make_health_blueprint(check_writable))

    answer = app.test_client().get("/readyz")

    assert (answer.status_code, text in answer.text) == (status, True)
    assert app.test_client().get("/healthz").status_code == 200
