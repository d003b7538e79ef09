"""Find out how a captured request was signed, given the secret: for `billhook doctor signature`.

A scheme is found only if it verifies the request, so nothing is guessed: contents and keys are tried until a
digest is one of the texts in the headers, and then the scheme itself is asked. Where none fits, the same is
tried with what usually goes wrong on the way. Nothing here reads a clock or a file, and the work has a limit
for every request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from billhook.errors import ConfigError
from billhook.signing.search.captured import CapturedRequest, SignatureText, TimeText, signature_texts
from billhook.signing.search.configured import FoundScheme, Match, configure, find_tokens, is_standard
from billhook.signing.search.contents import (
    KNOWN,
    CandidateContent,
    contents,
    earlier_bodies,
    mixed_templates,
    uniform_templates,
)
from billhook.signing.search.key_forms import HMAC_COST_BYTES, CandidateKey, hmac_form, key_forms
from billhook.signing.standard_webhooks import VERSIONS

__all__ = ["NearMiss", "SearchResult", "search"]

Kind = Literal["algorithm", "body", "clock", "content", "header", "key", "secret", "template"]

BUDGET_BYTES: Final = 8_000_000_000
"""The work of one search, in bytes hashed: some seconds."""
CLOCK_SECONDS: Final = 86_400
"""A request that was signed longer before its capture is an old one: no clock is so wrong."""
LIKELY_BODIES: Final = 60
"""How many earlier bodies are tried with unusual templates too."""
LOST_TIME_SECONDS: Final = 900
"""How far from its capture a request may have been signed whose time is missing."""
_LENGTHS: Final = (32, 64, 256, 384, 512)
"""Of HMAC-SHA256, ed25519, and RSA with 2048, 3072 and 4096 bits."""
_OTHER_DIGESTS: Final = {"sha1": 20, "sha384": 48, "sha512": 64}
_PLAIN_SEPARATORS: Final = (".", ":", "\n")


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Something that is wrong, in a sentence; `scheme` is the one that fits without it, if that is known."""

    kind: Kind
    explanation: str
    scheme: FoundScheme | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found, the best first; and what is wrong.

    `signature_headers` hold a text that has the form of a signature; `tried` counts the contents.
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
    captured_at: datetime | None = None,
    tolerance_seconds: int = 300,
) -> SearchResult:
    """Find the schemes that verify a request with one of `secrets`, or else what comes near.

    `headers` are by their names as spelt, lines of one name joined by a comma; `captured_at` is aware.
    """
    finder = _Search(CapturedRequest.of(headers, body), secrets, captured_at)
    schemes = _ranked(finder.run())
    misses = [*finder.misses, *_about_the_best(schemes, captured_at, tolerance_seconds)]
    names = tuple(dict.fromkeys(text.header for text in finder.texts))
    return SearchResult(tuple(schemes), tuple(misses), names, finder.tried)


def _ranked(found: Iterable[FoundScheme]) -> list[FoundScheme]:
    """Return one scheme for each header and content, those that need the least configuration first."""
    best: dict[tuple[str, str, int], FoundScheme] = {}
    for scheme in sorted(found, key=lambda scheme: scheme.rank):
        best.setdefault((scheme.signature_header.lower(), scheme.content, scheme.secret_number), scheme)
    return list(best.values())


def _about_the_best(
    schemes: Sequence[FoundScheme], captured_at: datetime | None, tolerance_seconds: int
) -> Iterator[NearMiss]:
    for scheme in schemes[:1]:
        if scheme.secret_number > 1:
            text = f"secret {scheme.secret_number} of those given made the signature: an older one"
            yield NearMiss("secret", f"{text}, so the sender does not use the newest yet", scheme)
        if scheme.signed_at is None or captured_at is None:
            continue
        seconds = (scheme.signed_at - captured_at).total_seconds()
        if tolerance_seconds < abs(seconds) <= CLOCK_SECONDS:
            yield NearMiss("clock", _about_the_clock(seconds, tolerance_seconds), scheme)


def _about_the_clock(seconds: float, tolerance_seconds: int) -> str:
    where = "after" if seconds > 0 else "before"
    text = f"it was signed {abs(seconds):.0f} s {where} its capture, and {tolerance_seconds} s are allowed"
    hours = round(seconds / 3_600)
    if hours and abs(seconds - hours * 3_600) < tolerance_seconds:
        return f"{text}: {abs(hours)} h, as with a time zone that one side forgets"
    return f"{text}: a clock is wrong (`timedatectl` shows this machine's), or the request was late"


class _Search:
    """One search: the texts and keys that all steps share, the work that is left, and what was noticed."""

    def __init__(
        self, request: CapturedRequest, secrets: Sequence[str], captured_at: datetime | None
    ) -> None:
        self.misses: list[NearMiss] = []
        self.tried = 0
        self._request = request
        self._captured_at = captured_at
        self._secrets = secrets
        self._refused = False
        self._left_bytes = BUDGET_BYTES
        self.texts = list(signature_texts(request.headers, _LENGTHS))
        self._keys = list(self._key_forms())

    def _key_forms(self) -> Iterator[CandidateKey]:
        by_length: dict[int, set[bytes]] = {}
        for text in self.texts:
            by_length.setdefault(len(text.raw), set()).add(text.raw)
        for number, secret in enumerate(self._secrets, 1):
            try:
                yield from key_forms(number, secret, by_length)
            except ConfigError as error:
                self.misses.append(NearMiss("key", f"secret {number} cannot be used: {error}"))

    def run(self) -> list[FoundScheme]:
        """Return what fits; if nothing does, the first explanation that is found is in `misses`."""
        request, body = self._request, self._request.body
        for token in find_tokens(request, self._secrets):
            if isinstance(token, FoundScheme):
                return [token]
            self._add_explanation("secret", token)
        found = self._fitting(contents(KNOWN, request, body))
        if not (found or self._refused):
            found = self._fitting(contents(uniform_templates(), request, body), thorough=False)
        if found or self._refused or self._try_explanations():
            return found
        found = self._fitting(contents(self._mixed(), self._likely(), body), thorough=False)
        if not found:
            self._explain_absence()
        return found

    def _likely(self) -> CapturedRequest:
        """Return the request with the likeliest of its times and ids alone."""
        return replace(self._request, times=self._request.times[:1], ids=self._request.ids[:1])

    def _mixed(self) -> Iterator[str]:
        """Yield templates of all that the request has: first without its id, which a proxy may have added."""
        fields = [name for name, there in self._fields().items() if there]
        without = [name for name in fields if name != "id"]
        yield from mixed_templates(without)
        if without != fields:
            yield from mixed_templates(fields)

    def _fields(self) -> dict[str, bool]:
        request = self._request
        typed = request.event_type is not None
        return {"id": bool(request.ids), "timestamp": bool(request.times), "type": typed, "body": True}

    def _fitting(self, rendered: Iterable[CandidateContent], *, thorough: bool = True) -> list[FoundScheme]:
        """Return the schemes that fit; note a content that fits and that no scheme can be configured for."""
        found: list[FoundScheme] = []
        refused: list[str] = []
        for match in self._matches(rendered, self._keys, thorough=thorough):
            scheme = configure(match, self._request, self._secrets, self._request.body)
            if isinstance(scheme, FoundScheme):
                found.append(scheme)
            else:
                refused.append(scheme)
        if refused and not found:
            self._refused = self._add_explanation("template", refused[0])
        return found

    def _matches(
        self, rendered: Iterable[CandidateContent], keys: Sequence[CandidateKey], *, thorough: bool = True
    ) -> Iterator[Match]:
        """Yield what fits. `thorough`: expensive keys too are asked whether the digest is signed."""
        keys = [key for key in keys if key.able]
        cheap = [key for key in keys if thorough or key.cost_bytes <= HMAC_COST_BYTES]
        looks = [*((False, key) for key in keys), *((True, key) for key in cheap)]
        fixed = sum(key.cost_bytes for _, key in looks)
        for content in rendered:
            self._left_bytes -= fixed + (len(keys) + 1) * len(content.data)
            if not keys or self._left_bytes < 0:
                return
            self.tried += 1
            digest = content._replace(data=hashlib.sha256(content.data).digest(), digest=True)
            for of_digest, key in looks:
                signed = digest if of_digest else content
                raw = key.matching_signature(signed.data)
                if raw is not None:
                    matches = (Match(signed, key, text) for text in self._texts_of(raw, content.time))
                    yield from filter(is_standard, matches)

    def _texts_of(self, raw: bytes, time: TimeText | None) -> list[SignatureText]:
        """Return where the signature is; a time that is an entry belongs to its own header and list."""
        entry = None if time is None or time.entry is None else (time.header, time.separator)
        return [
            text
            for text in self.texts
            if text.raw == raw
            and (entry is None or (entry == (text.header, text.separator) and text.entry is not None))
        ]

    def _add_explanation(self, kind: Kind, text: str, scheme: FoundScheme | None = None) -> bool:
        self.misses.append(NearMiss(kind, text, scheme))
        return True

    # --- what nearly fits -------------------------------------------------------------------------

    def _try_explanations(self) -> bool:
        """Try what usually goes wrong; the first that explains the request is noted."""
        return self._changed_body() or self._lost_time() or self._other_digest()

    def _changed_body(self) -> bool:
        many = (*KNOWN, *uniform_templates(_PLAIN_SEPARATORS, versions=()))
        for number, (change, earlier) in enumerate(earlier_bodies(self._request.body)):
            templates = many if number < LIKELY_BODIES else KNOWN
            for match in self._matches(contents(templates, self._request, earlier), self._keys):
                scheme = configure(match, self._request, self._secrets, earlier)
                if isinstance(scheme, FoundScheme):
                    text = f"the signature fits another body: {change}"
                    return self._add_explanation(
                        "body", f"{text}. Have the proxy pass the body on as it came", scheme
                    )
        return False

    def _lost_time(self) -> bool:
        """Try each second around the capture if no header has a time: its header may have been removed."""
        request, at = self._request, self._captured_at
        if at is None or any(time.header.lower() != "date" for time in request.times):
            return False
        first = int(at.timestamp()) - LOST_TIME_SECONDS
        moments = [at + timedelta(seconds=n) for n in range(-LOST_TIME_SECONDS, LOST_TIME_SECONDS + 1)]
        times = tuple(
            TimeText("", str(first + number), "unix", moment) for number, moment in enumerate(moments)
        )
        templates = [template for template in KNOWN if "{timestamp}" in template]
        rendered = contents(templates, replace(request, times=times), request.body)
        keys = [key for key in self._keys if key.algorithm == "hmac-sha256"]
        for match in self._matches(rendered, keys):
            lost = match.content.time.text if match.content.time else ""
            text = (
                f"{match.text.header} signs {match.content.template!r} with the time {lost}, which is in no"
            )
            return self._add_explanation(
                "header", f"{text} header: a proxy on the way removed the one that has it"
            )
        return False

    def _other_digest(self) -> bool:
        """Try the digests that no scheme here has."""
        for digest, length in _OTHER_DIGESTS.items():
            texts = list(signature_texts(self._request.headers, [length]))
            raws = {text.raw for text in texts}
            hmacs = [key for key in self._keys if key.algorithm == "hmac-sha256"] if raws else []
            keys = [
                hmac_form(key.number, key.material, key.secret, key.encoding, key.change, raws, digest)
                for key in hmacs
            ]
            for content in contents([*KNOWN, *uniform_templates()], self._request, self._request.body):
                for key in keys:
                    raw = key.matching_signature(content.data)
                    header = next((text.header for text in texts if text.raw == raw), None)
                    if header is not None:
                        text = f"{header} is the HMAC-{digest.upper()} of {content.template!r}"
                        text += f" by secret {key.number}: billhook verifies HMAC-SHA256"
                        return self._add_explanation("algorithm", f"{text}, if the sender lets one choose it")
        return False

    def _explain_absence(self) -> None:
        """Note what is known of a request that nothing explains."""
        if self.misses and (not self._keys or self.misses[-1].kind != "key"):
            return
        names = ", ".join(dict.fromkeys(text.header for text in self.texts))
        proven = [key.number for key in self._keys if key.algorithm == "rsa-sha256" and key.able]
        fields = self._fields()
        missing = [name for name in ("id", "timestamp") if not fields[name]]
        if not self.texts:
            text = "no header looks like a signature: a proxy on the way removed it, or the sender"
            sent = ", ".join(self._request.headers) or "no headers"
            self._add_explanation("header", f"{text} does not sign. The request has {sent}")
        elif proven:
            text = (
                f"{names} was made with the private key of secret {proven[0]}, over other bytes than any of"
            )
            changed = "the body or a header was changed, or the sender signs something unusual"
            self._add_explanation("content", f"{text} {self.tried} contents tried: {changed}")
        elif missing and any(text.version in VERSIONS for text in self.texts):
            text = (
                f"{names} has the form of Standard Webhooks, and no header has their {' and '.join(missing)}"
            )
            self._add_explanation("header", f"{text}: a proxy on the way removed or changed it")
        else:
            text = (
                f"none of the secrets made the signature in {names}, over any of {self.tried} contents tried"
            )
            self._add_explanation(
                "secret", f"{text}: it is another endpoint's secret, or the body or a header was changed"
            )
