"""SignatureTemplate: a scheme configured by what is signed, how, and in which headers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Literal, get_args

from billhook.errors import ConfigError, SignatureMalformed
from billhook.signing import parsing
from billhook.signing.algorithms import SECRET_ENCODINGS, AlgorithmName, SecretEncoding, algorithm_of
from billhook.signing.content_template import ContentTemplate
from billhook.signing.parsing import Encoding
from billhook.signing.scheme import Keys, Scheme, Secret, Secrets, SignedContent, check_option, single_secret
from billhook.signing.times import TIME_FORMATS, TimeFormat, TimeFormatName

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,16}", re.ASCII)
_SEPARATORS: Final = (",", ";")
"""Neither is a character of hex, base64 or an entry's name."""


@dataclass(frozen=True, slots=True)
class HeaderEntries:
    """The names of the entries in a list header. Entries of other names are ignored, as senders require."""

    signature: str
    time: str | None
    separator: str

    def check(self, time_format: TimeFormat) -> None:
        """Raise ConfigError for equal or invalid names, or a separator that a time may contain."""
        for name in (self.signature, *(() if self.time is None else (self.time,))):
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} cannot name an entry: use 1 to 16 letters and digits")
        if self.signature == self.time:
            raise ConfigError(f"the entry {self.time!r} is given two meanings: each needs its own")
        if self.separator not in _SEPARATORS:
            raise ConfigError(f"entry_separator {self.separator!r} is not one of {' '.join(_SEPARATORS)}")
        if self.time is not None and self.separator in time_format.characters:
            raise ConfigError(f"entry_separator {self.separator!r} may be within a time ({time_format.name})")

    def read(self, text: str, header: str) -> tuple[list[str], str | None]:
        """Return the texts of the signatures, perhaps none, and of the time. Raises SignatureMalformed."""
        signatures: list[str] = []
        time: str | None = None
        most = parsing.MAX_SIGNATURES + 1
        if text.count(self.separator) >= most:  # before the split, which would take memory for them all
            raise SignatureMalformed(f"{header} has more than {most} entries")
        for entry in parsing.split_list(text, self.separator):
            name, equals, value = entry.partition("=")
            if not (name and equals):
                raise SignatureMalformed(f"{header} is not a list of name=value entries")
            if name == self.signature:
                signatures.append(value)
            elif name == self.time:
                # With two times, one could be signed and the other checked.
                if time is not None:
                    raise SignatureMalformed(f"{header} has more than one {name}")
                time = value
        if self.time is not None and time is None:
            raise SignatureMalformed(f"{header} has no {self.time}")
        return signatures, time

    def write(self, signature: str, time: str | None) -> str:
        """Return the header's text, which `read` parses."""
        timed = "" if self.time is None else f"{self.time}={time}{self.separator}"
        return f"{timed}{self.signature}={signature}"


ReplayProtection = Literal["dedupe-only"]

DEFAULT_HEADERS: Final = {"timestamp": "X-Webhook-Timestamp", "id": "X-Webhook-Id"}


class SignatureTemplate(Scheme):
    """A signature over `content`, whose placeholders are {id} {timestamp} {type} {body}.

    {body} is required; {type} binds the event type; without {timestamp} an old delivery never becomes stale,
    so `replay_protection="dedupe-only"` is required. Secrets are text (or `secret_encoding`) for HMAC,
    PEM for rsa-sha256, `whpk_<base64>` for ed25519; {key id: secret} with `key_id_header`.

    `time_format` is unix (seconds), unix-ms, iso-8601 or http-date. With `signature_entry="v1"` the header
    is a list, `v1=…,v1=…`; with `time_entry="t"` it contains the time as well: `t=…,v1=…`.
    `sign_digest=True` is for senders that sign the SHA-256 of the content instead, as Bridge does.
    """

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
        time_format: TimeFormatName = "unix",
        signature_entry: str | None = None,
        time_entry: str | None = None,
        entry_separator: str = ",",
        sign_digest: bool = False,
        secret_encoding: SecretEncoding = "text",  # noqa: S107 - the name of an encoding, not a secret
        replay_protection: ReplayProtection | None = None,
    ) -> None:
        """Check the options; raise ConfigError.

        A header that is None is X-Webhook-Timestamp or X-Webhook-Id, if the content has the field.
        """
        # Everything is checked at start: read() may then raise for requests only.
        check_option("algorithm", algorithm, get_args(AlgorithmName))
        check_option("encoding", encoding, get_args(Encoding))
        check_option("secret_encoding", secret_encoding, SECRET_ENCODINGS)
        check_option("time_format", time_format, TIME_FORMATS)
        self._time_format: Final = TIME_FORMATS[time_format]
        self._content: Final = ContentTemplate(content, self._time_format)
        if "timestamp" in self._content.fields and replay_protection is not None:
            raise ConfigError(f"content {content!r} signs the time: leave replay_protection out")
        if "timestamp" not in self._content.fields and replay_protection != "dedupe-only":
            raise ConfigError(
                f"content {content!r} signs no time, so an old delivery never goes stale: accept that with "
                f'replay_protection="dedupe-only" (got {replay_protection!r})'
            )
        if time_entry is not None and "timestamp" not in self._content.fields:
            raise ConfigError(f"time_entry is given, but content {content!r} does not sign {{timestamp}}")
        if time_entry is not None and signature_entry is None:
            raise ConfigError("time_entry needs signature_entry: both are in the header of the signature")
        if time_entry is not None and timestamp_header is not None:
            raise ConfigError("timestamp_header and time_entry are two places for one time: give one of them")
        self._entries: HeaderEntries | None = None
        if signature_entry is not None:
            self._entries = HeaderEntries(signature_entry, time_entry, entry_separator)
            self._entries.check(self._time_format)
            self.separator = entry_separator
        self._algorithm: Final = algorithm_of(algorithm, secret_encoding)
        self._encoding: Final = encoding
        # HTTP libraries strip white space at the beginning of a header.
        if not (prefix.isascii() and prefix.isprintable()) or prefix != prefix.lstrip():
            raise ConfigError(f"prefix {prefix!r} must be ASCII, and no header begins with white space")
        self._prefix: Final = prefix
        self._sign_digest: Final = sign_digest
        names = {
            "timestamp": None if time_entry else _field_header(self._content, "timestamp", timestamp_header),
            "id": _field_header(self._content, "id", id_header),
            "signature": signature_header,
            "key_id": key_id_header,
        }
        self._names: Final = {use: name for use, name in names.items() if name is not None}
        self._use_headers(*self._names.values())

    @property
    def signs_time(self) -> bool:
        return "timestamp" in self._content.fields

    @property
    def signs_type(self) -> bool:
        return "type" in self._content.fields

    def load(self, secrets: Secrets) -> Keys:
        return Keys.load(secrets, self._algorithm.load, need_ids="key_id" in self._names)

    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> SignedContent:
        values = {use: parsing.read_header(headers, name) for use, name in self._names.items()}
        header = self._names["signature"]
        texts, timestamp = [values["signature"]], values.get("timestamp")
        if self._entries is not None:
            texts, entry = self._entries.read(values["signature"], header)
            timestamp = timestamp if entry is None else entry
        signed_at = message_id = None
        if timestamp is not None:
            signed_at = self._time_format.read(timestamp, self._names.get("timestamp", header))
            # Keep the text of the time: the sender signed this spelling.
            values["timestamp"] = timestamp
        if "id" in values:
            message_id = parsing.read_identifier(values["id"], self._names["id"])
        # Count them before decoding: each decoding costs time, and senders without the secret choose the
        # number.
        most = self._algorithm.most_signatures
        if len(texts) > most:
            raise SignatureMalformed(f"{header} has more than {most} signatures of one kind")
        if not all(text.startswith(self._prefix) for text in texts):
            raise SignatureMalformed(f"{header} does not begin with {self._prefix!r}")
        length = self._algorithm.signature_bytes
        signatures = [
            parsing.read_signature(text[len(self._prefix) :], self._encoding, length, header)
            for text in texts
        ]
        content = self._rendered(values, event_type, body)
        if content is None:
            raise SignatureMalformed("the id or the event type could be misread where the content has it")
        return SignedContent(
            content, {self._algorithm.name: signatures}, signed_at, message_id, values.get("key_id")
        )

    def _rendered(self, texts: Mapping[str, str], event_type: str, body: bytes) -> bytes | None:
        content = self._content.render({**texts, "type": event_type}, body)
        return hashlib.sha256(content).digest() if content is not None and self._sign_digest else content

    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """Return the headers. `secret` is the private key of a pair; {key id: key} with `key_id_header`."""
        key_id, text = single_secret(secret)
        values: dict[str, str] = {}
        if "timestamp" in self._content.fields:
            values["timestamp"] = self._time_format.write(now)
        if "id" in self._names:
            values["id"] = parsing.outgoing_message_id(message_id)
        if "key_id" in self._names:
            if key_id is None:
                raise ConfigError("key_id_header needs the signing key as {key id: key}")
            values["key_id"] = key_id
        content = self._rendered(values, event_type, body)
        # A receiver would refuse it, so it is an error here already.
        if content is None:
            raise ValueError("message_id or event_type could be misread where the content has it")
        signature = self._prefix + parsing.encode_signature(
            self._algorithm.sign(text, content), self._encoding
        )
        if self._entries is not None:
            signature = self._entries.write(signature, values.get("timestamp"))
        values["signature"] = signature
        return {name: values[use] for use, name in self._names.items()}


def _field_header(content: ContentTemplate, field: str, header: str | None) -> str | None:
    if field in content.fields:
        return DEFAULT_HEADERS[field] if header is None else header
    # A header that is not signed proves nothing, so configuring it is a mistake.
    if header is not None:
        raise ConfigError(f"{field}_header is given, but content {content.text!r} does not sign {{{field}}}")
    return None
