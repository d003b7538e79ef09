"""Configure the scheme that a match describes, and have it verify the request before it counts as found."""

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
from billhook.signing.algorithms import SECRET_ENCODINGS, HmacSha256, RsaSha256, base64_secret
from billhook.signing.body_jwt import BodyJWT, read_token
from billhook.signing.presets import BodyHMAC, TimestampedHMAC, TimestampedRSA
from billhook.signing.scheme import Scheme
from billhook.signing.search.captured import BASE64URL, CapturedRequest, SignatureText
from billhook.signing.search.contents import CandidateContent
from billhook.signing.search.key_forms import CandidateKey
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, URL_SAFE, VERSIONS, StandardWebhooks
from billhook.signing.template import SignatureTemplate

_CLASSES: Final = (StandardWebhooks, TimestampedHMAC, TimestampedRSA, BodyHMAC, SignatureTemplate)
"""The better ones first."""
_DEDUPE_ONLY: Final = {"replay_protection": "dedupe-only"}
_VERSION: Final = re.compile(r"v[0-9]{1,2}[a-z]?")
_EPOCH: Final = datetime(1970, 1, 2, tzinfo=UTC)


class Match(NamedTuple):
    """A content whose signature by a key is a text of the request."""

    content: CandidateContent
    key: CandidateKey
    text: SignatureText

    @property
    def is_usual(self) -> bool:
        """Whether a time that is an entry is beside the signature, and a list of Standard Webhooks is one."""
        content, key, (part, _, _, _) = self
        time = content.time
        if time is not None and time.part.entry is not None:
            same = time.part.header == part.header and time.part.separator == part.separator
            return same and part.entry is not None
        if part.version is None:
            return True
        usual = time is not None and time.format == "unix" and content.template == "{id}.{timestamp}.{body}"
        return usual and not content.digest and VERSIONS[part.version].name == key.algorithm


@dataclass(frozen=True, slots=True)
class FoundScheme:
    """A scheme that verifies the request. `kind` is a class of billhook.signing, to call with `arguments`.

    `secret_number` counts the given secrets from 1. The scheme needs that secret as it is, unless
    `secret_change` says how to write it. `content` is the template of what is signed. Of two that fit, the
    one with the lower `rank` is better: less to configure, and less that depends on chance.
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
    """Something that is wrong, in a sentence; `scheme` is the one that fits without it, if that is known."""

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
    secret, change = key.secret, key.change
    if part.version is None:
        kind, arguments = _preset(_template_arguments(match))
    else:
        kind, arguments = StandardWebhooks, _standard_arguments(match)
        if key.algorithm == HmacSha256.name:
            secret, change = _standard_secret(key)
    signed_at = None if content.time is None else content.time.moment
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
        text = f"{description}, for which no scheme of billhook can be configured: {error}"
        return NearMiss("template", text)
    # `sha256=` is a prefix, and `v1=` the beginning of a list, to which a rotation adds a second one.
    listed = (part.entry is None) == bool(_VERSION.match(part.entry or prefix))
    dated = content.time is not None and content.time.is_date
    rank = (key.number, _CLASSES.index(kind), bool(change), dated, listed, prefix)
    return FoundScheme(
        kind.__name__, arguments, scheme, key.number, change, part.header, content.template, signed_at,
        key.algorithm == RsaSha256.name, rank,
    )  # fmt: skip


def _template_arguments(match: Match) -> dict[str, Any]:
    """Return the arguments of SignatureTemplate, without those that are its defaults."""
    content, key, (part, _, encoding, prefix) = match
    time = content.time
    given = {
        "content": content.template,
        "algorithm": key.algorithm,
        "encoding": encoding,
        "signature_header": part.header,
        "timestamp_header": None if time is None or time.part.entry is not None else time.part.header,
        "id_header": content.id_header,
        "prefix": prefix,
        "time_format": "unix" if time is None else time.format,
        "signature_entry": part.entry,
        "time_entry": None if time is None else time.part.entry,
        "entry_separator": part.separator,
        "sign_digest": content.digest,
        "secret_encoding": key.encoding,
        "replay_protection": "dedupe-only" if time is None else None,
    }
    defaults: dict[str, Any] = SignatureTemplate.__init__.__kwdefaults__ or {}
    return {name: value for name, value in given.items() if name == "content" or value != defaults[name]}


def _preset(arguments: dict[str, Any]) -> tuple[type[Scheme], dict[str, Any]]:
    """Return the class with a name of its own for these arguments of SignatureTemplate, and its arguments."""
    rest = dict(arguments)
    header = rest.pop("signature_header", "X-Webhook-Signature")
    timestamp_header = rest.pop("timestamp_header", None)
    if rest == {"content": "{timestamp}.{body}", "signature_entry": "v1", "time_entry": "t"}:
        return TimestampedHMAC, {"header": header}
    rsa = {"content": "{timestamp}.{body}", "algorithm": "rsa-sha256", "encoding": "base64"}
    if rest == rsa and timestamp_header is not None:
        return TimestampedRSA, {"signature_header": header, "timestamp_header": timestamp_header}
    prefix = rest.pop("prefix", "")
    if rest == {"content": "{body}", **_DEDUPE_ONLY}:
        return BodyHMAC, {"header": header, "prefix": prefix, **_DEDUPE_ONLY}
    return SignatureTemplate, arguments


def _standard_arguments(match: Match) -> dict[str, Any]:
    """Return the arguments of StandardWebhooks, without those that are its defaults."""
    content, _, text = match
    given = {
        "signature_header": text.part.header,
        "timestamp_header": content.time.part.header if content.time else "",
        "id_header": content.id_header or "",
    }
    defaults: dict[str, Any] = StandardWebhooks.__init__.__kwdefaults__ or {}
    return {name: header for name, header in given.items() if header.lower() != defaults[name]}


def _standard_secret(key: CandidateKey) -> tuple[str, str]:
    """Return the secret as Standard Webhooks spells it, and how that differs from the one that was given."""
    material = SECRET_ENCODINGS[key.encoding](key.secret)
    plain, surroundings = plain_secret(key.given)
    with suppress(ConfigError):
        if base64_secret(plain.removeprefix(SECRET_PREFIX).translate(URL_SAFE)) == material:
            return plain, f"leave out {surroundings}" if surroundings else ""
    what = "characters" if key.encoding == "text" else "decoded bytes"
    before = f"{key.change}, then " if key.change else ""
    secret = SECRET_PREFIX + base64.b64encode(material).decode()
    return secret, f"{before}write it as whsec_ and the base64 of its {what}"


def find_tokens(request: CapturedRequest, secrets: Sequence[str]) -> Iterator[FoundScheme | NearMiss]:
    """Yield the scheme of each JSON Web Token about the body, or why there is none."""
    for header, value in request.headers.items():
        with suppress(SignatureMalformed):
            stated, claims, _, _ = read_token(value, header)
            if isinstance(stated.get("alg"), str) and claims:
                yield _token_scheme(header, stated["alg"], claims, request, secrets)


def _token_scheme(
    header: str,
    algorithm: Any,
    claims: Mapping[str, object],
    request: CapturedRequest,
    secrets: Sequence[str],
) -> FoundScheme | NearMiss:
    body = request.body
    forms = {hashlib.sha256(body).hexdigest(): "sha256", body.decode("utf-8", "replace"): "body"}
    found = [(name, forms[text]) for name, text in claims.items() if isinstance(text, str) and text in forms]
    if not found:
        return NearMiss("secret", f"{header} is a token, and none of its claims is the body or its SHA-256")
    claim, holds = found[0]
    arguments: dict[str, Any] = {
        "header": header,
        "algorithm": algorithm,
        "claim": claim,
        "claim_holds": holds,
    }
    if claims.get("iat") is None:
        arguments |= _DEDUPE_ONLY
    try:
        scheme = BodyJWT(**arguments)
    except (ConfigError, MissingExtra) as error:
        return NearMiss("secret", f"{header} is a token about the body: {error}")
    for number, secret in enumerate(secrets, 1):
        with suppress(ConfigError, SignatureError):
            keys = scheme.load([secret])
            signed = scheme.read(request.headers, body, "")
            if keys.accept(signed.content, signed.signatures, None):
                return FoundScheme(
                    "BodyJWT", arguments, scheme, number, "", header, f"a token with the claim {claim!r}",
                    signed.signed_at, "-----BEGIN" in secret,
                )  # fmt: skip
    return NearMiss("secret", f"{header} is a token about the body, and no secret given verifies it")
