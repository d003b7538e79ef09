"""One case per way of signing, with its keys and the parts of a delivery that its signature protects."""

from __future__ import annotations

import base64
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from billhook.signing import (
    BodyHMAC,
    BodyJWT,
    Keys,
    Scheme,
    SignatureTemplate,
    StandardWebhooks,
    TimestampedHMAC,
    TimestampedRSA,
    Verified,
)

NOW = datetime(2021, 2, 25, 15, 8, 50, tzinfo=UTC)
TIMESTAMP = 1614265730
TEXT_SECRET = "a-shared-secret-of-32-characters"
OTHER_TEXT_SECRET = "another-secret-of-some-32-letters"
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_WHSEC = "whsec_" + base64.b64encode(b"another secret of 27 bytes!").decode()


@functools.cache
def rsa_pems(name: str, bits: int = 2048) -> tuple[str, str]:
    """A private and a public PEM, new in each run; the same name gives the same pair."""
    return pems(rsa.generate_private_key(public_exponent=65537, key_size=bits))


def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process not find the package, nor the parts of it that it has imported."""
    for name in [name for name in sys.modules if name.startswith("cryptography.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)


def pems(private: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> tuple[str, str]:
    private_pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private_pem.decode(), public_pem.decode()


def ed25519_pair(seed: bytes) -> tuple[str, str]:
    """whsk_ and whpk_ of a seed."""
    public = ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return "whsk_" + base64.b64encode(seed).decode(), "whpk_" + base64.b64encode(public).decode()


class Delivery(NamedTuple):
    headers: dict[str, str]
    body: bytes
    event_type: str = "PingTest"


class Part(NamedTuple):
    """A piece of a delivery as bytes: read it, or put other bytes in its place."""

    get: Callable[[Delivery], bytes]
    put: Callable[[Delivery, bytes], Delivery]


BODY = Part(lambda d: d.body, lambda d, raw: d._replace(body=raw))
TYPE = Part(lambda d: d.event_type.encode(), lambda d, raw: d._replace(event_type=raw.decode("latin-1")))


def in_header(
    name: str,
    pattern: str = r"(?s:(.*))",
    decode: Callable[[str], bytes] = lambda text: text.encode("latin-1"),
    encode: Callable[[bytes], str] = lambda raw: raw.decode("latin-1"),
) -> Part:
    """The one group of `pattern` in the header `name`."""

    def get(delivery: Delivery) -> bytes:
        return decode(re.search(pattern, delivery.headers[name])[1])

    def put(delivery: Delivery, raw: bytes) -> Delivery:
        text = delivery.headers[name]
        start, end = re.search(pattern, text).span(1)
        return delivery._replace(headers=delivery.headers | {name: text[:start] + encode(raw) + text[end:]})

    return Part(get, put)


def base64_in(name: str, pattern: str = "(.*)") -> Part:
    return in_header(name, pattern, base64.b64decode, lambda raw: base64.b64encode(raw).decode())


def base64url_in(name: str, pattern: str) -> Part:
    return in_header(
        name,
        pattern,
        lambda text: base64.urlsafe_b64decode(text + "=="),
        lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"=").decode(),
    )


def hex_in(name: str, pattern: str = "(.*)") -> Part:
    return in_header(name, pattern, bytes.fromhex, bytes.hex)


@dataclass(frozen=True)
class Case:
    label: str
    scheme: Scheme
    signing: str | Mapping[str, str]
    verifying: Sequence[str | Mapping[str, str]]
    stranger: str | Mapping[str, str]
    """A key to sign with that the receiver does not know."""
    parts: Mapping[str, Part]

    def sign(self, body: bytes = b"{}", *, at: datetime = NOW, secret: str | None = None) -> Delivery:
        headers = self.scheme.sign(
            body, secret or self.signing, event_type="PingTest", now=at, message_id="msg_1"
        )
        return Delivery(headers, body)

    def verify(self, delivery: Delivery, *, at: datetime = NOW, tolerance_seconds: int = 300) -> Verified:
        return verify(self.scheme, delivery, self.keys, at=at, tolerance_seconds=tolerance_seconds)

    @functools.cached_property
    def keys(self) -> Keys:
        """What the receiver verifies with; loaded once, because reading a PEM takes longer than HMAC."""
        return self.scheme.load(self.verifying)

    @property
    def public(self) -> bool:
        """Is it verified with public keys?"""
        return "whpk_" in str(self.verifying) or "PUBLIC KEY" in str(self.verifying)

    @property
    def timed(self) -> bool:
        return "timestamp" in self.parts


def verify(scheme, delivery, secrets, *, at=NOW, tolerance_seconds=300):
    """Verify with keys, or with secrets that are loaded first."""
    return scheme.verify(
        delivery.headers,
        delivery.body,
        secrets if isinstance(secrets, Keys) else scheme.load(secrets),
        event_type=delivery.event_type,
        now=at,
        tolerance_seconds=tolerance_seconds,
    )


def _cases() -> list[Case]:
    whsk, whpk = ed25519_pair(b"\x07" * 32)
    other_whsk, _ = ed25519_pair(b"\x08" * 32)
    private, public = rsa_pems("case")
    other_private, _ = rsa_pems("other")
    # To sign with, to verify with, and a stranger's.
    hmac = TEXT_SECRET, [TEXT_SECRET], OTHER_TEXT_SECRET
    whsec = WHSEC, [WHSEC], OTHER_WHSEC
    ed25519_keys = whsk, [whpk], other_whsk
    rsa_keys = private, [public], other_private
    standard = {"id": in_header("webhook-id"), "timestamp": in_header("webhook-timestamp"), "body": BODY}
    timed = {"timestamp": in_header("X-Webhook-Timestamp"), "body": BODY}
    signature = "X-Webhook-Signature"
    return [
        Case(
            "standard-webhooks-v1",
            StandardWebhooks(),
            *whsec,
            standard | {"signature": base64_in("webhook-signature", "v1,(.*)")},
        ),
        Case(
            "standard-webhooks-v1a",
            StandardWebhooks(),
            *ed25519_keys,
            standard | {"signature": base64_in("webhook-signature", "v1a,(.*)")},
        ),
        Case(
            "timestamped-hmac",
            TimestampedHMAC(),
            *hmac,
            {
                "timestamp": in_header(signature, "(?s:t=(.*),)"),
                "body": BODY,
                "signature": hex_in(signature, "v1=(.*)"),
            },
        ),
        Case(
            "timestamped-rsa",
            TimestampedRSA(),
            *rsa_keys,
            timed | {"signature": base64_in(signature)},
        ),
        Case(
            "timestamped-rsa-key-id",
            TimestampedRSA(key_id_header="X-Webhook-Key-Id"),
            {"2021": private},
            [{"2021": public}],
            {"2021": other_private},
            timed | {"signature": base64_in(signature), "key id": in_header("X-Webhook-Key-Id")},
        ),
        Case(
            "body-hmac",
            BodyHMAC("X-Hub-Signature-256", replay_protection="dedupe-only"),
            *hmac,
            {"body": BODY, "signature": hex_in("X-Hub-Signature-256", "sha256=(.*)")},
        ),
        Case(
            "template",
            SignatureTemplate(),
            *hmac,
            timed | {"type": TYPE, "signature": hex_in(signature)},
        ),
        Case(
            "template-all-fields-ed25519",
            SignatureTemplate(
                content="v9:{type}|{id}:{body}~{timestamp}.", algorithm="ed25519", encoding="base64"
            ),
            *ed25519_keys,
            timed | {"type": TYPE, "id": in_header("X-Webhook-Id"), "signature": base64_in(signature)},
        ),
        Case(
            "template-iso-time",
            SignatureTemplate(
                content="v1:{timestamp}:{type}:{body}", time_format="iso-8601", signature_entry="v1"
            ),
            *hmac,
            timed | {"type": TYPE, "signature": hex_in(signature, "v1=(.*)")},
        ),
        Case(
            "template-http-date",
            SignatureTemplate(content="{timestamp}\n{body}", time_format="http-date"),
            *hmac,
            timed | {"signature": hex_in(signature)},
        ),
        Case(
            "template-milliseconds-rsa-digest",
            SignatureTemplate(
                content="{timestamp}.{body}",
                algorithm="rsa-sha256",
                encoding="base64",
                time_format="unix-ms",
                signature_entry="v0",
                time_entry="t",
                entry_separator=";",
                sign_digest=True,
            ),
            *rsa_keys,
            {
                "timestamp": in_header(signature, "(?s:t=(.*);v0)"),
                "body": BODY,
                "signature": base64_in(signature, ";v0=(.*)"),
            },
        ),
        Case(
            "body-jwt",
            BodyJWT(algorithm="HS256"),
            *hmac,
            {
                "timestamp": base64url_in(signature, r"(?s:\.(.*)\.)"),
                "body": BODY,
                "signature": base64url_in(signature, r"\.([^.]*)$"),
            },
        ),
    ]


CASES = _cases()
LABELS = [case.label for case in CASES]
CASE_OF = {case.label: case for case in CASES}
