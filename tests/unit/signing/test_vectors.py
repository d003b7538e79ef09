"""Vectors that others published or made: proof that we sign and verify what the rest of the world does."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from billhook.errors import SignatureMismatch
from billhook.signing import BodyHMAC, SignatureTemplate, StandardWebhooks, TimestampedHMAC, TimestampedRSA
from billhook.signing.algorithms import Ed25519
from support.signing_cases import TEXT_SECRET, WHSEC, Delivery, ed25519_pair, verify

BODY = b'{"test": 2432232314}'
AT = datetime.fromtimestamp(1614265330, UTC)
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = "v1a,fldxM4gAKugP6nnt1hdz3sgGfZ6d99nzrMFnZOELIxbzEHoVmAb2ADpkJK7zgPePmPsle0zV9jSeGlHFG2NVAw=="
SEED_OF_RFC_8032 = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")

# openssl dgst -sha256 -hmac a-shared-secret-of-32-characters
OPENSSL_TIMED = "6c577f7d3e748b0485acaa033910c7df2f95498e5c03a69ba345af2b3b3b3520"
OPENSSL_BODY = "768cc896c42371dbd0d5f23bb890ee958254df2bac0b90a410f9d4e31d404aca"
OPENSSL_TYPED = "42d71f085b1d3fa1b9bc1a58d7cfce77588d427038c972d2213bd3889815d9cc"

# openssl genrsa 2048; openssl dgst -sha256 -sign
OPENSSL_PUBLIC_KEY = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAsuG7CITlNJysQgXcrKOh
k8uQYOKtHm8IT8ydGXu6FurrUYtkgULhsfcROcznn0fAq0P+JvaOkQMXjomadEcN
z8LDB78jLHkHKRjngMy28C9JFi46AeVm1I1GVw8PH+oXFImAdpgNfAHHuh6Mb1U4
vI/d5B8Rq+tWJKqcXOTnMx4VRkhzpC3azBCdYxCDhZGntOPoMttmzQLO5ev9lU7z
RxrYpWNdfvoDkMxNc2Max5z3ZhfIIwMSE4mL8nCS+6uuyCtxBLNSxyEwA4xnp83H
QAlJRv43PoQiGixGq4aaknoxKiyanr6S3GHX1O+nu6EXFXBTd/24Rp79NKjhX7Iy
OQIDAQAB
-----END PUBLIC KEY-----
"""
OPENSSL_RSA_SIGNATURE = (
    "fPWXEBsrqfWmzJV4yea/fGDskokJ4g54HroZOlJcxbjv1QAlFyYXNrTNF5gTOcbHu2vNKhvli5HU"
    "61yeNcU7vePP9eBIhWwspgdHCyWBVpqL9Fxq+zrWKK3SXAUOrUJqeNPHKD5sozxm2pnpw1ENeOHT"
    "KFrV5ocbebqXq1EU2+Rb742IB8exADa4IdB+Y3BG88oJaoKE8ybygkJKWBcBa9N45/Hp9GnSFc+T"
    "igfwsk3ptOMBIMcW9THoo4rr2+fI61DU+D6ghj9PjSYwgLxBLVteqc+vvNW8kC9E+EiOCm6a5aUm"
    "x0fiqL1CH6Qrk2p4Jmi2r2PSODhMSwibSAi7Cw=="
)

RFC_8032_SECTION_7_1 = [
    pytest.param(
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        id="TEST 1",
    ),
    pytest.param(
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da0"
        "85ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        id="TEST 2",
    ),
]


def standard_headers(signature: str) -> dict[str, str]:
    return {"webhook-id": ID, "webhook-timestamp": "1614265330", "webhook-signature": signature}


def test_the_published_hmac_vector_of_standard_webhooks_is_signed_and_verified():
    scheme = StandardWebhooks()

    headers = scheme.sign(BODY, WHSEC, event_type="PingTest", now=AT, message_id=ID)
    verdict = verify(scheme, Delivery(standard_headers(V1), BODY), [WHSEC], at=AT)

    assert headers == standard_headers(V1)
    assert verdict.key == ID
    assert verdict.signed_at == AT


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032_SECTION_7_1)
def test_the_ed25519_vectors_of_rfc_8032_are_signed_and_verified(seed, public, message, signature):
    whsk, whpk = ed25519_pair(bytes.fromhex(seed))
    raw, content = bytes.fromhex(signature), bytes.fromhex(message)

    key = Ed25519().load(whpk)

    assert whpk == "whpk_" + base64.b64encode(bytes.fromhex(public)).decode()
    assert Ed25519().sign(whsk, content) == raw
    assert key.matches(content, [raw])
    assert not key.matches(content + b"x", [raw])


def test_a_v1a_delivery_pinned_from_another_library_is_signed_and_verified():
    whsk, whpk = ed25519_pair(SEED_OF_RFC_8032)

    headers = StandardWebhooks().sign(BODY, whsk, event_type="PingTest", now=AT, message_id=ID)
    verdict = verify(StandardWebhooks(), Delivery(standard_headers(V1A), BODY), [whpk], at=AT)

    assert headers == standard_headers(V1A)
    assert verdict.key == ID


@pytest.mark.parametrize("body", [b'{"a": "\xc3\xa9"}', b""])
def test_the_standardwebhooks_package_and_we_accept_each_other(body):
    theirs = Webhook(WHSEC)
    signed_by_them = standard_headers(theirs.sign(ID, AT, body.decode()))
    signed_by_us = StandardWebhooks().sign(body, WHSEC, event_type="PingTest", now=datetime.now(UTC))

    verdict = verify(StandardWebhooks(), Delivery(signed_by_them, body), [WHSEC], at=AT)
    theirs.verify(body, signed_by_us, json_parse=False)

    assert verdict.key == ID


def test_openssls_hmac_signatures_are_reproduced_and_verified():
    header = "X-Webhook-Signature"
    for scheme, headers in (
        (TimestampedHMAC(), {header: f"t=1614265330,v1={OPENSSL_TIMED}"}),
        (BodyHMAC(header, replay_protection="dedupe-only"), {header: f"sha256={OPENSSL_BODY}"}),
        (SignatureTemplate(), {"X-Webhook-Timestamp": "1614265330", header: OPENSSL_TYPED}),
    ):
        signed = scheme.sign(BODY, TEXT_SECRET, event_type="PingTest", now=AT)

        verdict = verify(scheme, Delivery(headers, BODY), [TEXT_SECRET], at=AT)

        assert signed == headers
        assert verdict.key.startswith("sha256:")


def test_openssls_rsa_signatures_are_verified():
    headers = {"X-Webhook-Timestamp": "1614265330", "X-Webhook-Signature": OPENSSL_RSA_SIGNATURE}

    verdict = verify(TimestampedRSA(), Delivery(headers, BODY), [OPENSSL_PUBLIC_KEY], at=AT)

    assert verdict.signed_at == AT
    with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
        verify(TimestampedRSA(), Delivery(headers, BODY + b" "), [OPENSSL_PUBLIC_KEY], at=AT)
