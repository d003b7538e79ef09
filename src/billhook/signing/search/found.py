"""Say which scheme a match stands for, once it verifies the request, or why there is none."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from billhook.errors import ConfigError, MissingExtra, SignatureError, SignatureMalformed
from billhook.signing.algorithms import RSA_SHA256, SECRET_ENCODINGS, AlgorithmName, HmacName
from billhook.signing.body_jwt import BodyJWT, read_token
from billhook.signing.scheme import Scheme
from billhook.signing.schemes import SCHEMES
from billhook.signing.search.captured import BASE64URL, CapturedRequest, Part, SignatureText
from billhook.signing.search.contents import Content
from billhook.signing.search.keys import CandidateKey
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, StandardWebhooks
from billhook.signing.template import SignatureTemplate

_DEDUPE_ONLY: Final = {"replay_protection": "dedupe-only"}
_VERSION: Final = re.compile(r"v[0-9]{1,2}[a-z]?")
_EPOCH: Final = datetime(1970, 1, 2, tzinfo=UTC)
_NONE: Final = Part("", "")
Match: TypeAlias = tuple[Content, CandidateKey, SignatureText]
"""A content, and the key whose signature of it is a text of the request."""


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
    if key.algorithm not in get_args(AlgorithmName):
        verified = " and ".join(map(str.upper, get_args(HmacName)))
        text = f"{part.header} is the {key.algorithm.upper()} of {fits}: billhook verifies {verified}"
        return NearMiss("algorithm", f"{text}, if the sender lets one choose")
    description = f"{part.header} is the {key.algorithm} of {fits}"
    if encoding == BASE64URL:
        text = f"{description}, in base64url or without padding, which no scheme of billhook reads"
        return NearMiss("template", text)
    signed_at = content.parts.get("timestamp", _NONE).moment
    event_type = "".join(each.text for each in request.values["type"])
    why: Exception | None = None
    for preference, (kind, arguments, secret, change) in enumerate(_schemes(match)):
        try:
            scheme = kind(**arguments)
            keys, now = scheme.load([secret]), signed_at or _EPOCH
            scheme.verify(
                request.headers, request.body, keys, event_type=event_type, now=now, tolerance_seconds=1
            )
        except (ConfigError, SignatureError) as error:
            why = error
            continue
        # `sha256=` is a prefix, whereas `v1=` begins a list, to which a rotation of keys adds a second
        # signature.
        listed = (part.entry is None) == bool(_VERSION.match(part.entry or prefix))
        rank = (key.number, preference, listed, prefix)
        return FoundScheme(
            kind.__name__, arguments, scheme, key.number, change, part.header, content.template, signed_at,
            key.algorithm == RSA_SHA256.name, rank,
        )  # fmt: skip
    return NearMiss("template", f"{description}, for which no scheme of billhook can be configured: {why}")


def _schemes(match: Match) -> list[tuple[type[Scheme], dict[str, Any], str, str]]:
    """Return what may be the scheme of a match, the best first: class, arguments, secret and its change."""
    content, key, (part, _, encoding, prefix) = match
    time, message_id = content.parts.get("timestamp", _NONE), content.parts.get("id", _NONE)
    names = ("id_header", "timestamp_header", "signature_header")
    headers = (message_id.header, time.header, part.header)
    usual = zip(names, headers, StandardWebhooks().headers, strict=True)
    own = {name: header for name, header, usual_one in usual if header.lower() != usual_one}
    # Standard Webhooks takes the given secret, or base64 of the key.
    plain, surroundings = plain_secret(key.given)
    encoded = SECRET_PREFIX + base64.b64encode(SECRET_ENCODINGS[key.encoding](key.secret)).decode()
    before = f"{key.change}, then " if key.change else ""
    what = "characters" if key.encoding == "text" else "decoded bytes"
    as_found = key.secret, key.change
    options = {
        "signature_header": part.header,
        "timestamp_header": time.header,
        "signature_prefix": prefix,
        **({} if key.algorithm == "hmac-sha256" else {"signature_algorithm": key.algorithm}),
        **_DEDUPE_ONLY,
    }
    given = {
        "content": content.template,
        "algorithm": key.algorithm,
        "encoding": encoding,
        "signature_header": part.header,
        "timestamp_header": time.header or None if time.entry is None else None,
        "id_header": message_id.header or None,
        "prefix": prefix,
        "time_format": time.time_format,
        "signature_entry": part.entry,
        "time_entry": time.entry,
        "entry_separator": part.separator,
        "sign_digest": content.digest,
        "secret_encoding": key.encoding,
        "replay_protection": "dedupe-only" if time.moment is None else None,
    }
    defaults: dict[str, Any] = SignatureTemplate.__init__.__kwdefaults__ or {}
    needed = {name: value for name, value in given.items() if name == "content" or value != defaults[name]}
    return [
        (StandardWebhooks, own, plain, f"leave out {surroundings}" if surroundings else ""),
        (StandardWebhooks, own, encoded, f"{before}write it as whsec_ and the base64 of its {what}"),
        (StandardWebhooks, own, *as_found),
        *(
            (kind, {name: options[own] for own, name in kind.options.items() if own in options}, *as_found)
            for kind in SCHEMES.values()
            if kind.options
        ),
        (SignatureTemplate, needed, *as_found),
    ]


def find_tokens(request: CapturedRequest, secrets: Sequence[str]) -> Iterator[FoundScheme | NearMiss]:
    """Yield the scheme of each JSON Web Token about the body, expired or not, or why there is none."""
    text = request.body.decode("utf-8", "replace")
    forms = {hashlib.sha256(request.body).hexdigest(): "sha256", text: "body"}
    for header, value in request.headers.items():
        try:
            jose_header, claims, _, _ = read_token(value, header)
        except SignatureMalformed:
            continue
        if not (isinstance(jose_header.get("alg"), str) and claims):
            continue
        about = [name for name, each in claims.items() if isinstance(each, str) and each in forms]
        if not about:
            yield NearMiss(
                "secret", f"{header} is a token, and none of its claims is the body or its SHA-256"
            )
            continue
        arguments: dict[str, Any] = {"header": header, "algorithm": jose_header["alg"], "claim": about[0]}
        arguments["claim_holds"] = forms[str(claims[about[0]])]
        arguments |= _DEDUPE_ONLY if claims.get("iat") is None else {}
        try:
            scheme = BodyJWT(**arguments)
        except (ConfigError, MissingExtra) as error:
            yield NearMiss("secret", f"{header} is a token about the body: {error}")
            continue
        for number, secret in enumerate(secrets, 1):
            with suppress(ConfigError, SignatureError):
                signed = scheme.read(request.headers, request.body, "")
                if scheme.load([secret]).accept(signed.content, signed.signatures, None):
                    yield FoundScheme(
                        "BodyJWT", arguments, scheme, number, "", header,
                        f"a token with the claim {about[0]!r}", signed.signed_at, "-----BEGIN" in secret,
                    )  # fmt: skip
                    break
        else:
            yield NearMiss("secret", f"{header} is a token about the body, and no secret given verifies it")
