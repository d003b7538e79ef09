"""Redactor: remove the client's secrets from text of the service before it is shown, and shorten it."""

from __future__ import annotations

import re
import threading

from pydantic import SecretStr

__all__ = ["Redactor"]

HIDDEN = "[hidden]"
_KEPT = 50
_MOST_UNSEEN = 20  # spaces and controls for each character that is shown, at most
_LEAST_CHARACTERS = 4  # hiding a shorter one would hide half of every text, and it keeps no secret
_LEAST_LETTERS = 8  # nor does a word such as "wrong", which the text itself may have
_NEVER_ESCAPED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,2}")


class Redactor:
    """Removes the secrets of one client, and everything that looks like a JWT, from text."""

    def __init__(self, *secrets: SecretStr) -> None:
        self._lasting = secrets
        self._passing: list[SecretStr] = []
        self._lock = threading.Lock()

    def learn(self, secret: SecretStr) -> None:
        """Add an access token. The oldest are dropped; they have expired long before."""
        with self._lock:
            self._passing = [*self._passing[-_KEPT + 1 :], secret]

    def clean(self, text: str, limit: int) -> str:
        """Return `text` without secrets and control characters, cut to `limit` characters."""
        with self._lock:
            # A copy, so that the slow part runs without the lock.
            secrets = [secret.get_secret_value() for secret in (*self._lasting, *self._passing)]
        # The longest first: a secret may contain another one.
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= (_LEAST_LETTERS if secret.isalpha() else _LEAST_CHARACTERS):
                text = re.sub(_spellings(secret), HIDDEN, text)
        # Cut after the secrets are removed, or half a secret could remain; and before the slow part below.
        text = _JWT.sub(HIDDEN, text)[: limit * _MOST_UNSEEN]
        shown = "".join(each if each.isprintable() else " " for each in text)
        return _cut(" ".join(shown.split()), limit)


def _spellings(secret: str) -> str:
    """Return a pattern of `secret` as it is, or escaped by JSON, HTML or URLs: `a/b`, `a\\/b`, `a%2Fb`."""
    return "".join(re.escape(each) if each in _NEVER_ESCAPED else _spelling(each) for each in secret)


def _spelling(character: str) -> str:
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(character):02x}")
    entity = rf"&(?:#0*{ord(character)}|#[xX]0*{code}|[A-Za-z]+);"
    return rf"(?:\\?{re.escape(character)}|%{code}|\\u00{code}|{entity})"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
