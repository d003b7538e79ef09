"""What every scheme owes: keys of deliveries, rotation, strangers, both edges of the tolerance.

The order of the checks and the time are decided in `Scheme.verify`, for all schemes: an HMAC and a public key
stand for them here.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timedelta, timezone

import pytest
from werkzeug.datastructures import EnvironHeaders

from billhook.errors import (
    SignatureMismatch,
    SignatureMissing,
    TimestampInFuture,
    TimestampTooOld,
)
from billhook.signing import (
    SignatureTemplate,
    StandardWebhooks,
    TimestampedRSA,
)
from billhook.signing.algorithms import PublicKey
from support.signing_cases import (
    CASE_OF,
    CASES,
    LABELS,
    NOW,
    OTHER_TEXT_SECRET,
    OTHER_WHSEC,
    TEXT_SECRET,
    TIMESTAMP,
    WHSEC,
    Delivery,
    ed25519_pair,
    rsa_pems,
    verify,
)

STANDARD = CASE_OF["standard-webhooks-v1"]
TIMED_HMAC = CASE_OF["timestamped-hmac"]
ED25519 = CASE_OF["standard-webhooks-v1a"]
RSA = CASE_OF["timestamped-rsa"]
BODY_HMAC = CASE_OF["body-hmac"]
NO_MATCH = "no signature in the request matches"


@pytest.mark.parametrize("case", CASES, ids=LABELS)
def test_a_signed_delivery_verifies_by_the_headers_that_its_scheme_lists(case):
    delivery = case.sign(b'{"a": 1}')

    verdict = case.verify(delivery)

    assert verdict.signed_at == (NOW if case.timed else None)
    assert verdict.key
    assert case.scheme.signs_time == case.timed
    assert set(case.scheme.headers) == set(delivery.headers)
    assert all(name in repr(case.scheme) for name in delivery.headers)


def test_headers_are_read_from_a_wsgi_request_too():
    for case in CASES:
        delivery = case.sign()
        environ = {
            f"HTTP_{name.upper().replace('-', '_')}": value for name, value in delivery.headers.items()
        }

        verdict = case.verify(delivery._replace(headers=EnvironHeaders(environ)))

        assert verdict == case.verify(delivery)


def test_each_header_of_each_scheme_is_needed():
    for case in CASES:
        delivery = case.sign()
        for name in delivery.headers:
            rest = {other: value for other, value in delivery.headers.items() if other != name}
            with pytest.raises(SignatureMissing, match=f"the request has no {name} header"):
                case.verify(delivery._replace(headers=rest))


def test_a_strangers_signature_is_a_mismatch_and_is_never_called_stale():
    for case in CASES:
        forged = case.sign(secret=case.stranger)

        for at in (NOW, NOW + timedelta(days=1), NOW - timedelta(days=1)):
            with pytest.raises(SignatureMismatch, match=NO_MATCH):
                case.verify(forged, at=at)


# --- the delivery's key ---------------------------------------------------------------------------


def test_the_key_is_the_signed_id_or_else_the_hash_of_the_signed_bytes():
    for label, content in (
        ("timestamped-hmac", f"{TIMESTAMP}.{{}}"),
        ("timestamped-rsa", f"{TIMESTAMP}.{{}}"),
        ("body-hmac", "{}"),
        ("template", f"{TIMESTAMP}.PingTest.{{}}"),
    ):
        case = CASE_OF[label]

        verdict = case.verify(case.sign(b"{}"))

        assert verdict.key == "sha256:" + hashlib.sha256(content.encode()).hexdigest()
    for label in ("standard-webhooks-v1", "standard-webhooks-v1a", "template-all-fields-ed25519"):
        assert CASE_OF[label].verify(CASE_OF[label].sign()).key == "msg_1"


def test_signing_without_an_id_generates_a_new_one():
    signed = [
        StandardWebhooks().sign(b"{}", WHSEC, event_type="PingTest", now=NOW)["webhook-id"] for _ in range(2)
    ]

    assert signed[0] != signed[1]
    assert all(message_id.startswith("msg_") and len(message_id) == 36 for message_id in signed)


# --- rotation and lists ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "pairs"),
    [
        (StandardWebhooks(), [(WHSEC, WHSEC), (OTHER_WHSEC, OTHER_WHSEC)]),
        (StandardWebhooks(), [ed25519_pair(b"\x01" * 32), ed25519_pair(b"\x02" * 32)]),
        (StandardWebhooks(), [(WHSEC, WHSEC), ed25519_pair(b"\x02" * 32)]),
        (TimestampedRSA(), [rsa_pems("case"), rsa_pems("other")]),
        (SignatureTemplate(), [(TEXT_SECRET, TEXT_SECRET), (OTHER_TEXT_SECRET, OTHER_TEXT_SECRET)]),
    ],
    ids=["standard v1", "standard v1a", "standard mixed", "timed rsa", "template"],
)
def test_during_rotation_a_signature_by_either_secret_is_good(scheme, pairs):
    both = [verifying for _, verifying in pairs]

    for signing, verifying in pairs:
        delivery = Delivery(scheme.sign(b"{}", signing, event_type="PingTest", now=NOW), b"{}")
        assert verify(scheme, delivery, both) == verify(scheme, delivery, [verifying])
        others = [secret for secret in both if secret != verifying]
        with pytest.raises(SignatureMismatch, match=NO_MATCH):
            verify(scheme, delivery, others)


@pytest.mark.parametrize(
    ("case", "header", "separator"),
    [(STANDARD, "webhook-signature", " "), (TIMED_HMAC, "X-Webhook-Signature", ",")],
    ids=lambda value: getattr(value, "label", ""),
)
def test_one_valid_signature_in_a_list_of_16_is_enough(case, header, separator):
    good, stranger = case.sign().headers, case.sign(secret=case.stranger).headers[header]
    time, comma, _ = good[header].partition(",") if case is TIMED_HMAC else ("", "", "")
    own, others = (text.removeprefix(f"{time}{comma}") for text in (good[header], stranger))

    for position in (0, 1, 15):
        entries = [others] * 16
        entries[position] = own
        listed = f"{time}{comma}{separator.join(entries)}"
        assert case.verify(Delivery(good | {header: listed}, b"{}")).signed_at == NOW


def test_signatures_of_unknown_versions_are_ignored():
    delivery = STANDARD.sign()
    signature = delivery.headers["webhook-signature"]

    for text in (f"v2,x {signature}", f"{signature} v9,", f"V1,?? {signature}"):
        assert STANDARD.verify(Delivery(delivery.headers | {"webhook-signature": text}, b"{}"))
    with pytest.raises(SignatureMismatch, match=NO_MATCH):
        STANDARD.verify(Delivery(delivery.headers | {"webhook-signature": "v2,xyz"}, b"{}"))


def test_entries_of_unknown_names_beside_v1_are_ignored():
    header = TIMED_HMAC.sign().headers["X-Webhook-Signature"]

    for text in (f"v0=00,{header}", f"{header},v0=", f"{header},x=y=z", f"T=0,{header}"):
        assert TIMED_HMAC.verify(Delivery({"X-Webhook-Signature": text}, b"{}")).signed_at == NOW
    for text in (f"t={TIMESTAMP}", f"t={TIMESTAMP},v0=00"):
        with pytest.raises(SignatureMismatch, match=NO_MATCH):
            TIMED_HMAC.verify(Delivery({"X-Webhook-Signature": text}, b"{}"))


def test_a_signature_is_checked_only_with_keys_of_its_version():
    whsk, whpk = ed25519_pair(b"\x01" * 32)

    # The last one is by the public key as a shared secret.
    for signing, verifying in ((WHSEC, whpk), (whsk, WHSEC), (whpk.removeprefix("whpk_"), whpk)):
        headers = StandardWebhooks().sign(b"{}", signing, event_type="PingTest", now=NOW)
        with pytest.raises(SignatureMismatch, match=NO_MATCH):
            verify(StandardWebhooks(), Delivery(headers, b"{}"), [verifying])


def test_a_whsec_secret_may_come_without_its_prefix_or_padding():
    long = "whsec_" + "c2VjcmV0IG9mIDI1IGJ5dGVzIGhlcmUuLg=="
    delivery = STANDARD.sign(secret=long)

    for spelling in (long, long.removeprefix("whsec_"), long.rstrip("=")):
        assert verify(StandardWebhooks(), delivery, [spelling]).key == "msg_1"


def test_a_64_byte_private_key_signs_as_its_seed_does():
    seed = b"\x01" * 32
    whsk, whpk = ed25519_pair(seed)
    _, public = whpk.split("_")
    both = "whsk_" + base64.b64encode(seed + base64.b64decode(public)).decode()

    for secret in (whsk, both):
        headers = StandardWebhooks().sign(b"{}", secret, event_type="PingTest", now=NOW)
        assert verify(StandardWebhooks(), Delivery(headers, b"{}"), [whpk]).signed_at == NOW


# --- key ids --------------------------------------------------------------------------------------


def test_the_key_id_chooses_the_key_and_an_unknown_one_is_a_mismatch():
    scheme = TimestampedRSA(key_id_header="X-Key")
    (private_a, public_a), (private_b, public_b) = rsa_pems("case"), rsa_pems("other")
    by_b = scheme.sign(b"{}", {"b": private_b}, event_type="PingTest", now=NOW)
    keys = {"a": public_a, "b": public_b}

    assert by_b["X-Key"] == "b"
    assert verify(scheme, Delivery(by_b, b"{}"), keys).signed_at == NOW
    assert verify(scheme, Delivery(by_b, b"{}"), [{"a": public_a}, {"b": public_b}]).signed_at == NOW
    for key_id in ("a", "c", "", "b,b", "B"):
        with pytest.raises(SignatureMismatch, match=NO_MATCH):
            verify(scheme, Delivery(by_b | {"X-Key": key_id}, b"{}"), keys)
    assert private_a != private_b
    # Without such a header all keys of the mapping are tried.
    headers = TimestampedRSA().sign(b"{}", {"b": private_b}, event_type="PingTest", now=NOW)
    assert verify(TimestampedRSA(), Delivery(headers, b"{}"), keys).signed_at == NOW


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [STANDARD, TIMED_HMAC, ED25519, RSA], ids=lambda case: case.label)
def test_a_signature_exactly_at_the_tolerance_is_good_on_both_sides(case):
    delivery = case.sign()

    for seconds in (0, 300):
        for at in (NOW + timedelta(seconds=seconds), NOW - timedelta(seconds=seconds)):
            assert case.verify(delivery, at=at, tolerance_seconds=seconds).signed_at == NOW


@pytest.mark.parametrize("beyond", [timedelta(seconds=1), timedelta(milliseconds=1)])
def test_a_signature_past_the_tolerance_is_refused_on_both_sides(beyond):
    for case in (STANDARD, TIMED_HMAC):
        delivery = case.sign()

        with pytest.raises(TimestampTooOld, match=r"signed 30[01]\.\d s ago, the tolerance is 300 s"):
            case.verify(delivery, at=NOW + timedelta(seconds=300) + beyond)
        with pytest.raises(TimestampInFuture, match=r"signed 30[01]\.\d s ahead of this clock"):
            case.verify(delivery, at=NOW - timedelta(seconds=300) - beyond)


@pytest.mark.parametrize("case", [ED25519, RSA], ids=lambda case: case.label)
@pytest.mark.parametrize("beyond", [timedelta(seconds=1), timedelta(milliseconds=1)])
def test_no_public_key_operation_runs_outside_the_tolerance(case, beyond, monkeypatch):
    asked = []
    monkeypatch.setattr(PublicKey, "matches", lambda *arguments: asked.append(arguments) or True)
    delivery = case.sign()

    for at in (NOW + timedelta(seconds=300) + beyond, NOW - timedelta(seconds=300) - beyond):
        with pytest.raises(SignatureMismatch, match=r"public keys were not tried, as its time is 30[01]\."):
            case.verify(delivery, at=at)

    assert asked == []
    assert case.verify(delivery).signed_at == NOW  # the control: within it they are
    assert len(asked) == 1


def test_a_stale_signature_by_a_shared_secret_is_detected_beside_a_public_key():
    _, whpk = ed25519_pair(b"\x01" * 32)

    with pytest.raises(TimestampTooOld, match=r"signed 3600\.0 s ago"):
        verify(StandardWebhooks(), STANDARD.sign(), [WHSEC, whpk], at=NOW + timedelta(hours=1))


def test_a_signature_without_a_time_is_never_too_old():
    verdict = BODY_HMAC.verify(BODY_HMAC.sign(), at=NOW + timedelta(days=3650), tolerance_seconds=0)
    assert verdict.signed_at is None


def test_a_time_of_any_zone_means_its_moment_and_a_naive_one_is_the_callers_mistake():
    naive = datetime(2021, 2, 25, 15, 8, 50)  # noqa: DTZ001 - the mistake itself
    east, west = (NOW.astimezone(timezone(timedelta(hours=hours))) for hours in (14, -11))
    for case in (STANDARD, TIMED_HMAC, CASE_OF["body-jwt"]):
        assert case.verify(case.sign(at=east), at=west).signed_at == NOW
        with pytest.raises(ValueError, match="now must be an aware datetime, got the naive 2021-02-25T15:08"):
            case.sign(at=naive)
        with pytest.raises(ValueError, match="now must be an aware datetime"):
            case.verify(case.sign(), at=naive)
