"""Configure the scheme that a match describes; it counts as found if it verifies the request."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from billhook.errors import ConfigError, MissingExtra, SignatureError, SignatureMalformed
from billhook.signing.algorithms import SECRET_ENCODINGS, HmacSha256, RsaSha256
from billhook.signing.body_jwt import BodyJWT, read_token
from billhook.signing.presets import BodyHMAC, TimestampedHMAC, TimestampedRSA
from billhook.signing.scheme import Scheme
from billhook.signing.search.captured import BASE64URL, CapturedRequest, SignatureText
from billhook.signing.search.contents import CandidateContent
from billhook.signing.search.key_forms import CandidateKey
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, StandardWebhooks
from billhook.signing.template import SignatureTemplate

_CLASSES: Final = (StandardWebhooks, TimestampedHMAC, TimestampedRSA, BodyHMAC, SignatureTemplate)
"""In order of preference."""
_DEDUPE_ONLY: Final = {"replay_protection": "dedupe-only"}
_VERSION: Final = re.compile(r"v[0-9]{1,2}[a-z]?")
_EPOCH: Final = datetime(1970, 1, 2, tzinfo=UTC)


class Match(NamedTuple):
    """A content, and the key whose signature of it is a text of the request."""

    content: CandidateContent
    key: CandidateKey
    text: SignatureText

    @property
    def is_usual(self) -> bool:
        """Whether the time is in a header of its own, or in the list of entries that has the signature."""
        time, part = self.content.time, self.text.part
        if time is None or time.part.entry is None:
            return True
        same_list = (time.part.header, time.part.separator) == (part.header, part.separator)
        return same_list and part.entry is not None


@dataclass(frozen=True, slots=True)
class FoundScheme:
    """A scheme that verifies the request. `kind` is a class of billhook.signing, to call with `arguments`.

    `secret_number` counts the given secrets from 1. The scheme needs that secret as it is, unless
    `secret_change` says how to write it. `content` is the template of the signed content. Of two schemes that
    fit, the one with the lower `rank` is better: it has fewer options and is less likely a coincidence.
    """

    kind: str
    arguments: Mapping[str, Any]
    scheme: Scheme
    secret_number: int
    secret_change: str
    signature_header: str
    content: str
    signed_at: datetime | None
    has_pem: bool
    """Whether the secret is a public key in PEM."""
    rank: tuple[Any, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A sentence about what is wrong; `scheme` is the one that fits once it is corrected, if known."""

    kind: Literal["algorithm", "body", "clock", "content", "header", "key", "secret", "template"]
    explanation: str
    scheme: FoundScheme | None = None


def configure(match: Match, request: CapturedRequest) -> FoundScheme | NearMiss:
    """Return the scheme for a match, or why no scheme of billhook can be configured for it."""
    content, key, (part, _, encoding, prefix) = match
    fits = f"{content.template!r} by secret {key.number}"
    if key.algorithm in ("hmac-sha1", "hmac-sha384", "hmac-sha512"):
        text = f"{part.header} is the {key.algorithm.upper()} of {fits}: billhook verifies HMAC-SHA256"
        return NearMiss("algorithm", f"{text}, if the sender lets one choose it")
    description = f"{part.header} is the {key.algorithm} of {fits}"
    if encoding == BASE64URL:
        text = f"{description}, in base64url or without padding, which no scheme of billhook reads"
        return NearMiss("template", text)
    signed_at = None if content.time is None else content.time.moment
    why: Exception | None = None
    for kind, arguments, secret, change in _candidates(match):
        try:
            scheme = kind(**arguments)
            scheme.verify(
                request.headers,
                request.body,
                scheme.load([secret]),
                event_type=request.event_type or "",
                now=signed_at or _EPOCH,
                tolerance_seconds=1,
            )
        except (ConfigError, SignatureError) as error:
            why = error
            continue
        # `sha256=` is a prefix, whereas `v1=` begins a list, to which a rotation of keys adds a second
        # signature.
        listed = (part.entry is None) == bool(_VERSION.match(part.entry or prefix))
        dated = content.time is not None and content.time.is_date
        rank = (key.number, _CLASSES.index(kind), bool(change), dated, listed, prefix)
        return FoundScheme(
            kind.__name__, arguments, scheme, key.number, change, part.header, content.template, signed_at,
            key.algorithm == RsaSha256.name, rank,
        )  # fmt: skip
    return NearMiss("template", f"{description}, for which no scheme of billhook can be configured: {why}")


def _candidates(match: Match) -> Iterator[tuple[type[Scheme], dict[str, Any], str, str]]:
    """Yield what may be the scheme of a match, the best first: class, arguments, secret and its change."""
    content, key, (part, _, encoding, prefix) = match
    time_header = "" if content.time is None else content.time.part.header
    time_entry = None if content.time is None else content.time.part.entry
    as_found = key.secret, key.change
    if content.template == "{id}.{timestamp}.{body}":
        headers = (content.id_header or "", time_header, part.header)
        names = ("id_header", "timestamp_header", "signature_header")
        usual = zip(names, headers, StandardWebhooks().headers, strict=True)
        own = {name: header for name, header, usual_one in usual if header.lower() != usual_one}
        for spelling in _standard_secrets(key) if key.algorithm == HmacSha256.name else (as_found,):
            yield StandardWebhooks, own, *spelling
    if content.template == "{timestamp}.{body}":
        yield TimestampedHMAC, {"header": part.header}, *as_found
        yield TimestampedRSA, {"signature_header": part.header, "timestamp_header": time_header}, *as_found
    if content.template == "{body}":
        yield BodyHMAC, {"header": part.header, "prefix": prefix, **_DEDUPE_ONLY}, *as_found
    given = {
        "content": content.template,
        "algorithm": key.algorithm,
        "encoding": encoding,
        "signature_header": part.header,
        "timestamp_header": None if time_entry is not None else time_header or None,
        "id_header": content.id_header,
        "prefix": prefix,
        "time_format": "unix" if content.time is None else content.time.format,
        "signature_entry": part.entry,
        "time_entry": time_entry,
        "entry_separator": part.separator,
        "sign_digest": content.digest,
        "secret_encoding": key.encoding,
        "replay_protection": "dedupe-only" if content.time is None else None,
    }
    defaults: dict[str, Any] = SignatureTemplate.__init__.__kwdefaults__ or {}
    needed = {name: value for name, value in given.items() if name == "content" or value != defaults[name]}
    yield SignatureTemplate, needed, *as_found


def _standard_secrets(key: CandidateKey) -> Iterator[tuple[str, str]]:
    """Yield the spellings of a secret for Standard Webhooks, and how each differs from the one given."""
    plain, surroundings = plain_secret(key.given)
    yield plain, f"leave out {surroundings}" if surroundings else ""
    what = "characters" if key.encoding == "text" else "decoded bytes"
    before = f"{key.change}, then " if key.change else ""
    secret = SECRET_PREFIX + base64.b64encode(SECRET_ENCODINGS[key.encoding](key.secret)).decode()
    yield secret, f"{before}write it as whsec_ and the base64 of its {what}"


def find_tokens(request: CapturedRequest, secrets: Sequence[str]) -> Iterator[FoundScheme | NearMiss]:
    """Yield the scheme of each JSON Web Token about the body, or why there is none."""
    text = request.body.decode("utf-8", "replace")
    forms = {hashlib.sha256(request.body).hexdigest(): "sha256", text: "body"}
    for header, value in request.headers.items():
        try:
            jose_header, claims, _, _ = read_token(value, header)
        except SignatureMalformed:
            continue
        if not (isinstance(jose_header.get("alg"), str) and claims):
            continue
        found = [
            (name, forms[each]) for name, each in claims.items() if isinstance(each, str) and each in forms
        ]
        if not found:
            yield NearMiss(
                "secret", f"{header} is a token, and none of its claims is the body or its SHA-256"
            )
            continue
        arguments: dict[str, Any] = {"header": header, "algorithm": jose_header["alg"]}
        arguments["claim"], arguments["claim_holds"] = found[0]
        if claims.get("iat") is None:
            arguments |= _DEDUPE_ONLY
        try:
            scheme = BodyJWT(**arguments)
        except (ConfigError, MissingExtra) as error:
            yield NearMiss("secret", f"{header} is a token about the body: {error}")
            continue
        yield next(
            _accepting(scheme, arguments, request, secrets),
            NearMiss("secret", f"{header} is a token about the body, and no secret given verifies it"),
        )


def _accepting(
    scheme: BodyJWT, arguments: Mapping[str, Any], request: CapturedRequest, secrets: Sequence[str]
) -> Iterator[FoundScheme]:
    """Yield the scheme with each secret that verifies the token, expired or not."""
    content = f"a token with the claim {arguments['claim']!r}"
    for number, secret in enumerate(secrets, 1):
        with suppress(ConfigError, SignatureError):
            signed = scheme.read(request.headers, request.body, "")
            if scheme.load([secret]).accept(signed.content, signed.signatures, None):
                yield FoundScheme(
                    "BodyJWT", arguments, scheme, number, "", scheme.headers[0], content, signed.signed_at,
                    "-----BEGIN" in secret,
                )  # fmt: skip
