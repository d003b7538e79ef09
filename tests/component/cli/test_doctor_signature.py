"""`billhook doctor signature`: the configuration that it prints works, and what a file lacks is told."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billhook import Source
from billhook.extension import configured_scheme
from billhook.settings import Settings
from billhook.signing import BodyHMAC, Scheme, SignatureTemplate, StandardWebhooks, TimestampedHMAC
from support.sender_recipes import RECORDINGS, SOURCES
from support.signing_cases import CASES, TEXT_SECRET, WHSEC, rsa_pems
from support.signing_services import SENT

BODY = b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_1"}'


def raw_request(headers: dict[str, str], body: bytes = BODY, *, line: str = "POST /hooks HTTP/1.1") -> bytes:
    usual = {"Host": "shop.example", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [line, *(f"{name}: {text}" for name, text in {**usual, **headers}.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest.fixture
def doctor(run, tmp_path, secret_file):
    """Runs `doctor signature` for the bytes of a request."""

    def call(request: bytes, secret: str = TEXT_SECRET, *arguments: str, **options: str):
        file = tmp_path / "request.http"
        file.write_bytes(request)
        command = ["doctor", "signature", "--request", str(file), "--secret-file", secret_file(secret)]
        return run(*command, *arguments, **options)

    return call


def sign_now(scheme: Scheme, secret: str = TEXT_SECRET, event_type: str = "PingTest") -> dict[str, str]:
    return scheme.sign(BODY, secret, event_type=event_type, now=datetime.now(UTC))


@pytest.fixture
def asked(doctor):
    """Asks of a request, as bytes or to be signed; returns the exit code and the answer in JSON."""

    def ask(request: bytes | Scheme, secret: str = TEXT_SECRET, **options: str):
        if isinstance(request, Scheme):
            signed = sign_now(request, secret, "InvoiceApproved")
            request = raw_request({"X-Webhook-Type": "InvoiceApproved", **signed})
        result = doctor(request, secret, "--json", **options)
        assert result.exit_code in (0, 1), result.output
        return result.exit_code, json.loads(result.stdout)

    return ask


@pytest.mark.parametrize(
    ("scheme", "secret", "options"),
    [
        (StandardWebhooks(), WHSEC, "standard-webhooks"),
        (TimestampedHMAC("Stripe-Signature"), TEXT_SECRET, "timestamped-hmac HEADER=Stripe-Signature"),
        (TimestampedHMAC("X-Sig", algorithm="hmac-sha512"), TEXT_SECRET,
         "timestamped-hmac HEADER=X-Sig ALGORITHM=hmac-sha512"),
        (BodyHMAC("X-Sig", "hmac=", replay_protection="dedupe-only"), TEXT_SECRET,
         "body-hmac HEADER=X-Sig PREFIX=hmac="),
    ],
)  # fmt: skip
def test_the_options_that_are_printed_describe_the_scheme(asked, scheme, secret, options):
    kind, *more = options.split()
    given = dict(each.split("=", 1) for each in more)
    options = {"SIGNATURE": kind, **{f"SIGNATURE_{name}": text for name, text in given.items()}}
    options |= {"REPLAY_PROTECTION": "dedupe-only"} if kind == "body-hmac" else {}
    code, told = asked(scheme, secret, **options)

    (best,) = told["schemes"]
    assert code == 0
    assert best["options"] == {f"BILLHOOK_{name}": text for name, text in options.items()}
    made = configured_scheme(Settings.from_mapping(best["options"]))
    assert (type(made), made.headers) == (type(scheme), scheme.headers)
    assert f"({scheme.name}) would accept this request" in " ".join(told["notes"])


def test_the_python_that_is_printed_receives_what_the_service_sends(asked, tmp_path):
    for headers, body, secret, at in SENT.values():
        code, told = asked(raw_request(headers, body, line="POST /webhooks/square HTTP/1.1"), secret)
        defined: dict[str, object] = {}
        exec(told["schemes"][0]["python"], defined)

        source = defined["source"]
        assert code == 0
        assert isinstance(source, Source)
        assert source.scheme.verify(headers, body, source.keys, event_type="", now=at, tolerance_seconds=1)


def test_where_a_sender_names_the_type_is_told(asked):
    for name, one in RECORDINGS.items():
        _, told = asked(raw_request(dict(one.headers), one.body.encode()), one.secret)

        (note,) = (note for note in told["notes"] if "the request has no X-Webhook-Type header" in note)
        source = SOURCES[name]
        option = f"HEADER={source.type_header}" if source.type_header else f"FIELD={source.type_field}"
        assert f"names {one.event_type!r}" in note
        assert note.endswith(f"BILLHOOK_TYPE_{option}")


def test_people_are_told_what_to_write_where_no_option_describes_the_scheme(doctor):
    scheme = SignatureTemplate(content="v0:{timestamp}:{body}")
    signed = sign_now(scheme)
    signature = signed[scheme.headers[-1]][-64:]

    result = doctor(raw_request({**signed, "X-Other": signature}))

    assert result.exit_code == 0
    assert "No option describes this scheme" in result.stdout
    assert '  source = Source(\n      "default",\n      scheme=SignatureTemplate(\n' in result.stdout
    assert "Also fits: SignatureTemplate over 'v0:{timestamp}:{body}', in X-Other" in result.stdout
    assert "no X-Webhook-Type header: a delivery without it waits in quarantine" in result.stdout
    assert [text for text in (signature, TEXT_SECRET) if text in result.output] == []


def test_a_change_of_the_secret_and_a_clock_that_is_wrong_are_told(doctor):
    at = datetime.now(UTC) - timedelta(seconds=1_000)
    request = raw_request(TimestampedHMAC().sign(BODY, WHSEC, event_type="PingTest", now=at))

    wrong = doctor(request, WHSEC[6:])
    right = doctor(request, WHSEC[6:], "--at", at.isoformat())

    assert (wrong.exit_code, right.exit_code) == (1, 0)
    assert "The secret has to be changed in its file: write whsec_ before it." in wrong.stdout
    assert "- it was signed 10" in wrong.stdout
    assert "s before its capture" in wrong.stdout
    assert "clock" not in right.stdout


def test_secrets_of_the_environment_serve_where_no_file_is_named(run, tmp_path, secret_file):
    signed = sign_now(TimestampedHMAC())
    file = tmp_path / "request.http"
    file.write_bytes(raw_request(signed))
    command = ["doctor", "signature", "--request", str(file)]

    assert run(*command, SECRETS=TEXT_SECRET).exit_code == 0
    assert run(*command, SECRETS_FILE=secret_file(TEXT_SECRET)).exit_code == 0
    nothing = run(*command)

    assert nothing.exit_code == 2
    assert "no secret to try: give --secret-file" in nothing.stderr


def test_a_key_in_pem_is_read_whole(asked):
    case = next(case for case in CASES if case.label == "timestamped-rsa")
    delivery = case.sign(BODY, at=datetime.now(UTC))

    code, told = asked(raw_request(delivery.headers), rsa_pems("case")[1])

    assert code == 0
    assert told["schemes"][0]["options"]["BILLHOOK_SIGNATURE"] == "timestamped-rsa"


def test_headers_that_were_renamed_are_told(asked):
    signed = sign_now(StandardWebhooks(), WHSEC)

    code, told = asked(raw_request({f"X-Hook-{name[8:]}": text for name, text in signed.items()}), WHSEC)
    _, plain = asked(StandardWebhooks(), WHSEC)

    assert code == 0
    assert told["schemes"][0]["options"] is None
    assert "something on the way renames them" in " ".join(told["notes"])
    assert "renames" not in " ".join(plain["notes"])


# --- the file -------------------------------------------------------------------------------------

SIGNED = sign_now(BodyHMAC("X-Sig", replay_protection="dedupe-only"))


def test_a_chunked_body_is_put_together(asked):
    chunked = (
        b"5\r\n" + BODY[:5] + b"\r\n" + f"{len(BODY) - 5:X};x=1\r\n".encode() + BODY[5:] + b"\r\n0\r\n\r\n"
    )
    head = raw_request({**SIGNED, "Transfer-Encoding": "chunked"}, b"").replace(b"Content-Length: 0\r\n", b"")

    assert asked(head + chunked)[0] == 0


def test_a_header_on_two_lines_is_one_joined_by_a_comma(asked):
    signed = sign_now(TimestampedHMAC("X-Sig"))
    time, signature = signed["X-Sig"].split(",")

    code, told = asked(raw_request({"x-sig": time, "X-Sig": signature}))

    assert code == 0
    assert told["schemes"][0]["signature_header"] == "x-sig"


def test_what_is_odd_about_a_file_is_told(asked):
    odd = {
        "the 1 bytes behind the 51 of its body are left out": lambda raw: raw + b"\n",
        "its body is cut: 48 of 51 bytes are there": lambda raw: raw[:-3],
        "its line ends are LF instead of CRLF": lambda raw: raw.replace(b"\r\n", b"\n"),
        "no empty line ends the head": lambda raw: raw[: raw.index(b"\r\n\r\n")],
        "the request is a GET: the receiver takes POST alone": lambda raw: raw.replace(b"POST", b"GET"),
        "the body is compressed, which the receiver answers with 415": (
            lambda raw: raw.replace(b"Host:", b"Content-Encoding: gzip\r\nHost:")
        ),
        "this scheme signs no time": lambda raw: raw,
    }

    for told, change in odd.items():
        _, answer = asked(change(raw_request(SIGNED)))
        assert told in " ".join(answer["notes"])


def test_a_broken_file_is_a_usage_error_that_names_the_line(doctor):
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    broken = {
        b"": "its first line must be like `POST /webhooks/billing HTTP/1.1`",
        b"Host: x\r\n\r\n{}": "its first line must be like",
        b"POST / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n": "line 3 is no header",
        chunked + b"5\r\nab": "a chunked body that is cut or broken",
        chunked + b"2\r\nab\r\n": "a chunked body that is cut",
        chunked + b"zz": "a chunked body that is cut or broken",
    }

    for raw, told in broken.items():
        result = doctor(raw)
        assert result.exit_code == 2
        assert told in result.stderr


def test_files_that_cannot_be_read_are_usage_errors(run, tmp_path, secret_file, monkeypatch):
    file = tmp_path / "request.http"
    file.touch()
    os.truncate(file, 33 * 1024 * 1024)
    secret = secret_file(TEXT_SECRET)

    large = run("doctor", "signature", "--request", str(file), "--secret-file", secret)
    monkeypatch.setattr(
        Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    forbidden = run("doctor", "signature", "--request", str(file), "--secret-file", secret)

    assert (large.exit_code, forbidden.exit_code) == (2, 2)
    assert "is over 33554432 bytes: give one request" in large.stderr
    assert "cannot be read: Permission denied" in forbidden.stderr


def test_it_is_a_command_of_flask_apps_too(app_with, tmp_path, secret_file):
    file = tmp_path / "request.http"
    file.write_bytes(raw_request(SIGNED))
    arguments = f"billhook doctor signature --request {file} --secret-file {secret_file(TEXT_SECRET)}"
    eu = Source("eu", scheme=BodyHMAC("X-Sig", replay_protection="dedupe-only"), secrets=[TEXT_SECRET])
    result = app_with(sources=[eu]).test_cli_runner().invoke(args=arguments.split())

    assert result.exit_code == 0
    assert "Found: BodyHMAC" in result.stdout
    assert "the app's source 'eu' (body-hmac) would accept this request" in result.stdout
    assert "the app's source 'default' (standard-webhooks) would refuse this request: the request has no" in (
        result.stdout
    )


# --- capture --------------------------------------------------------------------------------------


def test_capture_refuses_a_folder_that_others_may_look_into(run, tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").write_text("")

    lax = run("capture", "--to", "open")
    no_folder = run("capture", "--to", "file")

    assert (lax.exit_code, no_folder.exit_code) == (2, 2)
    assert "is open to other users" in lax.stderr
    assert "cannot be made: File exists" in no_folder.stderr
