"""What the tests of the client share: the service, a time that is moved, and a client of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pytest_httpserver import HTTPServer

from billhook.client import BillingClient
from support.billing_service import CLIENT_ID, REFRESH_TOKEN, Moving, Service, a_server, service_on


@pytest.fixture
def moving() -> Moving:
    return Moving()


@pytest.fixture(scope="package")
def http() -> Iterator[HTTPServer]:
    with a_server() as running:
        yield running


@pytest.fixture
def service(http, moving) -> Service:
    return service_on(http, moving.clock)


@pytest.fixture
def client_of(moving) -> Iterator[Callable[..., BillingClient]]:
    """Makes clients of an address that sleep in `moving`, and closes them."""
    with ExitStack() as opened:

        def make(url: str, **options) -> BillingClient:
            given = {"clock": moving.clock, "sleep": moving.sleep, **options}
            return opened.enter_context(BillingClient(url, CLIENT_ID, REFRESH_TOKEN, **given))

        yield make


@pytest.fixture
def client(service, client_of) -> BillingClient:
    return client_of(service.url)
