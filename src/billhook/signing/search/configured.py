"""Configure the scheme that a match describes, and have it verify the request before it counts as found."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from billhook.errors import ConfigError, MissingExtra, SignatureError
from billhook.signing.algorithms import base64_secret
from billhook.signing.body_jwt import BodyJWT
from billhook.signing.presets import BodyHMAC, TimestampedHMAC, TimestampedRSA
from billhook.signing.scheme import Scheme
from billhook.signing.search.captured import BASE64URL, CapturedRequest, SignatureText
from billhook.signing.search.contents import CandidateContent
from billhook.signing.search.key_forms import CandidateKey
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, URL_SAFE, VERSIONS, StandardWebhooks
from billhook.signing.template import SignatureTemplate

__all__ = ["FoundScheme", "Match", "configure", "find_tokens"]

_CLASSES: Final[Mapping[str, Callable[..., Scheme]]] = {
    scheme.__name__: scheme
    for scheme in (StandardWebhooks, TimestampedHMAC, TimestampedRSA, BodyHMAC, BodyJWT, SignatureTemplate)
}
_DEDUPE_ONLY: Final = {"replay_protection": "dedupe-only"}
_STANDARD_CONTENT: Final = "{id}.{timestamp}.{body}"
_STANDARD_HEADERS: Final = ("webhook-signature", "webhook-timestamp", "webhook-id")
_VERSION: Final = re.compile(r"v[0-9]{1,2}[a-z]?")
_EPOCH: Final = datetime(1970, 1, 2, tzinfo=UTC)


class Match(NamedTuple):
    """A content whose signature by a key is a text of the request."""

    content: CandidateContent
    key: CandidateKey
    text: SignatureText


@dataclass(frozen=True, slots=True)
class FoundScheme:
    """A scheme that verifies the request. `kind` is a class of billhook.signing, to call with `arguments`.

    `secret_number` counts the given secrets from 1. The scheme needs that secret as it is, unless
    `secret_change` says how to write it. `content` is the template of what is signed.
    """

    kind: str
    arguments: Mapping[str, Any]
    scheme: Scheme
    secret_number: int
    secret_change: str
    signature_header: str
    content: str
    signed_at: datetime | None
    has_pem: bool = False
    """Whether the secret is a public key in PEM."""
    rank: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    """Of two that fit, the lower is better: less to configure, and less that depends on chance."""


def configure(
    match: Match, request: CapturedRequest, secrets: Sequence[str], body: bytes
) -> FoundScheme | str:
    """Return the scheme for a match; a sentence if no scheme of billhook can be configured for it."""
    content, key, text = match
    description = f"{text.header} is the {key.algorithm} of {content.template!r} by secret {key.number}"
    if text.encoding == BASE64URL:
        return f"{description}, in base64url or without padding, which no scheme of billhook reads"
    secret, change = key.secret, key.change
    if text.version is None:
        kind, arguments = _preset(_template_arguments(match))
    else:
        kind, arguments = "StandardWebhooks", _standard_arguments(match)
        if key.algorithm == "hmac-sha256":
            secret, change = _standard_secret(key, secrets[key.number - 1])
    signed_at = None if content.time is None else content.time.moment
    try:
        scheme = _CLASSES[kind](**arguments)
        scheme.verify(
            request.headers,
            body,
            scheme.load([secret]),
            event_type=request.event_type or "",
            now=signed_at or _EPOCH,
            tolerance_seconds=1,
        )
    except (ConfigError, SignatureError) as error:
        return f"{description}, for which no scheme of billhook can be configured: {error}"
    pem = key.algorithm == "rsa-sha256"
    return FoundScheme(
        kind, arguments, scheme, key.number, change, text.header, content.template, signed_at, pem,
        _rank(match, kind),
    )  # fmt: skip


def is_standard(match: Match) -> bool:
    """Return whether a match in a list of Standard Webhooks is signed as these are; True for other texts."""
    content, key, text = match
    if text.version is None:
        return True
    algorithm = VERSIONS.get(text.version)
    timed = content.time is not None and content.time.format == "unix" and content.time.entry is None
    signed = algorithm is not None and algorithm.name == key.algorithm and not content.digest
    return timed and signed and content.template == _STANDARD_CONTENT


def _rank(match: Match, kind: str) -> tuple[Any, ...]:
    content, key, text = match
    order = ("StandardWebhooks", "TimestampedHMAC", "TimestampedRSA", "BodyHMAC", "SignatureTemplate")
    # `sha256=` is a prefix, and `v1=` the beginning of a list, to which a rotation adds a second one.
    version = _VERSION.match(text.entry or text.prefix) is not None
    dated = content.time is not None and content.time.header.lower() == "date"
    return (
        key.number,
        order.index(kind),
        bool(key.change),
        dated,
        (text.entry is None) == version,
        text.prefix,
    )


def _template_arguments(match: Match) -> dict[str, Any]:
    """Return the arguments of SignatureTemplate, without those that are its defaults."""
    content, key, text = match
    time = content.time
    given = {
        "content": content.template,
        "algorithm": key.algorithm,
        "encoding": text.encoding,
        "signature_header": text.header,
        "timestamp_header": None if time is None or time.entry is not None else time.header,
        "id_header": content.id_header,
        "prefix": text.prefix,
        "time_format": "unix" if time is None else time.format,
        "signature_entry": text.entry,
        "time_entry": None if time is None else time.entry,
        "entry_separator": text.separator,
        "sign_digest": content.digest,
        "secret_encoding": key.encoding,
        "replay_protection": "dedupe-only" if time is None else None,
    }
    defaults: dict[str, Any] = SignatureTemplate.__init__.__kwdefaults__ or {}
    return {name: value for name, value in given.items() if name == "content" or value != defaults[name]}


def _preset(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the class with a name of its own for these arguments of SignatureTemplate, and its arguments."""
    rest = dict(arguments)
    header = rest.pop("signature_header", "X-Webhook-Signature")
    timestamp_header = rest.pop("timestamp_header", None)
    if rest == {"content": "{timestamp}.{body}", "signature_entry": "v1", "time_entry": "t"}:
        return "TimestampedHMAC", {"header": header}
    rsa = {"content": "{timestamp}.{body}", "algorithm": "rsa-sha256", "encoding": "base64"}
    if rest == rsa and timestamp_header is not None:
        return "TimestampedRSA", {"signature_header": header, "timestamp_header": timestamp_header}
    prefix = rest.pop("prefix", "")
    if rest == {"content": "{body}", **_DEDUPE_ONLY}:
        return "BodyHMAC", {"header": header, "prefix": prefix, **_DEDUPE_ONLY}
    return "SignatureTemplate", arguments


def _standard_arguments(match: Match) -> dict[str, Any]:
    content, _, text = match
    names = (text.header, content.time.header if content.time else "", content.id_header or "")
    if tuple(name.lower() for name in names) == _STANDARD_HEADERS:
        return {}
    return dict(zip(("signature_header", "timestamp_header", "id_header"), names, strict=True))


def _standard_secret(key: CandidateKey, given: str) -> tuple[str, str]:
    """Return the secret as Standard Webhooks spells it, and how that differs from the one that was given."""
    with suppress(ConfigError):
        plain, surroundings = plain_secret(given)
        if base64_secret(plain.removeprefix(SECRET_PREFIX).translate(URL_SAFE)) == key.material:
            return plain, f"leave out {surroundings}" if surroundings else ""
    what = {"text": "characters", "hex": "decoded bytes", "base64": "decoded bytes"}[key.encoding]
    before = f"{key.change}, then " if key.change else ""
    secret = SECRET_PREFIX + base64.b64encode(key.material).decode()
    return secret, f"{before}write it as whsec_ and the base64 of its {what}"


# --- tokens ---------------------------------------------------------------------------------------


def find_tokens(request: CapturedRequest, secrets: Sequence[str]) -> Iterator[FoundScheme | str]:
    """Yield the scheme of each JSON Web Token about the body that one of `secrets` verifies."""
    for header, value in request.headers.items():
        stated, claims = (_json_part(value, 0), _json_part(value, 1)) if value.count(".") == 2 else ({}, {})
        if not isinstance(stated.get("alg"), str) or not claims:
            continue
        about = _claim_about(request.body, claims)
        if about is None:
            yield f"{header} is a token, and none of its claims is the body or its SHA-256"
            continue
        arguments: dict[str, Any] = {"header": header, "algorithm": stated["alg"], **about}
        if claims.get("iat") is None:
            arguments |= _DEDUPE_ONLY
        try:
            scheme = BodyJWT(**arguments)
        except (ConfigError, MissingExtra) as error:
            yield f"{header} is a token about the body: {error}"
            continue
        yield _verifying(scheme, arguments, request, secrets)


def _verifying(
    scheme: Scheme, arguments: dict[str, Any], request: CapturedRequest, secrets: Sequence[str]
) -> FoundScheme | str:
    header, claim = arguments["header"], arguments["claim"]
    for number, secret in enumerate(secrets, 1):
        with suppress(ConfigError, SignatureError):
            keys = scheme.load([secret])
            signed = scheme.read(request.headers, request.body, "")
            if keys.accept(signed.content, signed.signatures, None):
                return FoundScheme(
                    "BodyJWT", arguments, scheme, number, "", header, f"a token with the claim {claim!r}",
                    signed.signed_at, "-----BEGIN" in secret, (number, -1),
                )  # fmt: skip
    return f"{header} is a token about the body, and no secret given verifies it"


def _json_part(value: str, number: int) -> dict[str, Any]:
    try:
        part = value.split(".")[number]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _claim_about(body: bytes, claims: Mapping[str, Any]) -> dict[str, str] | None:
    forms = {hashlib.sha256(body).hexdigest(): "sha256", body.decode("utf-8", "replace"): "body"}
    for name, value in claims.items():
        if isinstance(value, str) and value in forms:
            return {"claim": name, "claim_holds": forms[value]}
    return None
