"""`send`: signs as the service would, says what came back, and lets no secret out."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest
from werkzeug.datastructures import Headers

from billhook.cli import main
from billhook.cli.send import choose_signer, parse_target
from billhook.events import PaymentFailed, sample
from billhook.extension import configured_scheme
from billhook.posting import HttpPoster
from billhook.settings import Settings
from support.commands import commands
from support.processes import until
from support.receivers import Got, Receiver, hostile, receiving, say
from support.signing import OTHER_SECRET, SECRET
from support.signing_cases import rsa_pems
from support.timeouts import scaled

TEXT_SECRET = "a text secret of enough bytes"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as plain:
        plain.body = b'{"status": "accepted"}'
        plain.headers = {"Location": "http://127.0.0.1:1/elsewhere"}
        yield plain


def verify(got: Got, secret: str, **options: str) -> None:
    """Raises unless a receiver with these options would take what was sent."""
    scheme = configured_scheme(
        Settings.from_mapping({f"BILLHOOK_{name}": text for name, text in options.items()})
    )
    scheme.verify(
        Headers(got.headers), got.body, scheme.load([secret]),
        event_type=got.headers["x-webhook-type"], now=datetime.now(UTC), tolerance_seconds=60,
    )  # fmt: skip


def test_a_sample_is_sent_as_the_service_would(run, receiver):
    result = run("send", "PaymentFailed", "--to", receiver.url, SECRETS=f"{OTHER_SECRET},{SECRET}")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith('200 {"status": "accepted"} (')
    (got,) = receiver.got
    verify(got, OTHER_SECRET)  # the newest
    assert (got.path, got.body) == ("/webhooks/billing", sample(PaymentFailed).to_json())
    assert got.headers["x-webhook-type"] == "PaymentFailed"
    assert got.headers["content-type"] == "application/json"


def test_send_signs_with_other_schemes(run, receiver, secret_file):
    path = secret_file(TEXT_SECRET)
    for scheme, options in (
        ("timestamped-hmac", {}),
        ("timestamped-hmac", {"SIGNATURE_ALGORITHM": "hmac-sha512"}),
        ("body-hmac", {"REPLAY_PROTECTION": "dedupe-only"}),
    ):
        where = ("--to", receiver.url, "--scheme", scheme, "--secret-file", path)
        result = run("send", "PingTest", *where, **options)

        assert result.exit_code == 0, result.output
        verify(receiver.got.pop(), TEXT_SECRET, SIGNATURE=scheme, **options)


def test_rsa_signs_with_the_private_key_of_the_file(run, receiver, secret_file):
    private, public = rsa_pems("case")
    how = ("--scheme", "timestamped-rsa", "--secret-file", secret_file(private))
    result = run("send", "PingTest", "--to", receiver.url, *how)

    assert result.exit_code == 0, result.output
    verify(receiver.got[0], public, SIGNATURE="timestamped-rsa")


@pytest.mark.parametrize(
    ("event_type", "changes", "sent"),
    [
        (
            "PaymentFailed",
            ("amount=12.50", "currency=EUR", "failureReason=null", 'extra.deep="1"', "customerId=007"),
            b'"amount":12.50 "currency":"EUR" "failureReason":null "extra":{"deep":"1"} "customerId":"007"',
        ),
        (
            "CustomerCreated",
            ("aliases.0=true", "aliases.1=null", "integrationEntities.0.syncStatus=HandlerFailure"),
            b'"aliases":["true","null" "syncStatus":"HandlerFailure"',
        ),
        # In a text field a value is a text.
        (
            "CustomerCreated",
            ("customerId=42", 'name="7"', "externalId=null"),
            b'"customerId":"42" "name":"7" "externalId":null',
        ),
    ],
)
def test_fields_are_set_by_their_names_on_the_wire(run, receiver, event_type, changes, sent):
    flags = [part for change in changes for part in ("--set", change)]

    result = run("send", event_type, "--to", receiver.url, *flags, SECRETS=SECRET)

    assert result.stderr == ("note: PaymentFailed has no field extra.deep\n" if "extra" in str(sent) else "")
    body = receiver.got[0].body
    assert [part for part in sent.split() if part not in body] == []


def test_a_file_is_sent_unchanged_for_any_type(run, receiver, tmp_path):
    (tmp_path / "body.json").write_bytes(b'{ "odd" : 1.0 }\n')

    first = run("send", "BrandNew", "--to", receiver.url, "--file", "body.json", SECRETS=SECRET)
    second = run("send", "PingTest", "--to", receiver.url, "--file", "-", stdin=b"{not json", SECRETS=SECRET)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert [got.body for got in receiver.got] == [b'{ "odd" : 1.0 }\n', b"{not json"]


def test_many_are_counted_and_timed(run, receiver):
    receiver.answers = [200, 503]

    result = run("send", "PingTest", "--to", receiver.url, "--count", "5", "--json", SECRETS=SECRET)

    facts = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (facts["sent"], facts["statuses"]) == (5, {"200": 4, "503": 1})
    assert 0 < facts["p50_ms"] <= facts["p99_ms"]
    ids = {got.id for got in receiver.got}
    assert len(ids) == 5


def test_a_given_id_is_used_for_all(run, receiver):
    result = run("send", "PingTest", "--to", receiver.url, "--id", "again", "--count", "2", SECRETS=SECRET)

    assert {got.id for got in receiver.got} == {"again"}
    assert "2 sent, p50" in result.stdout


def test_a_redirect_is_an_answer_and_is_not_followed(run, receiver):
    receiver.answers = [307]

    result = run("send", "PingTest", "--to", receiver.url, SECRETS=SECRET)

    assert result.exit_code == 1
    assert result.stdout.startswith("307")
    assert len(receiver.got) == 1


def test_a_proxy_of_the_environment_is_ignored(run, receiver, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert run("send", "PingTest", "--to", receiver.url, SECRETS=SECRET).exit_code == 0


def test_a_receivers_answer_is_escaped_for_the_terminal(run, receiver):
    receiver.body = b"\x1b]0;owned\x07"

    result = run("send", "PingTest", "--to", receiver.url, SECRETS=SECRET)

    assert "\\x1b]0;owned\\x07" in result.stdout


def test_a_receiver_that_hangs_is_given_up(run):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"

        result = run("send", "PingTest", "--to", url, "--timeout", "0.2", SECRETS=SECRET)

    assert result.exit_code == 1
    assert result.stdout.startswith("no answer in time (")


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n"],
    ids=["status", "header", "body"],
)
def test_the_time_limit_is_for_all_of_an_answer_that_comes_byte_by_byte(run, start):
    def dribble(connection, _):
        with contextlib.suppress(OSError):
            connection.sendall(start)
            while True:
                connection.sendall(b"X")
                time.sleep(0.05)

    with hostile(dribble) as slow:
        started = time.monotonic()
        result = run("send", "PingTest", "--to", slow.url, "--timeout", "0.4", SECRETS=SECRET)
        seconds = time.monotonic() - started

    assert result.exit_code == 1
    assert result.stdout.startswith("no answer in time (")
    assert seconds < scaled(4)


def test_the_time_limit_is_for_the_lookup_of_the_name_too_and_nothing_is_sent_after_it(run, monkeypatch):
    looked_up, real = threading.Event(), socket.getaddrinfo

    def slow(host, *more, **kinds):
        looked_up.wait(scaled(10))
        return real("127.0.0.1", *more, **kinds)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr("socket.getaddrinfo", slow)
        url = f"http://shop.example:{listener.getsockname()[1]}/x"
        result = run("send", "PingTest", "--to", url, "--timeout", "0.2", SECRETS=SECRET)
        looked_up.set()
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b""

    assert result.stdout.startswith("no answer in time (")


def test_a_connection_closed_between_two_posts_is_opened_again():
    answer = say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    with hostile(answer) as closing, HttpPoster(parse_target(closing.url), 5) as poster:
        first = poster.post(b"{}", {})
        until(lambda: closing.at_once == 0)
        second = poster.post(b"{}", {})

    assert (first.status, second.status, closing.connected) == (200, 200, 2)


def test_a_bad_secret_is_refused_and_not_shown(run, receiver, secret_file):
    for bad in ("whsec_dG9vIHNob3J0", "whsec_!!!not-base64-but-long-enough!!!"):
        result = run("send", "PingTest", "--to", receiver.url, "--secret-file", secret_file(bad))

        assert result.exit_code == 2
        assert bad not in result.output
        assert bad.removeprefix("whsec_") not in result.output


def test_the_text_of_what_signs_has_no_secret(secret_file):
    """A report of an error may show the values of variables."""
    with click.Context(main):
        signed, _ = choose_signer(None, None, None, str(secret_file(SECRET)))

    assert signed("PingTest", b"{}", datetime.now(UTC), None)
    assert SECRET.removeprefix("whsec_") not in repr(signed)


@pytest.mark.parametrize("content", ["BILLHOOK_SECRETS=abc", "-----BEGIN PRIVATE KEY-----"])
def test_a_bad_secret_file_is_named_by_its_option(run, receiver, secret_file, content):
    path = secret_file(content)
    result = run("send", "PingTest", "--to", receiver.url, "--secret-file", path)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: --secret-file {str(path)!r} h")


def test_no_command_has_an_option_for_a_secret():
    options = {name for _, command in commands(main) for param in command.params for name in param.opts}

    assert {name for name in options if "secret" in name} == {"--secret-file"}


def test_a_field_that_the_type_has_not_is_remarked_and_sent(run, receiver):
    flags = ("--set", "invoice_id=x", "--set", "extra=1")

    result = run("send", "InvoiceApproved", "--to", receiver.url, *flags, SECRETS=SECRET)

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "note: InvoiceApproved has no field invoice_id; did you mean invoiceId?",
        "note: InvoiceApproved has no field extra",
    ]
    assert json.loads(receiver.got[0].body)["invoice_id"] == "x"


def test_a_body_that_is_not_valid_is_remarked_and_sent(run, receiver):
    flags = ("--file", "-", "--set", "date=2026-01-01")

    result = run(
        "send", "InvoiceApproved", "--to", receiver.url, *flags, stdin=b'{"invoiceId": 42}', SECRETS=SECRET
    )

    told = "note: this body is not a valid InvoiceApproved (invoiceId: Input should be a valid string)\n"
    assert result.stderr == told
    assert len(receiver.got) == 1


def test_a_page_is_not_repeated(run, receiver):
    for status, text, shown in (
        (404, b"<!doctype html><title>404</title>", "404 no receiver at this path; the default path is"),
        (404, b"not found", "404 no receiver at this path; the default path is /webhooks/billing"),
        (405, b"<html>", "405 no receiver at this path"),
        (200, b"<html>welcome", "200 no receiver at this path"),
        (502, b"<html>bad gateway", "502 an HTML page, not a receiver's answer"),
        (404, b'{"code": "unknown"}', '404 {"code": "unknown"}'),
    ):
        receiver.answers, receiver.body = [status], text

        result = run("send", "PingTest", "--to", receiver.url, SECRETS=SECRET)

        assert result.stdout.startswith(shown)
        assert "<" not in result.stdout


def test_the_hint_about_a_401_is_given_once_and_whole(run, receiver):
    told = "the receiver has another secret (BILLHOOK_SECRETS, BILLHOOK_SECRETS_FILE) or scheme"
    receiver.body = b'{"type": "authentication_error"}'
    for count, line in ((1, f"401 {receiver.body.decode()}; {told} ("), (3, f"hint: {told}\n")):
        receiver.answers = [401] * count

        result = run("send", "PingTest", "--to", receiver.url, "--count", str(count), SECRETS=SECRET)

        assert result.exit_code == 1
        assert result.stdout.count(line) == result.stdout.count("another secret") == 1
