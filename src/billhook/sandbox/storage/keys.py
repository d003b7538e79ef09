"""Texts that things are looked up by: what one may be, on both databases."""

from __future__ import annotations

from billhook.sandbox.limits import MAX_KEY
from billhook.sandbox.refusals import invalid_request

__all__ = ["check_key", "key_fault"]


def key_fault(text: str) -> str | None:
    """What is wrong with `text` as an alias or another id of the user's; None if nothing is."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_KEY:
        return f"has more than {MAX_KEY} characters"
    if "\0" in text:
        return "holds a NUL character"
    return None


def check_key(text: str, param: str) -> None:
    """Refuse it, if something is."""
    if fault := key_fault(text):
        raise invalid_request(f"{param} {fault}: choose another", param)
