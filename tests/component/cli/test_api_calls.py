"""The client of `billhook sandbox call` and of the demo: neither a retry nor a proxy hides the sandbox."""

from __future__ import annotations

import pytest

from billhook.cli.api_calls import sandbox_client
from billhook.clock import SystemClock
from billhook.errors import InternalError
from support.billing_service import BROKEN, CLIENT_ID, REFRESH_TOKEN, a_server, answered, service_on


@pytest.fixture(scope="module")
def http():
    with a_server() as running:
        yield running


@pytest.fixture
def service(http):
    return service_on(http, SystemClock())


def test_a_fault_that_the_sandbox_injects_is_seen_and_not_repeated(service):
    service.instead = BROKEN

    with sandbox_client(service.url, CLIENT_ID, REFRESH_TOKEN, 10) as client, pytest.raises(InternalError):
        client.request("GET", "/_sandbox/clock")

    assert service.lines() == ["GET /_sandbox/clock"]


def test_a_proxy_of_the_environment_is_not_used(service, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    service.answer("GET /_sandbox/clock", answered(200, {"now": "2026-01-01T00:00:00Z"}))

    with sandbox_client(service.url, CLIENT_ID, REFRESH_TOKEN, 10) as client:
        assert client.request("GET", "/_sandbox/clock") == {"now": "2026-01-01T00:00:00Z"}
