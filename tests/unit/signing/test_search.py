"""The search for a scheme: each is found from one request, what goes wrong is told, nothing is invented."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import sys
from datetime import datetime, timedelta

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from billhook.errors import ConfigError
from billhook.errors.program import install_command
from billhook.signing import SignatureTemplate, StandardWebhooks, TimestampedHMAC, TimestampedRSA
from billhook.signing.search import SearchResult, finder, search
from support.sender_recipes import RECORDINGS, SOURCES
from support.signing_cases import (
    NOW,
    OTHER_TEXT_SECRET,
    TEXT_SECRET,
    TIMESTAMP,
    WHSEC,
    ed25519_pair,
    pems,
    rsa_pems,
)
from support.signing_services import SENT, recipes

BODY = b'{"name": "x/y", "amounts": [1, 2.50, {"of": null}], "at": "\\u00e9", "all": {}}'
USUAL = {
    "Host": "shop.example",
    "User-Agent": "billing/1",
    "Content-Type": "application/json",
    "Content-Length": "33",
    "X-Request-Id": "7f1c",
    "X-Webhook-Type": "PingTest",
}
"""What a request has beside the headers of its scheme."""
FEW = {"Host": "shop.example", "Content-Type": "application/json"}
"""The same without what might be signed too: where nothing is found, each such header costs time."""
HEX_SECRET = "00112233445566778899aabbccddeeff"
URL_SAFE = "-_8" * 12
URL_SAFE_KEY = base64.urlsafe_b64decode(URL_SAFE)


def hmac_of(content: bytes, secret: str = TEXT_SECRET, digest: str = "sha256") -> bytes:
    return hmac.digest(secret.encode(), content, digest)


def timed(body: bytes = BODY, *, secret: str = TEXT_SECRET, at: datetime = NOW) -> dict[str, str]:
    return {**FEW, **TimestampedHMAC().sign(body, secret, event_type="PingTest", now=at)}


def standard(key: bytes, body: bytes = BODY) -> dict[str, str]:
    signature = base64.b64encode(hmac.digest(key, f"msg_1.{TIMESTAMP}.".encode() + body, "sha256")).decode()
    own = {"webhook-id": "msg_1", "webhook-timestamp": str(TIMESTAMP), "webhook-signature": f"v1,{signature}"}
    return {**FEW, **own}


def misses(result: SearchResult) -> list[tuple[str, str]]:
    return [(each.kind, each.explanation) for each in result.near_misses]


def the_miss(
    headers: dict[str, str], body: bytes = BODY, secret: str = TEXT_SECRET, **more
) -> tuple[str, str]:
    """The one near miss of a request for which no scheme is found."""
    result = search(headers, body, [secret], **more)
    assert result.schemes == ()
    (miss,) = misses(result)
    return miss


# --- what fits ------------------------------------------------------------------------------------


def test_each_services_scheme_is_found():
    recorded = {
        name: (one.headers, one.body.encode(), one.secret, one.moment) for name, one in RECORDINGS.items()
    }
    schemes = recipes() | {name: SOURCES[name].scheme for name in recorded}
    for service, (headers, body, secret, at) in (SENT | recorded).items():
        timed_one = schemes[service].read(headers, body, "").signed_at is not None

        result = search({**USUAL, **headers}, body, [OTHER_TEXT_SECRET, secret], target="/webhooks/square")

        best = result.schemes[0]
        assert best.secret_number == 2
        assert best.secret_change == ""
        assert best.signed_at == (at if timed_one else None)
        assert best.signature_header in headers
        keys = best.scheme.load([secret])
        assert best.scheme.verify(headers, body, keys, event_type="", now=at, tolerance_seconds=1)


UNTIMED = {"replay_protection": "dedupe-only"}
PRIVATE, PUBLIC = rsa_pems("case")
SIGNED_HMAC, SIGNED_HEADER = standard(base64.b64decode(WHSEC[6:])), {"header": "X-Webhook-Signature"}
READINGS = [
    (timed(), TEXT_SECRET, "TimestampedHMAC", SIGNED_HEADER),
    (SIGNED_HMAC, WHSEC, "StandardWebhooks", {}),
    (
        {name.replace("webhook-", "svix-"): text for name, text in SIGNED_HMAC.items()}, WHSEC,
        "StandardWebhooks",
        {f"{part}_header": f"svix-{part}" for part in ("signature", "timestamp", "id")},
    ),
    (
        {"X-Sig": f"sha256={hmac_of(BODY).hex()}"}, TEXT_SECRET,
        "BodyHMAC", {"header": "X-Sig", "prefix": "sha256=", **UNTIMED},
    ),
    ({"X-Sig": hmac_of(BODY).hex()}, TEXT_SECRET, "BodyHMAC", {"header": "X-Sig", "prefix": "", **UNTIMED}),
    (
        {"X-Sig": f"sha512={hmac_of(BODY, digest='sha512').hex()}"}, TEXT_SECRET,
        "BodyHMAC", {"header": "X-Sig", "prefix": "sha512=", "algorithm": "hmac-sha512", **UNTIMED},
    ),
    (
        TimestampedHMAC(algorithm="hmac-sha512").sign(BODY, TEXT_SECRET, event_type="PingTest", now=NOW),
        TEXT_SECRET, "TimestampedHMAC", {**SIGNED_HEADER, "algorithm": "hmac-sha512"},
    ),
    (
        {"X-At": str(TIMESTAMP), "X-Sig": hmac_of(b"%d.%b" % (TIMESTAMP, BODY), digest="sha512").hex()},
        TEXT_SECRET, "SignatureTemplate",
        {
            "content": "{timestamp}.{body}", "algorithm": "hmac-sha512",
            "signature_header": "X-Sig", "timestamp_header": "X-At",
        },
    ),
    (
        TimestampedRSA().sign(BODY, PRIVATE, event_type="PingTest", now=NOW), PUBLIC,
        "TimestampedRSA",
        {"signature_header": "X-Webhook-Signature", "timestamp_header": "X-Webhook-Timestamp"},
    ),
]  # fmt: skip


def test_the_best_of_several_readings_is_a_class_with_a_name_of_its_own():
    for headers, secret, kind, arguments in READINGS:
        (best,) = search(headers, BODY, [secret]).schemes
        assert (best.kind, dict(best.arguments)) == (kind, arguments)


def test_a_time_that_stands_in_two_headers_is_taken_from_the_senders_own():
    at = "Thu, 25 Feb 2021 15:08:50 GMT"
    signature = hmac_of(f"{at}.".encode() + BODY).hex()

    (best,) = search({"Date": at, "X-At": at, "X-Sig": signature}, BODY, [TEXT_SECRET]).schemes

    assert best.arguments["timestamp_header"] == "X-At"


def test_two_signatures_of_one_request_are_both_found():
    headers = {"X-A": hmac_of(BODY).hex(), **timed()}

    result = search(headers, BODY, [TEXT_SECRET])

    assert [each.kind for each in result.schemes] == ["TimestampedHMAC", "BodyHMAC"]
    assert result.signature_headers == ("X-A", "X-Webhook-Signature")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "algorithm"),
    [
        ("v2|{type}|{timestamp}|{body}", "hmac-sha256"),
        ("{timestamp}:{type}|{body}", "hmac-sha256"),
        ("{id}~{body}:{timestamp}", "hmac-sha256"),
        ("v9:{type}|{id}:{body}~{timestamp}.", "ed25519"),
    ],
)
def test_a_scheme_that_nobody_is_known_to_use_is_found(content, algorithm):
    scheme = SignatureTemplate(content=content, algorithm=algorithm, signature_header="X-S")
    signing, verifying = ed25519_pair(b"\x07" * 32) if algorithm == "ed25519" else (TEXT_SECRET, TEXT_SECRET)
    headers = {**FEW, "X-Webhook-Type": "PingTest"}
    headers |= scheme.sign(BODY, signing, event_type="PingTest", now=NOW, message_id="msg_1")

    (best,) = search(headers, BODY, [verifying]).schemes

    assert best.content == content


@pytest.mark.slow
def test_the_senders_id_is_tried_before_that_of_a_proxy():
    scheme = SignatureTemplate(
        content="{type}|{id}~{body}:{timestamp}",
        signature_header="Proof",
        id_header="What-Id",
        timestamp_header="When",
    )
    signed = scheme.sign(BODY, TEXT_SECRET, event_type="PingTest", now=NOW, message_id="evt-77")

    (best,) = search({**USUAL, **signed}, BODY, [TEXT_SECRET]).schemes

    assert best.arguments["id_header"] == "What-Id"


SEPARATORS = [".", ":", "|", "\n", "/", " "]


@st.composite
def templates(draw) -> SignatureTemplate:
    """Any scheme of the template, with one separator in its content, that is not refused."""
    fields = draw(st.permutations(["id", "timestamp", "type", "body"]))[: draw(st.integers(1, 4))]
    fields = fields if "body" in fields else [*fields[1:], "body"]
    content = draw(st.sampled_from(SEPARATORS)).join(f"{{{field}}}" for field in fields)
    timed = "timestamp" in fields
    entry = draw(st.sampled_from([None, "v1", "sig"]))
    try:
        return SignatureTemplate(
            content=draw(st.sampled_from(["", "v0:"])) + content,
            encoding=draw(st.sampled_from(["hex", "base64"])),
            signature_header=draw(st.sampled_from(["X-Sig", "Acme-Signature"])),
            prefix=draw(st.sampled_from(["", "sha256=", "HMAC "])),
            time_format=draw(st.sampled_from(["unix", "unix-ms", "iso-8601", "http-date"])),
            signature_entry=entry,
            time_entry=draw(st.sampled_from([None, "t"])) if timed and entry else None,
            entry_separator=draw(st.sampled_from([",", ";"])),
            sign_digest=draw(st.booleans()),
            secret_encoding=draw(st.sampled_from(["text", "base64"])),
            replay_protection=None if timed else "dedupe-only",
        )
    except ConfigError:
        reject()


@pytest.mark.slow
@settings(max_examples=10)
@given(scheme=templates(), body=st.sampled_from([BODY, b"", b"\xff\x00", b"a=1&b=2"]))
def test_any_scheme_of_the_template_is_found(scheme, body):
    secret = "k3J9xfL2pQ8vR5tZ7mW4nB6cY1da"
    signed = scheme.sign(body, secret, event_type="PingTest", now=NOW, message_id="msg_1")

    best = search({**USUAL, **signed}, body, [secret]).schemes[0]

    again = best.scheme.sign(body, secret, event_type="PingTest", now=NOW, message_id="msg_1")
    assert {**signed, **again} == signed


RAW = st.sampled_from([20, 32, 64, 256]).flatmap(lambda size: st.binary(min_size=size, max_size=size))
SPELLINGS = st.sampled_from(
    [
        bytes.hex,
        lambda raw: base64.b64encode(raw).decode(),
        lambda raw: base64.urlsafe_b64encode(raw).decode(),
    ]
)
SIGNATURES = st.builds(
    lambda form, spell, raw: form.format(spell(raw)),
    st.sampled_from(
        ["{}", "sha256={}", "v1={}", f"t={TIMESTAMP},v1={{}}", f"ts={TIMESTAMP};h1={{}}", "v1,{}"]
    ),
    SPELLINGS,
    RAW,
)
NAMES = st.sampled_from(["X-Signature", "webhook-signature", "webhook-id", "X-Timestamp", "X-Webhook-Type"])
TEXTS = st.text(max_size=80) | SIGNATURES | st.sampled_from([str(TIMESTAMP), "2021-02-25T15:08:50Z", "msg_1"])
SECRETS = st.text(min_size=1, max_size=40).filter(str.isprintable) | SIGNATURES | st.just(rsa_pems("case")[1])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    headers=st.dictionaries(st.text(max_size=20) | NAMES, TEXTS, max_size=5),
    body=st.binary(max_size=50),
    secret=SECRETS,
)
def test_any_request_has_an_answer_and_nothing_is_invented(monkeypatch, headers, body, secret):
    monkeypatch.setattr(finder, "BUDGET_BYTES", 20_000_000)
    signed = {**headers, "X-Late": hmac_of(body).hex()}

    result = search(headers, body, [secret], captured_at=NOW)
    control = search(signed, body, [TEXT_SECRET], captured_at=NOW)

    assert result.schemes == ()
    assert result.near_misses
    assert [miss for miss in result.near_misses if miss.scheme is not None] == []
    assert control.schemes


# --- secrets --------------------------------------------------------------------------------------


LEAVE_OUT, PLUS = "leave out its prefix whsec_", "write + for each - in it, and / for each _"
WRITE = "write it as whsec_ and the base64 of its"


def by_body(key: bytes) -> dict[str, str]:
    return {"X-Sig": hmac.digest(key, BODY, "sha256").hex()}


@pytest.mark.parametrize(
    ("headers", "given", "change"),
    [
        (timed(secret=WHSEC), WHSEC, ""),
        (timed(secret=WHSEC), WHSEC[6:], "write whsec_ before it"),
        (timed(secret=WHSEC[6:]), WHSEC, LEAVE_OUT),
        (standard(base64.b64decode(WHSEC[6:])), WHSEC[6:], ""),
        (standard(WHSEC.encode()), WHSEC, f"{WRITE} characters"),
        (standard(WHSEC[6:].encode()), WHSEC, f"{LEAVE_OUT}, then {WRITE} characters"),
        (standard(bytes.fromhex(HEX_SECRET)), HEX_SECRET, f"{WRITE} decoded bytes"),
        (by_body(bytes.fromhex(HEX_SECRET)), HEX_SECRET, ""),
        (by_body(bytes.fromhex(HEX_SECRET)), f"key_{HEX_SECRET}", "leave out its prefix key_"),
        (by_body(URL_SAFE_KEY), URL_SAFE, PLUS),
        (by_body(URL_SAFE_KEY), f"whsec_{URL_SAFE}", f"{LEAVE_OUT}, and {PLUS}"),
    ],
)
def test_how_the_scheme_needs_a_secret_is_told(headers, given, change):
    best = search(headers, BODY, [given]).schemes[0]

    assert best.secret_change == change
    assert best.scheme.name != "template" or best.arguments["secret_encoding"] in ("hex", "base64")


@pytest.mark.parametrize("spelling", ["whpk", "hex", "base64", "pem"])
def test_a_public_ed25519_key_in_any_spelling_is_used(spelling):
    whsk, whpk = ed25519_pair(b"\x07" * 32)
    raw = base64.b64decode(whpk[5:])
    private = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
    given = {"whpk": whpk, "hex": raw.hex(), "base64": whpk[5:], "pem": pems(private)[1]}[spelling]
    headers = {**USUAL, **StandardWebhooks().sign(BODY, whsk, event_type="PingTest", now=NOW)}

    best = search(headers, BODY, [given]).schemes[0]

    assert best.kind == "StandardWebhooks"
    assert best.secret_change.startswith("" if spelling == "whpk" else "write it as whpk_ and the base64")
    assert (best.secret_change == "") is (spelling == "whpk")


def test_an_older_secret_is_told():
    result = search(timed(), BODY, [OTHER_TEXT_SECRET, TEXT_SECRET])

    ((kind, said),) = misses(result)
    assert kind == "secret"
    assert said.startswith("secret 2 of those given made the signature: an older one")
    assert result.near_misses[0].scheme == result.schemes[0]


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        pytest.param(
            rsa_pems("case")[0],
            "secret 1 cannot be used: a private key was given to verify with",
            id="private",  # each process makes its own key, and xdist compares the names of tests
        ),
        ("-----BEGIN CERTIFICATE-----", "secret 1 cannot be used: a key is not a public key in PEM"),
        (
            "whpk_" + "A" * 43 + "=",
            "secret 1 cannot be used: an ed25519 public key is a point of small order",
        ),
    ],
)
def test_a_key_that_cannot_be_used_is_told_and_another_one_still_tried(secret, told):
    alone = search(timed(), BODY, [secret])
    beside = search(timed(), BODY, [secret, TEXT_SECRET])

    assert any(kind == "key" and said.startswith(told) for kind, said in misses(alone))
    assert alone.schemes == ()
    assert beside.schemes[0].secret_number == 2


def test_32_bytes_for_which_anyone_can_sign_are_no_public_key():
    secret = base64.b64encode(bytes(32)).decode()

    kind, said = the_miss({"X-Sig": "ab" * 64}, b"{}", secret)

    assert (kind, said.startswith("none of the secrets made the signature in X-Sig")) == ("secret", True)


def test_a_weak_secret_is_the_reason_and_not_a_scheme():
    timed = f"{TIMESTAMP}.".encode() + BODY
    lists = [f"t={TIMESTAMP},v1={{}}", f"t={TIMESTAMP}, v1={{}}"]
    for content, form in ((BODY, "{}"), *((timed, one) for one in lists)):
        kind, said = the_miss({"X-Sig": form.format(hmac_of(content, "short").hex())}, BODY, "short")
        assert kind == "template"
        assert "for which no scheme of billhook can be configured: a secret of 5 bytes is too short" in said
    # And it explains no changed body.
    assert the_miss({"X-Sig": hmac_of(BODY, "short").hex()}, BODY + b"\n", "short")[0] == "secret"


def test_no_result_shows_a_secret_or_a_signature():
    headers = timed()
    result = search(headers, BODY, [OTHER_TEXT_SECRET, TEXT_SECRET], captured_at=NOW + timedelta(hours=2))
    missed = search(headers, BODY + b" x", [WHSEC, TEXT_SECRET, rsa_pems("case")[0]])

    for shown in (repr(result), repr(missed)):
        assert TEXT_SECRET not in shown
        assert WHSEC[6:] not in shown
        assert headers["X-Webhook-Signature"][-64:] not in shown
        assert "PRIVATE" not in shown


# --- bodies that were changed ---------------------------------------------------------------------


def compact(body: bytes = BODY) -> bytes:
    return body.replace(b", ", b",").replace(b": ", b":")


VALUE = json.loads(BODY.replace(b"2.50", b"2.5"))
FLAT = json.dumps(VALUE).encode()
INDENTS = [(2, "2 spaces"), (4, "4 spaces"), ("\t", "tabs")]
UNORDERED = {"type": "PingTest", "id": "evt_1", "amount": 5}
ORDERED = json.dumps(UNORDERED, sort_keys=True).encode()


def test_a_body_that_was_changed_on_the_way_is_told():
    for signed_body, captured, told in (
        (BODY + b"\n", BODY, "the line break at its end was removed"),
        (BODY + b"\r\n", BODY, "the line break at its end was removed"),
        (BODY, BODY + b"\n", "white space was added at its end"),
        (BODY, b" " + BODY + b" ", "white space was added around it"),
        (b"a\nb", b"a\r\nb", "its line ends were changed from LF to CRLF"),
        (b"a\r\nb", b"a\nb", "its line ends were changed from CRLF to LF"),
        (BODY, b"\xef\xbb\xbf" + BODY, "a byte order mark was added"),
        (b"\xef\xbb\xbf" + BODY, BODY, "its byte order mark was removed"),
        (compact(), BODY, "the sender signed compact JSON"),
        (BODY, compact(), "the sender signed JSON with a space after each comma and colon"),
        (BODY.replace(b"\\u00e9", "é".encode()), compact(), "with letters beyond ASCII as they are"),
        (BODY.replace(b"/", b"\\/"), compact(), r"with \/ for /"),
        (compact() + b"\n", BODY, "with a line break at its end"),
        (BODY, gzip.compress(BODY, mtime=0), "it was compressed"),
        *((json.dumps(VALUE, indent=by).encode(), FLAT, f"JSON indented by {told}") for by, told in INDENTS),
        (json.dumps(UNORDERED).encode(), ORDERED, "something put its keys into alphabetical order"),
        (ORDERED, json.dumps(UNORDERED).encode(), "its keys in alphabetical order"),
    ):
        result = search(timed(signed_body), captured, [TEXT_SECRET])

        assert result.schemes == ()
        ((kind, said),) = misses(result)
        assert kind == "body"
        assert told in said
        assert result.near_misses[0].scheme.kind == "TimestampedHMAC"


def test_a_body_of_another_delivery_is_no_changed_one():
    for body in (b'{"a": "\\ud800"}', b"\x1f\x8b broken", b"[" * 3_000, b"\xff", b"5"):
        assert the_miss(timed(), body)[0] == "secret"


# --- times, headers, algorithms -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (301, "it was signed 301 s before its capture, and 300 s are allowed: a clock is wrong"),
        (-400, "it was signed 400 s after its capture, and 300 s are allowed: a clock is wrong"),
        (
            7_210,
            "7210 s before its capture, and 300 s are allowed: 2 h, as with a time zone that one side",
        ),
        (300, None),
        (86_401, None),
    ],
)
def test_a_clock_that_is_off_is_told(seconds, told):
    result = search(timed(), BODY, [TEXT_SECRET], captured_at=NOW + timedelta(seconds=seconds))

    assert result.schemes[0].kind == "TimestampedHMAC"
    assert [kind for kind, _ in misses(result)] == ([] if told is None else ["clock"])
    assert told is None or told in misses(result)[0][1]


@pytest.mark.slow
def test_a_header_with_the_time_that_was_removed_is_told():
    headers = standard(base64.b64decode(WHSEC[6:]))
    del headers["webhook-timestamp"]

    known = the_miss(headers, BODY, WHSEC, captured_at=NOW + timedelta(seconds=5))
    unknown = the_miss(headers, BODY, WHSEC)
    elsewhen = the_miss(headers, BODY, WHSEC, captured_at=NOW + timedelta(days=1))

    assert known[0] == "header"
    assert (
        f"signs '{{id}}.{{timestamp}}.{{body}}' with the time {TIMESTAMP}, which is in no header" in known[1]
    )
    said = "webhook-signature has the form of Standard Webhooks, and no header has their timestamp"
    assert unknown[0] == elsewhen[0] == "header"
    assert unknown[1].startswith(said)
    assert elsewhen[1].startswith(said)


def test_an_entry_that_is_named_as_a_version_is_no_list_of_standard_webhooks():
    assert the_miss({"X-Sig": f"v1={hmac_of(b'x').hex()}"})[0] == "secret"


def test_a_request_without_a_signature_is_told():
    kind, said = the_miss({"Host": "x"})

    assert kind == "header"
    assert said.startswith("no header looks like a signature: a proxy on the way removed it")
    assert said.endswith("The request has Host")
    assert the_miss({})[1].endswith("The request has no headers")


@pytest.mark.parametrize("digest", ["sha1", "sha384"])
def test_another_hmac_is_named(digest):
    typed = b"PingTest.%d.%b" % (TIMESTAMP, BODY)
    headers = {**FEW, "X-At": str(TIMESTAMP), "X-Webhook-Type": "PingTest"}

    for content, template in ((BODY, "{body}"), (typed, "{type}.{timestamp}.{body}")):
        signature = f"{digest}={hmac_of(content, digest=digest).hex()}"
        kind, said = the_miss({**headers, "X-Sig": signature})
        assert kind == "algorithm"
        assert said == (
            f"X-Sig is the HMAC-{digest.upper()} of '{template}' by secret 1: billhook verifies "
            "HMAC-SHA256 and HMAC-SHA512, if the sender lets one choose"
        )
    assert the_miss({"X-Sig": f"{digest}={hmac_of(b'x', digest=digest).hex()}"})[0] != "algorithm"


def test_a_content_that_no_scheme_may_have_is_told():
    signature = hmac_of(str(TIMESTAMP).encode() + BODY).hex()

    kind, said = the_miss({"X-At": str(TIMESTAMP), "X-Sig": signature})

    assert kind == "template"
    assert "'{timestamp}{body}' has two fields side by side" in said


def test_a_path_that_is_signed_is_told():
    signature = hmac_of(b"%d./hooks?a=1." % TIMESTAMP + BODY).hex()

    kind, said = the_miss({**FEW, "X-At": str(TIMESTAMP), "X-Sig": signature}, target="/hooks?a=1")

    assert kind == "template"
    assert said.startswith("X-Sig is the hmac-sha256 of '{timestamp}.{path}.{body}' by secret 1")
    assert "has the placeholder {path}" in said


def test_the_url_that_is_signed_before_the_body_is_found_by_the_header_that_has_its_host():
    for host in ({"Host": "shop.example"}, {"Host": "127.0.0.1:8080", "X-Forwarded-Host": "shop.example"}):
        for scheme in ("https", "http"):
            signature = hmac_of(f"{scheme}://shop.example/hooks?a=1".encode() + BODY).hex()
            headers = {**host, "X-Sig": signature}
            (best,) = search(headers, BODY, [TEXT_SECRET], target="/hooks?a=1").schemes
            assert best.arguments["content"] == f"{scheme}://shop.example/hooks?a=1{{body}}"
    assert search({**headers, "Host": "x", "X-Forwarded-Host": "y"}, BODY, [TEXT_SECRET]).schemes == ()


def test_base64url_is_recognised_and_told():
    raw = hmac_of(BODY)
    urlsafe = base64.urlsafe_b64encode(raw).decode()

    for text in (urlsafe.rstrip("="), f"v1={urlsafe.rstrip('=')}"):
        kind, said = the_miss({"X-Sig": text})
        assert kind == "template"
        assert said.startswith("X-Sig is the hmac-sha256 of '{body}' by secret 1, in base64url")


def test_an_rsa_signature_over_other_bytes_is_told_from_another_key():
    private, public = rsa_pems("case")
    headers = {**FEW, **TimestampedRSA().sign(BODY, private, event_type="PingTest", now=NOW)}

    own = the_miss(headers, BODY + b" x", public)
    others = the_miss(headers, BODY, rsa_pems("other")[1])

    assert own[0] == "content"
    assert own[1].startswith(
        "X-Webhook-Signature was made with the private key of secret 1, over other bytes"
    )
    assert others[0] == "secret"


def test_a_header_that_is_no_text_or_endless_is_passed_over():
    headers = {"X-A": "é" * 64, "X-B": "t=1," * 5_000, "X-C": "ab" * 5_000, **timed()}

    assert search(headers, BODY, [TEXT_SECRET]).schemes[0].kind == "TimestampedHMAC"


def test_the_work_is_bounded(monkeypatch):
    monkeypatch.setattr(finder, "BUDGET_BYTES", 100_000)

    result = search(timed(), b"x" * 10_000, [TEXT_SECRET])

    assert result.schemes == ()
    assert result.tried < 5


# --- tokens ---------------------------------------------------------------------------------------


def token(claims: dict[str, object], key: str = TEXT_SECRET, algorithm: str = "HS256") -> dict[str, str]:
    return {"X-Token": jwt.encode(claims, key, algorithm)}


def test_a_token_about_the_body_is_found_by_its_claim_and_its_algorithm():
    curve_private, curve_public = pems(ec.generate_private_key(ec.SECP256R1()))
    digest = hashlib.sha256(BODY).hexdigest()

    for claims, signing, verifying, algorithm in (
        ({"iat": TIMESTAMP, "request": digest}, TEXT_SECRET, TEXT_SECRET, "HS256"),
        ({"data": BODY.decode(), "n": 5}, curve_private, curve_public, "ES256"),
    ):
        (best,) = search(
            token(claims, signing, algorithm), BODY, [OTHER_TEXT_SECRET, rsa_pems("case")[1], verifying]
        ).schemes
        assert (best.kind, best.secret_number) == ("BodyJWT", 3)
        assert best.arguments["algorithm"] == algorithm
        assert best.arguments["claim"] in claims
        assert best.signed_at == (NOW if "iat" in claims else None)
        assert best.has_pem is (algorithm == "ES256")


def test_a_token_that_does_not_fit_is_told():
    digest = hashlib.sha256(BODY).hexdigest()

    for headers, told in (
        (token({"data": "other"}), "X-Token is a token, and none of its claims is the body or its SHA-256"),
        (
            token({"data": digest}, OTHER_TEXT_SECRET),
            "X-Token is a token about the body, and no secret given",
        ),
        (
            token({"data": digest}, TEXT_SECRET * 2, "HS384"),
            "X-Token is a token about the body: algorithm 'HS384'",
        ),
    ):
        assert any(said.startswith(told) for _, said in misses(search(headers, BODY, [TEXT_SECRET])))


def test_a_token_without_the_extra_is_told(monkeypatch):
    headers = token({"data": hashlib.sha256(BODY).hexdigest()})
    monkeypatch.setitem(sys.modules, "jwt", None)

    assert install_command("jwt") in misses(search(headers, BODY, [TEXT_SECRET]))[0][1]


def test_what_only_looks_like_a_token_is_none():
    for text in ("a.b.c", "W10.e30.x", "e30.e30.x", "\x00.\x00.", "eyJhbGciOjF9.e30.x"):
        (best,) = search({"X-Token": text, **timed()}, BODY, [TEXT_SECRET]).schemes
        assert best.kind == "TimestampedHMAC"
