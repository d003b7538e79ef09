"""The fingerprint of an issue: short, the same in every process, and fit for an address and a command."""

from __future__ import annotations

from hashlib import sha256

LENGTH = 12


def fingerprint(subject: str, key: str) -> str:
    """Return 12 hexadecimal digits for what is wrong with a subject, such as a handler."""
    text = f"{subject}\0{key}".encode("utf-8", "backslashreplace")
    return sha256(text).hexdigest()[:LENGTH]
