"""Find out how a captured request was signed, for `billhook doctor signature`. No receiver needs it."""

from __future__ import annotations

from billhook.signing.search.finder import SearchResult, search
from billhook.signing.search.found import FoundScheme, NearMiss

__all__ = ["FoundScheme", "NearMiss", "SearchResult", "search"]
