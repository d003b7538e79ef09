"""The general form: what is signed, how, and in which headers, all by configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final, Literal, get_args

from billhook.errors import ConfigError, SignatureMalformed
from billhook.signing.base import Claim, Scheme, identifier_to_sign, timestamp_to_sign
from billhook.signing.content import Content
from billhook.signing.ed25519 import Ed25519
from billhook.signing.header_names import check_header_names
from billhook.signing.hmac_sha256 import SECRET_ENCODINGS, HmacSha256, SecretEncoding
from billhook.signing.keys import Algorithm, Keys, Secret, Secrets, only_secret
from billhook.signing.rsa_sha256 import RsaSha256
from billhook.signing.strict import (
    Encoding,
    encode,
    header_value,
    read_identifier,
    read_signature,
    read_timestamp,
)

__all__ = ["AlgorithmName", "ReplayProtection", "SignatureTemplate"]

AlgorithmName = Literal["hmac-sha256", "rsa-sha256", "ed25519"]
ReplayProtection = Literal["dedupe-only"]

DEFAULT_HEADERS: Final = {"timestamp": "X-Webhook-Timestamp", "id": "X-Webhook-Id"}


class SignatureTemplate(Scheme):
    """One signature over `content`, whose placeholders are {id} {timestamp} {type} {body}.

    {body} must be there; {type} binds the event type; without {timestamp} an old delivery never goes
    stale, so `replay_protection="dedupe-only"` must be said. Secrets are text (or `secret_encoding`) for
    hmac-sha256, PEM for rsa-sha256, `whpk_<base64>` for ed25519; {key id: secret} with `key_id_header`.
    """

    __slots__ = ("_algorithm", "_content", "_encoding", "_names", "_prefix", "headers")

    name: ClassVar[str] = "template"

    def __init__(
        self,
        *,
        content: str = "{timestamp}.{type}.{body}",
        algorithm: AlgorithmName = "hmac-sha256",
        encoding: Encoding = "hex",
        signature_header: str = "X-Webhook-Signature",
        timestamp_header: str | None = None,
        id_header: str | None = None,
        key_id_header: str | None = None,
        prefix: str = "",
        secret_encoding: SecretEncoding = "text",  # noqa: S107 - the name of an encoding, not a secret
        replay_protection: ReplayProtection | None = None,
    ) -> None:
        """Headers left at None are X-Webhook-Timestamp and X-Webhook-Id, where the content has the field."""
        if encoding not in get_args(Encoding):
            raise ConfigError(f"encoding {encoding!r} is not one of {', '.join(get_args(Encoding))}")
        if not prefix.isascii():
            raise ConfigError(f"prefix {prefix!r} must be ASCII")
        self._content: Final = Content(content)
        _check_replay_protection(self._content, replay_protection)
        self._algorithm: Final = _algorithm(algorithm, secret_encoding)
        self._encoding: Final = encoding
        self._prefix: Final = prefix
        names = {
            "timestamp": _field_header(self._content, "timestamp", timestamp_header),
            "id": _field_header(self._content, "id", id_header),
            "signature": signature_header,
            "key_id": key_id_header,
        }
        self._names: Final = {use: name for use, name in names.items() if name is not None}
        self.headers = tuple(self._names.values())
        check_header_names(self.headers)

    def load(self, secrets: Secrets) -> Keys:
        return Keys.load(secrets, self._algorithm.load, need_ids="key_id" in self._names)

    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> Claim:
        given = {use: header_value(headers, name) for use, name in self._names.items()}
        timestamp = message_id = None
        if "timestamp" in given:
            timestamp = read_timestamp(given["timestamp"], self._names["timestamp"])
        if "id" in given:
            message_id = read_identifier(given["id"], self._names["id"])
        signature = self._signature(given["signature"])
        content = self._content.render({**given, "type": event_type}, body)
        if content is None:
            raise SignatureMalformed("the id or the event type could be misread where the content has it")
        return Claim(content, {self._algorithm.name: [signature]}, timestamp, message_id, given.get("key_id"))

    def _signature(self, text: str) -> bytes:
        name = self._names["signature"]
        if not text.startswith(self._prefix):
            raise SignatureMalformed(f"{name} does not begin with {self._prefix!r}")
        encoded = text[len(self._prefix) :]
        return read_signature(encoded, self._encoding, self._algorithm.signature_bytes, name)

    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """The scheme's headers; `secret` is the private half, as {key id: key} with `key_id_header`."""
        key_id, text = only_secret(secret)
        given: dict[str, str] = {}
        if "timestamp" in self._names:
            given["timestamp"] = timestamp_to_sign(now)
        if "id" in self._names:
            given["id"] = identifier_to_sign(message_id)
        if "key_id" in self._names:
            if key_id is None:
                raise ConfigError("key_id_header needs the signing key as {key id: key}")
            given["key_id"] = key_id
        content = self._content.render({**given, "type": event_type}, body)
        if content is None:
            raise ValueError("message_id or event_type could be misread where the content has it")
        signature = self._algorithm.sign(text, content)
        given["signature"] = self._prefix + encode(signature, self._encoding)
        return {self._names[use]: value for use, value in given.items()}


def _algorithm(name: str, secret_encoding: SecretEncoding) -> Algorithm:
    if secret_encoding not in SECRET_ENCODINGS:
        raise ConfigError(f"secret_encoding {secret_encoding!r} is not one of {', '.join(SECRET_ENCODINGS)}")
    decode = SECRET_ENCODINGS[secret_encoding]
    known: list[Algorithm] = [HmacSha256(decode), RsaSha256(), Ed25519()]
    for algorithm in known:
        if algorithm.name == name:
            return algorithm
    raise ConfigError(f"algorithm {name!r} is not one of {', '.join(get_args(AlgorithmName))}")


def _field_header(content: Content, field: str, given: str | None) -> str | None:
    if field in content.fields:
        return DEFAULT_HEADERS[field] if given is None else given
    if given is not None:
        raise ConfigError(f"{field}_header is given, but content {content.text!r} does not sign {{{field}}}")
    return None


def _check_replay_protection(content: Content, replay_protection: str | None) -> None:
    if "timestamp" in content.fields:
        if replay_protection is not None:
            raise ConfigError(f"content {content.text!r} signs the time: leave replay_protection out")
    elif replay_protection != "dedupe-only":
        raise ConfigError(
            f"content {content.text!r} signs no time, so an old delivery never goes stale: accept that with "
            f'replay_protection="dedupe-only" (got {replay_protection!r})'
        )
