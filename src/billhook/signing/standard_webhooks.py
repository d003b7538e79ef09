"""Standard Webhooks: an id, a timestamp and a list of versioned signatures. Source: standardwebhooks.com."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final, final

from billhook.errors import ConfigError, SignatureMalformed
from billhook.signing import parsing
from billhook.signing.algorithms import (
    ED25519,
    PRIVATE_PREFIX,
    PUBLIC_PREFIX,
    Algorithm,
    base64_secret,
    hmac_algorithm,
)
from billhook.signing.scheme import Keys, Scheme, Secret, Secrets, SignedContent, single_secret
from billhook.signing.times import UNIX

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the public prefix of a secret, not one


URL_SAFE: Final = str.maketrans("-_", "+/")


def _shared_secret(secret: str) -> bytes:
    bare = secret.removeprefix(SECRET_PREFIX)
    if bare != secret:  # without the prefix, it may as well be a text
        bare = bare.translate(URL_SAFE)
    try:
        return base64_secret(bare)
    except ConfigError as error:
        if bare != secret:
            raise
        raise ConfigError(
            f"{error}. If it is url-safe base64, write {SECRET_PREFIX} before it. If the text is the key, "
            f"write {SECRET_PREFIX} and its base64: echo {SECRET_PREFIX}$(printf %s TEXT | base64 -w0)"
        ) from None


VERSIONS: Final[Mapping[str, Algorithm]] = {"v1": hmac_algorithm(decode=_shared_secret), "v1a": ED25519}


@final
class StandardWebhooks(Scheme):
    """`v1` (HMAC-SHA256, `whsec_…`) and `v1a` (ed25519, `whpk_…`) over `id.timestamp.body`.

    One list may contain secrets of both kinds. A signature of another version is ignored, as the
    specification requires; one of these two versions that cannot be decoded is malformed.
    """

    name: ClassVar[str] = "standard-webhooks"
    separator = " "

    def __init__(
        self,
        *,
        signature_header: str = "webhook-signature",
        timestamp_header: str = "webhook-timestamp",
        id_header: str = "webhook-id",
    ) -> None:
        self._use_headers(id_header, timestamp_header, signature_header)

    def load(self, secrets: Secrets) -> Keys:
        return Keys.load(secrets, lambda secret: VERSIONS[_version(secret)].load(secret))

    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> SignedContent:
        id_header, timestamp_header, header = self.headers
        message_id = parsing.read_identifier(parsing.read_header(headers, id_header), id_header)
        timestamp = parsing.read_header(headers, timestamp_header)
        signed_at = UNIX.read(timestamp, timestamp_header)
        signatures: dict[str, list[bytes]] = {}
        listed = parsing.read_header(headers, header)
        # Before the split, which would take memory for them all.
        if listed.count(" ") >= parsing.MAX_SIGNATURES:
            raise SignatureMalformed(f"{header} has more than {parsing.MAX_SIGNATURES} entries")
        for entry in listed.split(" "):
            version, comma, value = entry.partition(",")
            if not (version and comma):
                raise SignatureMalformed(f"{header} is not a list of version,signature entries")
            algorithm = VERSIONS.get(version)
            if algorithm is not None:
                of_kind = signatures.setdefault(algorithm.name, [])
                of_kind.append(parsing.read_signature(value, "base64", algorithm.signature_bytes, header))
                if len(of_kind) > algorithm.most_signatures:
                    raise SignatureMalformed(
                        f"{header} has more than {algorithm.most_signatures} signatures of one kind"
                    )
        # Unambiguous: neither the id nor the timestamp can contain a dot.
        content = b"%b.%b.%b" % (message_id.encode(), timestamp.encode(), body)
        return SignedContent(content, signatures, signed_at, message_id)

    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """Return the three headers. All attempts of a delivery need the same `message_id`."""
        _, text = single_secret(secret)
        version = _version(text)
        message_id = parsing.outgoing_message_id(message_id)
        timestamp = UNIX.write(now)
        signature = VERSIONS[version].sign(text, f"{message_id}.{timestamp}.".encode() + body)
        listed = f"{version},{parsing.encode_signature(signature, 'base64')}"
        return dict(zip(self.headers, (message_id, timestamp, listed), strict=True))


def _version(secret: str) -> str:
    return "v1a" if secret.startswith((PRIVATE_PREFIX, PUBLIC_PREFIX)) else "v1"
