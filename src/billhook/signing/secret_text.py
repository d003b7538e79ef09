"""Recognise characters that were added to a secret while it was copied into the configuration.

They would become part of the key, and every delivery would be refused with 401. So billhook refuses such a
secret at start, and names the characters.
"""

from __future__ import annotations

import re
import unicodedata

_VERSION = re.compile(r"v1a?,(?=wh(?:sec|sk|pk)_)")
_ESCAPED_END = re.compile(r"(?:\\r)?\\n\Z")
_QUOTES = frozenset(("''", '""', "``", "\u201c\u201d", "\u2018\u2019", "\u201e\u201c", "\u00ab\u00bb"))
_HIDDEN = ("Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs")
"""Unicode categories of invisible characters: controls, formats, and spaces other than the one in ASCII."""
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible marks and letters, and the empty Braille pattern.

Source: Unicode, "Default_Ignorable_Code_Point".
"""


def plain_secret(secret: str) -> tuple[str, str]:
    """Return a secret without added characters, and a description of them; "" if there are none.

    A prefix "v1," before whsec_ is removed without a description: some senders show their secrets so.
    """
    plain, found, before = secret, [], None
    lines = "\r\n\t" if "-----BEGIN" in secret else ""
    while plain != before:
        before = plain
        plain = _VERSION.sub("", plain)
        for character in plain:
            if character not in lines and _is_invisible(character):
                found.append(_description(character))
                plain = plain.replace(character, "")
        if plain != plain.strip() and not lines:
            found.append("white space around it")
            plain = plain.strip()
        if plain[:1] + plain[-1:] in _QUOTES and len(plain) > 1:
            found.append("quotes around it")
            plain = plain[1:-1]
        if _ESCAPED_END.search(plain):
            found.append("a backslash and an n at its end")
            plain = _ESCAPED_END.sub("", plain)
    return plain, " and ".join(dict.fromkeys(found))


def _is_invisible(character: str) -> bool:
    hidden = character != " " and unicodedata.category(character) in _HIDDEN
    return hidden or _IGNORABLE.match(character) is not None


def _description(character: str) -> str:
    if character == "\ufeff":
        return "a byte order mark (U+FEFF)"
    if character in "\r\n\t":
        return "white space around it"
    name = unicodedata.name(character, "a control character").lower()
    return f"an invisible character (U+{ord(character):04X}, {name})"
