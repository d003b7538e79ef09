"""Render the bytes that are signed from a template such as "{timestamp}.{body}", which is split once.

str.format() cannot be used: a body contains braces, and need not be text.

Two different messages must never render to the same bytes, or a captured signature would be valid for a
message that the sender never signed: with "{timestamp}.{type}.{body}", what was signed for the type "A.B" and
the body "x" would also stand for the type "A" and the body "B.x". So a field before the body may not contain
the first character of the literal after it, and a field after the body not the last character of the literal
before it. A time is parsed by a closed grammar first, so it may contain that character (Orb's
"v1:{timestamp}:{body}" with colons in the time), unless a complete time followed by it can be the beginning
of a longer time. Parsed from both ends, the bytes then have one meaning only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, final

from billhook.errors import ConfigError
from billhook.signing.times import UNIX, TimeFormat

FIELDS: Final = ("id", "timestamp", "type", "body")
MAX_FIELD_CHARACTERS: Final = 256


@final
class ContentTemplate:
    """Renders the signed bytes from a template that is split once."""

    __slots__ = ("_guards", "_parts", "fields", "text")

    def __init__(self, text: str, time_format: TimeFormat = UNIX) -> None:
        """Split `text`. Raises ConfigError if it could be misread, or has a placeholder not in FIELDS."""
        # The group puts literals and placeholders in turn, beginning and ending with a literal.
        pieces = re.split(r"\{([^{}]*)\}", text)
        literals, fields = pieces[0::2], pieces[1::2]
        _check(text, literals, fields)
        before, behind = _guards(literals, fields)
        for guards, own in ((before, time_format.follows), (behind, time_format.precedes)):
            # A time is guarded by its grammar, not by the single character.
            guard = guards.pop("timestamp", None)
            if guard is not None and guard in own:
                named = "a digit" if guard.isdigit() else repr(guard)
                raise ConfigError(
                    f"content {text!r} has {named} beside {{timestamp}}, which could be a part of "
                    f"the time ({time_format.name}): put another character there"
                )
        self.text: Final = text
        self.fields: Final = frozenset(fields)
        self._guards: Final = tuple((before | behind).items())
        self._parts: Final = tuple(
            (literal.encode(), field) for literal, field in zip(literals, [*fields, ""], strict=True)
        )

    def render(self, texts: Mapping[str, str], body: bytes) -> bytes | None:
        """Return the bytes to sign, or None if a field is not a short printable text, or could be misread.

        `texts` contains the fields other than the body, with a time that its format has parsed. Fields that
        the template does not name are ignored.
        """
        values = {"body": body, "": b""}
        for field, guard in self._guards:
            text = texts[field]
            if not (0 < len(text) <= MAX_FIELD_CHARACTERS and text.isascii() and text.isprintable()):
                return None
            # The field would end earlier for a reader than for the signer.
            if guard in text:
                return None
            values[field] = text.encode()
        if "timestamp" in self.fields:
            values["timestamp"] = texts["timestamp"].encode()
        return b"".join([piece for literal, field in self._parts for piece in (literal, values[field])])


def _check(text: str, literals: list[str], fields: list[str]) -> None:
    for field in fields:
        if field not in FIELDS:
            known = ", ".join(f"{{{name}}}" for name in FIELDS)
            raise ConfigError(f"content {text!r} has the placeholder {{{field}}}: only {known} are known")
        if fields.count(field) > 1:
            raise ConfigError(f"content {text!r} has {{{field}}} twice: once is enough")
    if "body" not in fields:
        raise ConfigError(f"content {text!r} has no {{body}}: what is not signed cannot be trusted")
    if any("{" in literal or "}" in literal or not literal.isascii() for literal in literals):
        raise ConfigError(f"content {text!r} must be ASCII, with braces around placeholders only")
    # The first and the last literal may be empty: there is no field beyond them.
    if not all(literals[1:-1]):
        raise ConfigError(f"content {text!r} has two fields side by side: put a character between them")


def _guards(literals: list[str], fields: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the adjacent character of the separator, for each field before the body and after it."""
    body = fields.index("body")
    before = {field: literals[n + 1][0] for n, field in enumerate(fields) if n < body}
    behind = {field: literals[n][-1] for n, field in enumerate(fields) if n > body}
    return before, behind
