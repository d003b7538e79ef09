"""The network: what becomes of connections that fail, hang and lie, and that no redirect is followed."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx2
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from billhook.client import BillingClient, RetryPolicy
from billhook.clock import SystemClock
from billhook.errors import ConfigError, ServiceUnavailable, UnexpectedResponse
from support.billing_service import (
    CLIENT_ID,
    REFRESH_TOKEN,
    Service,
    a_server,
    answered,
    service_on,
)
from support.timeouts import scaled

ONCE = RetryPolicy(attempts=1)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n"


@contextlib.contextmanager
def talking(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that gives each connection to `answer`, and then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)
        ending = threading.Event()

        def serve() -> None:
            while not ending.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listening.accept()
                    connection.settimeout(10)
                    with connection:
                        connection.recv(65_536)
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ending.set()
            thread.join(30)


def failure(url: str, **options) -> ServiceUnavailable:
    """What comes out of a login there."""
    given = {"retries": ONCE, "clock": SystemClock(), **options}
    with BillingClient(url, CLIENT_ID, REFRESH_TOKEN, **given) as client:
        with pytest.raises(ServiceUnavailable) as caught:
            client.auth.login()
        return caught.value


def test_a_connection_that_cannot_be_made_raises_an_error_marked_unsent():
    refused, unknown = failure("http://127.0.0.1:1"), failure("https://billing.invalid")

    assert str(refused) == (
        "POST /login: no answer from the billing service: "
        "http://127.0.0.1:1: [Errno 111] Connection refused; nothing was sent"
    )
    assert "https://billing.invalid: " in str(unknown)
    assert (refused.sent, unknown.sent) == (False, False)


def test_a_connection_that_breaks_leaves_it_open_whether_it_was_done():
    for sent in (b"", HEAD + b'{"accessToken', b"\x00\x01 nonsense\r\n\r\n"):
        with talking(lambda connection, sent=sent: connection.sendall(sent)) as url:
            error = failure(url)

        assert error.sent is True, sent
        assert str(error).endswith("; it is not known whether it was done"), sent


def test_a_service_that_is_silent_is_given_up():
    ending = threading.Event()
    with talking(lambda _: ending.wait(20)) as url:
        started = time.monotonic()
        error = failure(url, timeout_seconds=0.2)
        took = time.monotonic() - started
        ending.set()

    assert "it took too long" in str(error)
    assert error.sent is True
    assert took < scaled(10)


HEADER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (HEAD, b" "),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        # A file's name in the head of gzip: it may go on for ever, and nothing comes out of it.
        (HEADER + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08\0\0\0\0\0\0", b"n"),
    ],
    ids=["its body", "its header", "news that it is at work", "what decompresses to nothing"],
)
def test_a_service_that_drips_is_given_up_when_the_time_for_all_is_over(head, drop):
    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(drop)
                time.sleep(0.05)

    with talking(drip) as url:
        started = time.monotonic()
        error = failure(url, retries=RetryPolicy(attempts=1, total_seconds=0.3))
        took = time.monotonic() - started

    assert "it did not end in time" in str(error) or "it took too long" in str(error)
    assert error.sent is True
    assert took < scaled(8)  # dripping to its end takes 10 s


def test_a_failed_tls_handshake_raises_an_error_marked_unsent():
    with talking(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url:
        error = failure(url.replace("http:", "https:"))

    assert error.sent is False


# --- redirects ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_http() -> Iterator[HTTPServer]:
    with a_server() as running:
        yield running


@pytest.fixture
def elsewhere(other_http) -> Service:
    """Another service, to which nothing should be sent."""
    return service_on(other_http)


def test_no_redirect_is_followed_anywhere(service, client, elsewhere):
    for status in (301, 302, 303, 307, 308):
        for location in (elsewhere.url + "/plans/p", service.url + "/plans/q"):
            service.answer("GET /plans/p", Response("", status, {"Location": location}))

            with pytest.raises(UnexpectedResponse, match="it leads to another address") as caught:
                client.plans.get("p")

            assert caught.value.status == status

    assert elsewhere.taken == []
    assert service.lines() == ["GET /plans/p"] * 10


def test_a_login_is_not_redirected_either(service, client, elsewhere):
    service.answer("POST /login", Response("", 307, {"Location": elsewhere.url + "/login"}))

    with pytest.raises(UnexpectedResponse, match="check the base address"):
        client.auth.login()

    assert elsewhere.taken == []


def test_control_a_client_that_follows_redirects_sends_the_request(service, elsewhere):
    service.answer("POST /login", Response("", 307, {"Location": elsewhere.url + "/login"}))

    httpx2.post(service.url + "/login", headers={"x-api-key": CLIENT_ID}, json={}, follow_redirects=True)

    assert elsewhere.taken[0].headers["X-Api-Key"] == CLIENT_ID


# --- the base address -----------------------------------------------------------------------------


INVALID_ADDRESSES = [
    "", "billing.example", "ftp://billing.example", "https://", "https://billing.example?a=b",
    "https://billing.example#x", "https://bill ing", "http://[", "https://a\nb", "/only/a/path", None,
    # A path after these would be part of the query, or would not be sent at all.
    "https://billing.example/?", "https://billing.example/api#",
    # The socket would fail at these, and not as a connection does.
    "https://billing.example:99999", "https://billing.example:0", "https://a..b",
    f"https://{'a' * 64}.example",
]  # fmt: skip


def refusal(url, **options) -> str:
    """Why no client is made of an address; empty if one is."""
    try:
        BillingClient(url, CLIENT_ID, REFRESH_TOKEN, **options).close()
    except ConfigError as error:
        return str(error)
    return ""


def test_an_invalid_base_address_is_refused():
    told = (
        "the base address of the billing service (BILLHOOK_API_URL) must be such as "
        "https://billing.example or https://billing.example/api, without a query"
    )

    assert [url for url in INVALID_ADDRESSES if refusal(url) != told] == []
    told = refusal("https://user:hunter2@billing.example")
    assert ("has a user name or password in it" in told, "hunter2" in told) == (True, False)


ENVIRONMENTS = [
    (
        "ALL_PROXY",
        "socks5://user:hunter2@127.0.0.1:1",
        "a SOCKS proxy is set: pip install 'httpx2[socks]'",
    ),
    ("HTTP_PROXY", "gopher://user:hunter2@127.0.0.1:1", "a proxy's address cannot be read"),
    ("HTTPS_PROXY", "http://user:hunter2@127.0.0.1:http", "a proxy's address cannot be read"),
    ("SSL_CERT_FILE", "/nowhere/certificates.pem", "certificates cannot be read (No such file"),
]


def test_an_invalid_proxy_or_certificate_variable_is_reported(monkeypatch):
    for name, value, text in ENVIRONMENTS:
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            told = refusal("https://billing.example")

        assert text in told
        assert "look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR" in told
        assert "hunter2" not in told


PROXIES = [
    ({"HTTP_PROXY": "http://user:hunter2@127.0.0.1:1"}, "http://127.0.0.1:8", "127.0.0.1:1 of HTTP_PROXY"),
    ({"https_proxy": "127.0.0.1:1"}, "https://billing.invalid", "127.0.0.1:1 of HTTPS_PROXY"),
    ({"ALL_PROXY": "http://127.0.0.1:1"}, "https://billing.invalid", "127.0.0.1:1 of ALL_PROXY"),
    ({"HTTP_PROXY": "http://127.0.0.1:1"}, "https://billing.invalid", None),
    ({"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "billing.invalid"}, "https://billing.invalid", None),
    ({"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}, "http://127.0.0.1:8", None),
]


@pytest.mark.parametrize(("environment", "url", "named"), PROXIES)
def test_a_proxy_that_is_down_is_named_and_the_service_is_not_blamed_for_it(
    monkeypatch, environment, url, named
):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    error = failure(url)

    told = f"no answer from the billing service: {url}, through the proxy {named}: [Errno 111] Connection ref"
    assert ("the proxy" in str(error)) is (named is not None)
    assert named is None or told in str(error)
    assert "hunter2" not in str(error)
    assert error.sent is False


def test_a_transport_of_the_callers_own_uses_no_proxy_of_the_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    error = failure("http://127.0.0.1:8", transport=httpx2.HTTPTransport())

    assert "the proxy" not in str(error)


def test_paths_are_appended_to_the_base_address(service, client_of):
    for base in ("", "/", "/api", "/api/"):
        below = base.rstrip("/")
        service.answer(f"POST {below}/login", service.log_in)
        service.answer(f"GET {below}/plans/p", answered(404, {}))

        with pytest.raises(UnexpectedResponse):
            client_of(service.url + base).plans.get("p")

        assert service.lines(logins=True)[-1] == f"GET {below}/plans/p"


def test_plain_http_to_another_machine_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING, "billhook.client"):
        BillingClient("http://127.0.0.1:8080", CLIENT_ID, REFRESH_TOKEN).close()
        BillingClient("https://billing.example", CLIENT_ID, REFRESH_TOKEN).close()
        quiet = list(caplog.records)
        BillingClient("http://billing.example", CLIENT_ID, REFRESH_TOKEN).close()

    assert quiet == []
    assert caplog.messages == ["billing.example is plain http: the tokens can be read on the way there"]


# --- the client as an object ----------------------------------------------------------------------


def test_a_closed_client_raises(service, client):
    client.close()
    client.close()

    with pytest.raises(ConfigError, match="this BillingClient is closed: make a new one"):
        client.plans.get("p")

    assert service.taken == []


def test_a_timeout_is_a_time():
    told = {
        seconds: refusal("https://billing.example", timeout_seconds=seconds)
        for seconds in (0, -1, float("nan"), 86_401)
    }

    assert told == {
        seconds: f"timeout_seconds is {seconds}: it must be above 0 and at most 86400" for seconds in told
    }


def test_an_address_that_cannot_be_made_is_refused_before_sending(service, client):
    with pytest.raises(ValueError, match=r"the address of GET /plans/\{planId\} is too long"):
        client.plans.get("p" * 70_000)
    with pytest.raises(ValueError, match=r"of GET /contracts cannot be made: there is half a surrogate pair"):
        next(client.contracts.list(customer_id="\ud800"))

    assert service.lines() == []
