"""Find out how a captured request was signed, given the secret: for `billhook doctor signature`.

The search signs candidate contents with candidate keys until a signature is a text in the headers. The scheme
for that match then has to verify the request, so no scheme is found by guessing. If no scheme fits, the
search tries common mistakes, such as a changed body. It reads no clock and no file, and its work is limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, get_args

from billhook.errors import ConfigError
from billhook.signing.algorithms import ED25519, RSA_SHA256, HmacName
from billhook.signing.content_template import FIELDS
from billhook.signing.search.captured import SIGNATURE_LENGTHS, CapturedRequest, Part, read_request
from billhook.signing.search.contents import (
    KNOWN,
    contents,
    mixed_templates,
    uniform_templates,
    url_templates,
)
from billhook.signing.search.earlier_bodies import earlier_bodies
from billhook.signing.search.found import FoundScheme, Match, NearMiss, configure, find_tokens
from billhook.signing.search.keys import CandidateKey, key_forms
from billhook.signing.source import TYPE_HEADER
from billhook.signing.standard_webhooks import VERSIONS

BUDGET_BYTES: Final = 8_000_000_000
"""The limit of one search, in bytes hashed: some seconds of work."""
LOOK_BYTES: Final = 3_000
ED25519_BYTES: Final = 110_000
"""The cost of trying one content with one key, in addition to hashing it, as bytes hashed in the same time.
One verification of an ed25519 signature takes OpenSSL 0.1 ms, which is nearly all of the time of a search.
"""
TOLERANCE_SECONDS: Final = 300
CLOCK_SECONDS: Final = 86_400
"""A request that was signed longer ago is an old one; a wrong clock is no explanation then."""
LIKELY_BODIES: Final = 60
"""How many of the possible earlier bodies are also tried with less common templates."""
LOST_TIME_SECONDS: Final = 900
"""If a request has no time, each second is tried that is no further than this from its capture."""
_STANDARD_FORMS: Final = frozenset((f"{version},", "base64") for version in VERSIONS)
_PLAIN: Final = tuple(uniform_templates((".", ":", "\n"), versions=0))
_WITH_PATH: Final = tuple(uniform_templates((".", ":", "\n", ""), 0, (*FIELDS, "path")))
"""No scheme of billhook signs the path: such a template only explains a request."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The schemes found, the best first, and what is wrong.

    `signature_headers` are headers that may contain a signature; `tried` is the number of contents tried.
    """

    schemes: tuple[FoundScheme, ...]
    near_misses: tuple[NearMiss, ...]
    signature_headers: tuple[str, ...]
    tried: int


def search(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    *,
    target: str = "/",
    type_header: str = TYPE_HEADER,
    captured_at: datetime | None = None,
) -> SearchResult:
    """Find the schemes that verify a request with one of `secrets`, or else explanations.

    `headers` keep the spelling of their names, and lines of one name are joined by a comma; `captured_at` is
    aware.
    """
    finder = _Search(read_request(headers, body, target, type_header), captured_at)
    results = list(finder.results(secrets))
    misses = [each for each in results if isinstance(each, NearMiss)]
    found = [each for each in results if isinstance(each, FoundScheme)]
    # Keep the best scheme for each header, content and secret.
    best: dict[tuple[str, str, int], FoundScheme] = {}
    for each in sorted(found, key=lambda scheme: scheme.rank):
        best.setdefault((each.signature_header.lower(), each.content, each.secret_number), each)
    schemes = tuple(best.values())
    if schemes:
        misses += _about_the_best(schemes[0], captured_at)
    return SearchResult(schemes, tuple(misses), finder.signature_headers, finder.tried)


def _about_the_best(scheme: FoundScheme, captured_at: datetime | None) -> Iterator[NearMiss]:
    if scheme.secret_number > 1:
        text = f"secret {scheme.secret_number} of those given made the signature: an older one"
        yield NearMiss("secret", f"{text}, so the sender does not use the newest yet", scheme)
    if scheme.signed_at is None or captured_at is None:
        return
    seconds = (scheme.signed_at - captured_at).total_seconds()
    if TOLERANCE_SECONDS < abs(seconds) <= CLOCK_SECONDS:
        side = "after" if seconds > 0 else "before"
        text = f"it was signed {abs(seconds):.0f} s {side} its capture, and {TOLERANCE_SECONDS} s are allowed"
        hours = round(seconds / 3_600)
        why = "a clock is wrong (`timedatectl` shows this machine's), or the request was late"
        if hours and abs(seconds - hours * 3_600) < TOLERANCE_SECONDS:
            why = f"{abs(hours)} h, as with a time zone that one side forgets"
        yield NearMiss("clock", f"{text}: {why}", scheme)


class _Search:
    """One search: the keys that all steps share, and the rest of its budget."""

    def __init__(self, request: CapturedRequest, captured_at: datetime | None) -> None:
        self.tried = 0
        self._request = request
        self._captured_at = captured_at
        self._left_bytes = BUDGET_BYTES
        self._keys: list[CandidateKey] = []
        signatures = [text for text in request.signatures if len(text.raw) in SIGNATURE_LENGTHS]
        self.signature_headers = tuple(dict.fromkeys(text.part.header for text in signatures))

    def results(self, secrets: Sequence[str]) -> Iterator[FoundScheme | NearMiss]:
        """Yield what is wrong with the secrets, and all results of the first step that has any."""
        request, unusable = self._request, 0
        captured = {text.raw for text in request.signatures}
        for number, secret in enumerate(secrets, 1):
            try:
                self._keys += key_forms(number, secret, captured)
            except ConfigError as error:
                unusable += 1
                yield NearMiss("key", f"secret {number} cannot be used: {error}")
        tokens = list(find_tokens(request, secrets))
        yield from tokens
        if any(isinstance(token, FoundScheme) for token in tokens):
            return
        likely = replace(request, values={name: parts[:1] for name, parts in request.values.items()})
        starts = ("", *(f"v{number}:" for number in range(10)))
        steps = (
            self._fitting(KNOWN, request),
            self._fitting(uniform_templates(), request),
            self._fitting(url_templates(request), request),
            self._changed_body(),
            self._lost_time(),
            self._fitting(_WITH_PATH, likely),
            *(self._fitting(mixed_templates(start), likely) for start in starts),
            () if tokens or unusable == len(secrets) else self._absence(),
        )
        yield from next(filter(None, map(list, steps)), ())

    def _fitting(
        self, templates: Iterable[str], request: CapturedRequest
    ) -> Iterator[FoundScheme | NearMiss]:
        """Yield the schemes that fit, or else why no scheme can be configured for the first match."""
        results = [configure(match, request) for match in self._matches(templates, request, self._keys)]
        yield from [each for each in results if isinstance(each, FoundScheme)] or results[:1]

    def _matches(
        self, templates: Iterable[str], request: CapturedRequest, keys: Sequence[CandidateKey]
    ) -> Iterator[Match]:
        known = frozenset(KNOWN)  # quick to look up
        quick = [key for key in keys if key.algorithm != ED25519.name]
        for content in contents(templates, request) if keys else ():
            # Ed25519 takes long, so unusual contents are not tried as a digest or with a changed body.
            likely = not content.digest and request.body is self._request.body
            asked = keys if likely or content.template in known else quick
            self._left_bytes -= len(asked) * (LOOK_BYTES + len(content.data))
            self._left_bytes -= (len(asked) - len(quick)) * ED25519_BYTES
            if self._left_bytes < 0:
                return
            self.tried += not content.digest
            for key in asked:
                if raw := key.signatures.get(key.compute(content.data)):
                    yield from ((content, key, text) for text in request.signatures if text.raw == raw)

    def _changed_body(self) -> Iterator[NearMiss]:
        """Try bodies that may have been changed into this one on the way."""
        tried = {self._request.body}
        for change, earlier in earlier_bodies(self._request.body):
            if earlier in tried:
                continue
            tried.add(earlier)
            templates = (*KNOWN, *_PLAIN) if len(tried) <= LIKELY_BODIES else KNOWN
            fitting = self._fitting(templates, replace(self._request, body=earlier))
            if found := [each for each in fitting if isinstance(each, FoundScheme)]:
                best = min(found, key=lambda scheme: scheme.rank)
                text = f"the signature fits another body: {change}"
                yield NearMiss("body", f"{text}. Have the proxy pass the body on as it came", best)
                return

    def _lost_time(self) -> Iterator[NearMiss]:
        """Try each second around the capture if no header has a time, as its header may have been removed."""
        values, at = self._request.values, self._captured_at
        if at is None or any(not time.is_date for time in values["timestamp"]):
            return
        seconds = range(int(at.timestamp()) - LOST_TIME_SECONDS, int(at.timestamp()) + LOST_TIME_SECONDS + 1)
        times = [Part("", str(second), moment=at) for second in seconds]
        templates = [template for template in KNOWN if "{timestamp}" in template]
        keys = [key for key in self._keys if key.algorithm in get_args(HmacName)]
        request = replace(self._request, values={**values, "timestamp": times})
        for content, _, signature in self._matches(templates, request, keys):
            text = f"{signature.part.header} signs {content.template!r} with the time "
            text += f"{content.parts['timestamp'].text}, which is in no header"
            yield NearMiss("header", f"{text}: a proxy on the way removed the one that has it")
            return

    def _absence(self) -> Iterator[NearMiss]:
        """Yield what is known of a request for which no scheme or mistake was found."""
        request, names = self._request, ", ".join(self.signature_headers)
        proven = [key.number for key in self._keys if key.algorithm == RSA_SHA256.name]
        missing = [field for field in ("id", "timestamp") if not request.values[field]]
        if not names:
            text = "no header looks like a signature: a proxy on the way removed it, or the sender"
            sent = ", ".join(request.headers) or "no headers"
            yield NearMiss("header", f"{text} does not sign. The request has {sent}")
        elif proven:
            text = f"{names} was made with the private key of secret {proven[0]}"
            text += f", over other bytes than any of {self.tried} contents tried"
            changed = "the body or a header was changed, or the sender signs something unusual"
            yield NearMiss("content", f"{text}: {changed}")
        elif missing and any((text.prefix, text.encoding) in _STANDARD_FORMS for text in request.signatures):
            text = f"{names} has the form of Standard Webhooks, and no header has their"
            removed = "a proxy on the way removed or changed it"
            yield NearMiss("header", f"{text} {' and '.join(missing)}: {removed}")
        else:
            text = f"none of the secrets made the signature in {names}, over any of {self.tried} contents"
            other = "it is another endpoint's secret, or the body or a header was changed"
            yield NearMiss("secret", f"{text} tried: {other}")
