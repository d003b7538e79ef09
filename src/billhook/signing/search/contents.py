"""Generate what the sender of a captured request may have signed.

A content is the body with any of time, id, type and path, in any order: a template that is rendered with what
the request has. Some of the templates are not allowed in a receiver, which is checked when one of them fits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Final, NamedTuple

from billhook.signing.content_template import FIELDS
from billhook.signing.search.captured import CapturedRequest, Part

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
