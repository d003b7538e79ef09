"""Vectors that others published or made: proof that we sign and verify what the rest of the world does."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from billhook.errors import ConfigError, SignatureMalformed, SignatureMismatch
from billhook.signing import BodyHMAC, SignatureTemplate, StandardWebhooks, TimestampedHMAC, TimestampedRSA
from billhook.signing.algorithms import ED25519
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

# Key, content, HMAC-SHA256 and HMAC-SHA512. The secret of case 2 is under 16 bytes.
RFC_4231_SECTION_4 = [
    pytest.param(
        b"\x0b" * 20,
        b"Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
        "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
        id="Test Case 1",
    ),
    pytest.param(
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352"
        "6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        id="Test Case 6",
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


def test_the_first_ed25519_vector_of_rfc_8032_is_signed_and_verified():
    whsk, whpk = ed25519_pair(SEED_OF_RFC_8032)
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    raw = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )

    key = ED25519.load(whpk)

    assert whpk == "whpk_" + base64.b64encode(public).decode()
    assert ED25519.sign(whsk, b"") == raw
    assert key.matches(b"", [raw])
    assert not key.matches(b"x", [raw])


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


@pytest.mark.parametrize(("key", "content", "sha256", "sha512"), RFC_4231_SECTION_4)
def test_the_hmac_vectors_of_rfc_4231_are_signed_and_verified(key, content, sha256, sha512):
    for algorithm, digits in (("hmac-sha256", sha256), ("hmac-sha512", sha512)):
        scheme = SignatureTemplate(
            content="{body}",
            algorithm=algorithm,
            secret_encoding="hex",
            signature_header="X-Sig",
            replay_protection="dedupe-only",
        )

        signed = scheme.sign(content, key.hex(), event_type="PingTest", now=AT)
        verify(scheme, Delivery({"X-Sig": digits}, content), [key.hex()], at=AT)

        assert signed == {"X-Sig": digits}
        with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
            verify(scheme, Delivery({"X-Sig": digits}, content + b"x"), [key.hex()], at=AT)


def test_a_scheme_takes_the_digest_that_it_is_configured_for_and_no_other():
    header = "X-Webhook-Signature"
    for scheme, content, prefix in (
        (TimestampedHMAC(algorithm="hmac-sha512"), b"1614265330." + BODY, "t=1614265330,v1="),
        (
            BodyHMAC(header, algorithm="hmac-sha512", replay_protection="dedupe-only"),
            BODY,
            "sha512=",
        ),
    ):
        digits = hmac.digest(TEXT_SECRET.encode(), content, "sha512").hex()
        short = hmac.digest(TEXT_SECRET.encode(), content, "sha256").hex()

        signed = scheme.sign(BODY, TEXT_SECRET, event_type="PingTest", now=AT)
        verify(scheme, Delivery({header: prefix + digits}, BODY), [TEXT_SECRET], at=AT)

        assert signed == {header: prefix + digits}
        with pytest.raises(SignatureMalformed, match="X-Webhook-Signature holds a signature"):
            verify(scheme, Delivery({header: prefix + short}, BODY), [TEXT_SECRET], at=AT)
        for digest in ("sha3_512", "blake2b"):  # of the same length
            other = hmac.digest(TEXT_SECRET.encode(), content, digest).hex()
            with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
                verify(scheme, Delivery({header: prefix + other}, BODY), [TEXT_SECRET], at=AT)


@pytest.mark.parametrize("scheme", [TimestampedHMAC, BodyHMAC])
def test_a_scheme_with_a_shared_secret_takes_no_other_algorithm(scheme):
    for algorithm in ("rsa-sha256", "hmac-sha1", "sha512", None):
        told = f"algorithm {algorithm!r} is not one of hmac-sha256, hmac-sha512"
        with pytest.raises(ConfigError, match=told):
            scheme("X-Sig", algorithm=algorithm)


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
