"""Forms that only their own page can send, and headers that leave a browser nothing to run or to load."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from flask import Request
from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

__all__ = [
    "HEADERS",
    "NOTICE_SECONDS",
    "TOKEN_SECONDS",
    "CsrfTokens",
    "Notice",
    "Notices",
    "is_from_own_pages",
]

TOKEN_SECONDS = 8 * 3_600
"""How long a form may be open before it is sent: a working day."""
NOTICE_SECONDS = 60
"""How long a notice waits for the page that shows it."""
_NONCE_BYTES = 16
_LONGEST_NOTICE = 1_000
"""Characters: browsers take cookies of up to 4,096 bytes."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Other sites are told nothing. With no-referrer browsers would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every page. Nothing is loaded but the style sheet and the icon, and no script runs."""


def is_from_own_pages(request: Request) -> bool:
    """Return whether a browser sent the request from a page of this origin.

    `Origin` has to name the host that the request was sent to, and `Sec-Fetch-Site`, which browsers send over
    TLS and to the own machine, has to agree. Behind a proxy the `Host` header must be passed on.
    """
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin", "")
    # Both schemes: the one that the browser used is not known behind a proxy that ends TLS. As texts, since
    # parsing raises for some of what others may send.
    own = (f"http://{request.host}", f"https://{request.host}")
    return site == "same-origin" and origin in own


class CsrfTokens:
    """Makes and checks the tokens of forms: each is signed, and bound to a visitor and a browser.

    `key` returns the secret that signs them. The browser is known by a random value in a cookie.
    """

    def __init__(self, key: Callable[[], str | bytes], purpose: str) -> None:
        self._key = key
        self._purpose = purpose

    def make(self, visitor: str, nonce: str) -> str:
        """Return a token for the forms of one page."""
        return self._serializer().dumps([visitor, nonce])

    def refusal(self, token: str, visitor: str, nonce: str) -> str | None:
        """Return why a token is refused, as a sentence for the visitor; None if it is good."""
        try:
            found = self._serializer().loads(token, max_age=TOKEN_SECONDS)
        except SignatureExpired:
            return "The form was open for too long. Load its page again, and send it then."
        except BadSignature:
            return "The form has no token of this site. Load its page again, and send it then."
        if not nonce or found != [visitor, nonce]:
            return "The form was made for another visitor. Load its page again, and send it then."
        return None

    @staticmethod
    def new_nonce() -> str:
        """Return a random value for the cookie of a browser."""
        return secrets.token_urlsafe(_NONCE_BYTES)

    def _serializer(self) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._key(), salt=f"billhook.pages.csrf.{self._purpose}")


class Notice(NamedTuple):
    """What a form did, for the page after it; `tone` is good, warn or bad."""

    text: str
    tone: str


class Notices:
    """Writes notices into cookies, and reads them: signed, so that no other page can put words there."""

    def __init__(self, key: Callable[[], str | bytes], purpose: str) -> None:
        self._key = key
        self._purpose = purpose

    def write(self, text: str, tone: str) -> str:
        """Return the value of a cookie."""
        return self._serializer().dumps([text[:_LONGEST_NOTICE], tone])

    def read(self, value: str | None) -> Notice | None:
        """Return the notice in a cookie; None without one that was written here a moment ago."""
        if value is None:
            return None
        try:
            return Notice(*self._serializer().loads(value, max_age=NOTICE_SECONDS))
        except BadSignature:
            return None

    def _serializer(self) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._key(), salt=f"billhook.pages.notice.{self._purpose}")
