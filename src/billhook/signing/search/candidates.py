"""Generate what the sender of a captured request may have signed, and the keys it may have signed with.

A content is the body with any of time, id, type and path, in any order: a template that is rendered with what
the request has. Some of the templates are not allowed in a receiver, which is checked when one of them fits.
A key is a secret as it is, decoded, or with a prefix too many or too few.

For billhook.signing.search only: the comparisons do not take constant time, which is harmless because the
operator who runs the search has the secret. A receiver must not use them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import permutations, product
from typing import Final, NamedTuple, get_args

from billhook.errors import ConfigError, SignatureMalformed
from billhook.signing import algorithms
from billhook.signing.algorithms import SECRET_ENCODINGS, Ed25519, RsaSha256, SecretEncoding, digest_of
from billhook.signing.content_template import FIELDS
from billhook.signing.parsing import MAX_HEADER_BYTES, TIME_FORMATS, Encoding, TimeFormatName, read_signature
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, URL_SAFE

# --- the request ----------------------------------------------------------------------------------

BASE64URL: Final = "base64url"
"""An encoding that the search recognises, although no scheme can be configured for it."""
HMAC_LENGTHS: Final = {"sha256": 32, "sha1": 20, "sha384": 48, "sha512": 64}
"""Bytes of an HMAC by its hash function; those that no scheme of billhook has are recognised all the same."""
SIGNATURE_LENGTHS: Final = (32, 64, 256, 384, 512)
"""Of HMAC-SHA256, ed25519 and HMAC-SHA512, and RSA with 2048, 3072 and 4096 bits."""
MAX_TIMES: Final = 4
MAX_IDS: Final = 3
_YEARS: Final = range(2000, 2100)
"""Numbers that would be times outside of these years, such as a length, are not tried as times."""
_ENTRY: Final = re.compile(r"([A-Za-z0-9_-]{1,16})=(.*)", re.DOTALL)
_PREFIX: Final = re.compile(r"(?:(?! )[ -~]{0,39}(?![A-Za-z0-9])[ -~])?")
"""A prefix does not end in a letter or digit: what follows would be the end of a longer encoded text."""
_ID: Final = re.compile(r"[ -+\-/-~]{1,63}(?<!=)")
"""Longer texts are signatures, tokens or cookies, and what ends in = is base64."""
_NO_ID: Final = re.compile(
    r"accept.*|authorization|cache-control|connection|content-.*|cookie|date|expect|forwarded|host|keep-alive"
    r"|origin|pragma|referer|te|traceparent|tracestate|transfer-encoding|upgrade|user-agent|via"
    r"|x-forwarded-.*|x-real-ip|x-webhook-type"
)
"""Headers that clients and proxies add by themselves: none of them holds a message id."""


class Part(NamedTuple):
    """The text of a header, a word of it, or the value of an `entry` in a list of name=value.

    If it may be the time of signing, `moment` is that time, written in `time_format`.
    """

    header: str
    text: str
    entry: str | None = None
    separator: str = ","
    time_format: TimeFormatName = "unix"
    moment: datetime | None = None

    @property
    def is_date(self) -> bool:
        """Whether the header is Date, which an HTTP library may have added."""
        return self.header.lower() == "date"


class SignatureText(NamedTuple):
    """A part that decodes as a signature after its `prefix`; `encoding` may also be BASE64URL."""

    part: Part
    raw: bytes
    encoding: str
    prefix: str


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request as captured, its headers as they were spelt, with what may be its signatures.

    `values` has for each field of a template the parts that may be its value, the likely ones first.
    """

    headers: Mapping[str, str]
    body: bytes
    signatures: Sequence[SignatureText]
    values: Mapping[str, Sequence[Part]]


def read_request(headers: Mapping[str, str], body: bytes, target: str, type_header: str) -> CapturedRequest:
    """Find the signatures, times, ids and the type among `headers`."""
    parts = list(_parts(headers))
    # Times in an entry beside the signature come first: schemes with such an entry sign it.
    times = sorted(_times(parts), key=lambda part: (part.entry is None, part.is_date))[:MAX_TIMES]
    taken = {part.text for part in times}
    ids = [
        Part(name, text)
        for name, text in headers.items()
        if _ID.fullmatch(text) and not _NO_ID.fullmatch(name.lower()) and text not in taken
    ]
    ids.sort(key=lambda part: _id_rank(part.header.lower()))
    types = [Part(name, text) for name, text in headers.items() if name.lower() == type_header.lower()]
    values = {"timestamp": times, "id": ids[:MAX_IDS], "type": types[:1], "path": [Part("", target)]}
    return CapturedRequest(headers, body, list(_signatures(parts)), values)


def _id_rank(header: str) -> tuple[bool, bool, bool]:
    # The id of a request is often a proxy's.
    return not header.endswith("id"), "request" in header, "webhook" not in header


def _parts(headers: Mapping[str, str]) -> Iterator[Part]:
    for name, value in headers.items():
        if not value.isascii() or len(value) > MAX_HEADER_BYTES:
            continue
        separator = ";" if ";" in value else ","
        entries = [_ENTRY.fullmatch(entry) for entry in value.split(separator)]
        if all(entries):
            yield from (Part(name, entry[2], entry[1], separator) for entry in entries if entry)
        yield Part(name, value)
        # Words that are too short for a signature are left out: a header may have thousands of them.
        words = value.split(" ") if " " in value else ()
        yield from (Part(name, word) for word in words if len(word) > min(HMAC_LENGTHS.values()))


def _times(parts: Sequence[Part]) -> Iterator[Part]:
    for part, time_format in product(parts, TIME_FORMATS.values()):
        with suppress(SignatureMalformed):
            moment = time_format.read(part.text, part.header)
            if moment.year in _YEARS:
                yield part._replace(time_format=time_format.name, moment=moment)


def _signatures(parts: Sequence[Part]) -> Iterator[SignatureText]:
    """Yield what the end of each part decodes to, if that has the length of a signature."""
    lengths = {*HMAC_LENGTHS.values(), *SIGNATURE_LENGTHS}
    for part, length, encoding in product(parts, lengths, get_args(Encoding)):
        text, size = part.text, 2 * length
        if encoding == "base64":
            text, size = text.rstrip("="), -(-length * 4 // 3)
        prefix, encoded = text[:-size], text[-size:]
        if encoding == "base64":
            encoded = encoded.translate(URL_SAFE) + "=" * (-size % 4)
        with suppress(SignatureMalformed):
            raw = read_signature(encoded, encoding, length, "")
            as_read = encoding if part.text == prefix + encoded else BASE64URL
            if _PREFIX.fullmatch(prefix):
                yield SignatureText(part, raw, as_read, prefix)


# --- contents -----------------------------------------------------------------------------------------

KNOWN: Final = (
    "{body}",
    "{timestamp}.{body}",
    "{id}.{timestamp}.{body}",
    "{timestamp}:{body}",
    "{timestamp}{body}",
    "{timestamp}\n{body}",
    "v0:{timestamp}:{body}",
    "v1:{timestamp}:{body}",
    "{timestamp}.{type}.{body}",
    "{id}.{body}",
    "{body}{timestamp}",
    "{body}.{timestamp}",
)
"""The contents of known senders, which are tried first."""
SEPARATORS: Final = (".", ":", "\n", "|", "", "-", ",", ";", "_", "/", "~", " ", "&", "+", "#", "\r\n")
_MIXED: Final = (".", ":", "|", "~")


class Content(NamedTuple):
    """Bytes that may have been signed; `parts` are the values of the template's fields.

    With `digest`, the bytes are the SHA-256 of the rendered template.
    """

    template: str
    data: bytes
    parts: Mapping[str, Part]
    digest: bool


def uniform_templates(
    separators: Sequence[str] = SEPARATORS, versions: int = 3, fields: Sequence[str] = FIELDS
) -> Iterator[str]:
    """Yield every order of the fields with one separator between all of them, also after a version."""
    for order, separator in product(_orders(fields), separators):
        joined = separator.join(order)
        yield joined
        for number in range(versions):
            yield f"v{number}:{joined}"
            yield f"v{number}{separator}{joined}"


def url_templates(request: CapturedRequest) -> Iterator[str]:
    """Yield the request's URL before the body, as Square signs it: a constant text for each endpoint."""
    headers = {name.lower(): text for name, text in request.headers.items()}
    (path,) = request.values["path"]
    for scheme, header in product(("https", "http"), ("x-forwarded-host", "host")):
        if host := headers.get(header):
            yield f"{scheme}://{host}{path.text}{{body}}"


def mixed_templates(start: str) -> Iterator[str]:
    """Yield every order of the fields behind `start` with any of the usual separators between two of them.

    Each comes once as it is, and once with a full stop behind it.
    """
    for order in _orders(FIELDS):
        for end, *between in product(("", "."), *[_MIXED] * (len(order) - 1)):
            yield start + "".join(map("".join, zip(order, [*between, end], strict=True)))


def _orders(fields: Sequence[str]) -> list[list[str]]:
    """Return the placeholders of the body and any of the other fields in every order, the shortest first."""
    orders = [order for count in range(len(fields)) for order in permutations(fields, count + 1)]
    return [[f"{{{name}}}" for name in order] for order in orders if "body" in order]


def contents(templates: Iterable[str], request: CapturedRequest) -> Iterator[Content]:
    """Render each template with each value of its fields; skip it if the request has none for a field."""
    for template in dict.fromkeys(templates):
        fields = [name for name in request.values if f"{{{name}}}" in template]
        for chosen in product(*[request.values[name] for name in fields]):
            head, parts = template, dict(zip(fields, chosen, strict=True))
            for name, part in parts.items():
                head = head.replace(f"{{{name}}}", part.text)
            data = head.encode().replace(b"{body}", request.body)
            yield Content(template, data, parts, digest=False)
            yield Content(template, hashlib.sha256(data).digest(), parts, digest=True)


# --- bodies before a proxy changed them ---------------------------------------------------------------

MAX_BYTES: Final = 16 * 1024 * 1024
"""The size up to which a body is decompressed."""
MAX_KEYS: Final = 6
"""The number of keys of a JSON object up to which every order of them is tried."""
_LAYOUTS: Final = (
    ("compact JSON", (",", ":"), None),
    ("JSON with a space after each comma and colon", (", ", ": "), None),
    ("JSON indented by 2 spaces", (",", ": "), "  "),
    ("JSON indented by 4 spaces", (",", ": "), "    "),
    ("JSON indented by tabs", (",", ": "), "\t"),
)
"""Name, separators of items and keys, and indentation, as common JSON writers have them."""


def earlier_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield bodies that may have been changed into this one on the way, each after a description of that.

    The changes are in white space, line ends, a byte order mark, compression, and the layout of JSON.
    """
    unix = body.replace(b"\r\n", b"\n")
    yield "the line break at its end was removed", body + b"\n"
    yield "the line break at its end was removed", body + b"\r\n"
    yield "white space was added at its end", body.rstrip()
    yield "white space was added around it", body.strip()
    yield "its line ends were changed from LF to CRLF", unix
    yield "its line ends were changed from CRLF to LF", unix.replace(b"\n", b"\r\n")
    yield "a byte order mark was added", body.removeprefix(b"\xef\xbb\xbf")
    yield "its byte order mark was removed", b"\xef\xbb\xbf" + body
    with suppress(zlib.error):
        yield "it was compressed", zlib.decompressobj(31).decompress(body, MAX_BYTES)
    # Numbers keep their spelling, as texts after a NUL: 12.50 must not become 12.5.
    with suppress(ValueError, RecursionError):
        yield from _rewritten(body, json.loads(body, parse_int="\0{}".format, parse_float="\0{}".format))


def _rewritten(body: bytes, value: object) -> Iterator[tuple[str, bytes]]:
    """Yield the layouts of the JSON value that a body holds."""
    escaped = (True, False) if b"\\u" in body or not body.isascii() else (True,)
    slashed = (False, True) if b"/" in body else (False,)
    for layout, ordered, ascii_only, slashes in product(_LAYOUTS, (False, True), escaped, slashed):
        name, separators, indent = layout
        text = json.dumps(
            value, ensure_ascii=ascii_only, indent=indent, separators=separators, sort_keys=ordered
        )
        description = f"it was JSON that something wrote anew; the sender signed {name}"
        description += ", its keys in alphabetical order" if ordered else ""
        description += ", with letters beyond ASCII as they are" if not ascii_only else ""
        description += r", with \/ for /" if slashes else ""
        signed = _without_marks(text.replace("/", r"\/") if slashes else text)
        yield description, signed
        yield f"{description}, with a line break at its end", signed + b"\n"
    if isinstance(value, dict) and len(value) <= MAX_KEYS and list(value) == sorted(value):
        for (name, separators, _), order in product(_LAYOUTS[:2], permutations(value.items())):
            change = f"something put its keys into alphabetical order; the sender signed {name}"
            yield change, _without_marks(json.dumps(dict(order), separators=separators))


def _without_marks(text: str) -> bytes:
    # A lone surrogate can only come from an escape such as \ud800; encoding it must not raise.
    return re.sub(r'"\\u0000([^"]*)"', r"\1", text).encode("utf-8", "surrogatepass")


# --- keys ---------------------------------------------------------------------------------------------

_KEY_PREFIX: Final = re.compile(r"[A-Za-z]{2,8}_(?=.)")


@dataclass(frozen=True, slots=True)
class CandidateKey:
    """One reading of one secret; `number` is the position of the secret in its list, from 1.

    `signatures.get(compute(content))` is the captured signature of a content, or None. A scheme has to be
    configured with `secret` and `encoding`; `change` says how that differs from the given secret, "" if it
    does not.
    """

    number: int
    given: str = field(repr=False)
    algorithm: str
    secret: str = field(repr=False)
    encoding: SecretEncoding
    change: str
    signatures: Mapping[bytes, bytes] = field(repr=False)
    compute: Callable[[bytes], bytes] = field(repr=False)


def key_forms(number: int, given: str, captured: Collection[bytes]) -> Iterator[CandidateKey]:
    """Yield the readings of a secret with which one of the `captured` signatures could have been made.

    Raises ConfigError for a public key that is unusable.
    """
    plain, surroundings = plain_secret(given)
    leave = f"leave out {surroundings}" if surroundings else ""
    for algorithm, text, encoding, change in _readings(plain):
        try:
            signatures, compute = _signing(algorithm, text, encoding, captured)
        except ConfigError:
            if algorithm.startswith("hmac") or change:  # it is a key of another kind
                continue
            raise
        if signatures:
            changes = ", and ".join(filter(None, (leave, change)))
            yield CandidateKey(number, given, algorithm, text, encoding, changes, signatures, compute)


def _readings(secret: str) -> Iterator[tuple[str, str, SecretEncoding, str]]:
    """Yield algorithm, spelling and encoding of each possible reading, and how to change the secret."""
    write_public = "write it as whpk_ and the base64 of its"
    if secret.lstrip().startswith("-----BEGIN"):
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        public = algorithms.pem_public_key(secret)
        if isinstance(public, Ed25519PublicKey):
            yield Ed25519.name, _whpk(public.public_bytes_raw()), "text", f"{write_public} last 32 bytes"
        elif not isinstance(public, EllipticCurvePublicKey):  # such a key is for tokens alone
            yield RsaSha256.name, secret, "text", ""
        return
    if secret.startswith(algorithms.PUBLIC_PREFIX):
        yield Ed25519.name, secret, "text", ""
    for decode in (SECRET_ENCODINGS["hex"], SECRET_ENCODINGS["base64"]):
        with suppress(ConfigError):
            yield Ed25519.name, _whpk(decode(secret)), "text", f"{write_public} 32 bytes"
    prefix = _KEY_PREFIX.match(secret)
    bare, leave = (secret[prefix.end() :], f"leave out its prefix {prefix[0]}") if prefix else (secret, "")
    other = (bare, leave) if prefix else (SECRET_PREFIX + secret, f"write {SECRET_PREFIX} before it")
    shared: list[tuple[str, SecretEncoding, str]] = [
        (secret, "text", ""), (other[0], "text", other[1]), (bare, "hex", leave), (bare, "base64", leave),
    ]  # fmt: skip
    if set("-_") & set(bare):
        change = "write + for each - in it, and / for each _"
        shared.append((bare.translate(URL_SAFE), "base64", f"{leave}, and {change}" if leave else change))
    for (text, encoding, change), digest in product(shared, HMAC_LENGTHS):
        yield f"hmac-{digest}", text, encoding, change


def _whpk(raw: bytes) -> str:
    return algorithms.PUBLIC_PREFIX + base64.b64encode(raw).decode()


def _signing(
    algorithm: str, text: str, encoding: SecretEncoding, captured: Collection[bytes]
) -> tuple[Mapping[bytes, bytes], Callable[[bytes], bytes]]:
    """Return CandidateKey.signatures, empty if none can be the key's, and CandidateKey.compute."""
    if algorithm == Ed25519.name:
        key, own = Ed25519().load(text), {raw: raw for raw in captured if len(raw) == 64}
        return own, lambda content: next((raw for raw in own if key.matches(content, [raw])), b"")
    if algorithm == RsaSha256.name:
        from cryptography.exceptions import InvalidSignature

        # An RSA signature shows what it signs, so no content has to be tried with the key.
        public, digests = algorithms.rsa_public_key(text), {}
        for raw in captured:
            with suppress(InvalidSignature):
                digests[public.recover_data_from_signature(raw, *algorithms.pkcs1_sha256())] = raw
        return digests, lambda content: hashlib.sha256(content).digest()
    digest, material = digest_of(algorithm), SECRET_ENCODINGS[encoding](text)
    own = {raw: raw for raw in captured if len(raw) == HMAC_LENGTHS[digest]}
    return own, lambda content: hmac.digest(material, content, digest)
