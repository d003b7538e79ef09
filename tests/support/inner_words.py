"""Words of billhook's inside, which a person who reads pages, messages and outputs does not need."""

from __future__ import annotations

import re
from collections.abc import Iterable

INNER = re.compile(
    r"(?<![\w-])(?:twins?|settle[sd]?|settling|plan(?:s|ned|ning)?|inbox rows?|leases?)(?![\w-])",
    re.IGNORECASE,
)
"""The words. No such words are the names of options, fields and signals: `--twins`, `twin_of`."""
_PUBLIC = re.compile(r'"state": "planned"|\'planned\'')
"""A state that JSON has, and an option takes."""


def inner_words(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Each word of the inside in these texts, as `place: word`."""
    found = ((place, _PUBLIC.sub("", text)) for place, text in texts)
    return [f"{place}: {match[0]}" for place, text in found for match in INNER.finditer(text)]
