"""JSON laid out for reading, with the digits of its numbers as they are."""

from __future__ import annotations

from billhook.wire import strict_json

__all__ = ["indented", "indented_text"]


def indented(value: object, depth: int = 0) -> str:
    """Return a value of strict JSON with each entry on a line of its own."""
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        lines = [f"{inner}{_scalar(name)}: {indented(each, depth + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{outer}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{inner}{indented(each, depth + 1)}" for each in value) + f"\n{outer}]"
    return _scalar(value)


def indented_text(body: bytes) -> str:
    """Return a JSON body laid out for reading."""
    return indented(strict_json.loads(body))


def _scalar(value: object) -> str:
    return strict_json.dumps(value).decode()
