"""The strict JSON of the wire, for those who import it from here."""

from billhook.wire.strict_json import MAX_DEPTH, MAX_DIGITS, dumps, in_utc, is_bounded, loads

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "dumps", "in_utc", "is_bounded", "loads"]
