"""Redactor: text of the service without the secrets of one client."""

from __future__ import annotations

import re

from pydantic import SecretStr

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
        self._passing: tuple[SecretStr, ...] = ()

    def learn(self, secret: SecretStr) -> None:
        """Add an access token. The oldest are dropped; they have expired long before."""
        self._passing = (*self._passing[-_KEPT + 1 :], secret)

    def clean(self, text: str, limit: int) -> str:
        """Return `text` without secrets and control characters, cut to `limit` characters."""
        secrets = [secret.get_secret_value() for secret in (*self._lasting, *self._passing)]
        # The longest first: a secret may contain another one.
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= (_LEAST_LETTERS if secret.isalpha() else _LEAST_CHARACTERS):
                text = re.sub("".join(map(_spelling, secret)), HIDDEN, text)
        # Cut after the secrets are removed, or half a secret could remain; and before the slow part below.
        text = _JWT.sub(HIDDEN, text)[: limit * _MOST_UNSEEN]
        shown = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _spelling(character: str) -> str:
    """Return a pattern of a character as it is, or escaped by JSON, HTML or URLs: `/`, `\\/`, `%2F`."""
    if character in _NEVER_ESCAPED:
        return re.escape(character)
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(character):02x}")
    entity = rf"&(?:#0*{ord(character)}|#[xX]0*{code}|[A-Za-z]+);"
    return rf"(?:\\?{re.escape(character)}|%{code}|\\u00{code}|{entity})"
