"""Recognise what got around a secret on its way from the sender's page into the configuration.

It would become a part of the key, and every delivery a 401. So it is refused at the start, by its name.
"""

from __future__ import annotations

import re
import unicodedata

_VERSION = re.compile(r"v1a?,(?=wh(?:sec|sk|pk)_)")
_ESCAPED_END = re.compile(r"(?:\\r)?\\n\Z")
_QUOTES = frozenset(("''", '""', "``", "\u201c\u201d", "\u2018\u2019", "\u201e\u201c", "\u00ab\u00bb"))
_HIDDEN = ("Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs")
"""Unicode's categories of what no page shows: controls, formats, and spaces other than the one in ASCII."""


def plain_secret(secret: str) -> tuple[str, str]:
    """Return a secret without what surrounds it or is hidden in it, and what that is; "" if there is nothing.

    A prefix "v1," before whsec_ is left out without a word: some senders show their secrets so.
    """
    plain, found, before = secret, [], None
    lines = "\r\n\t" if "-----BEGIN" in secret else ""
    while plain != before:
        before = plain
        plain = _VERSION.sub("", plain)
        for character in plain:
            if character not in lines and character != " " and unicodedata.category(character) in _HIDDEN:
                found.append(_named(character))
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


def _named(character: str) -> str:
    if character == "\ufeff":
        return "a byte order mark (U+FEFF)"
    if character in "\r\n\t":
        return "white space around it"
    name = unicodedata.name(character, "a control character").lower()
    return f"an invisible character (U+{ord(character):04X}, {name})"
