"""Find out how a captured request was signed, for `billhook doctor signature`. No receiver needs it."""

from __future__ import annotations

from billhook.signing.search.finder import FoundScheme, NearMiss, SearchResult, search

__all__ = ["FoundScheme", "NearMiss", "SearchResult", "search"]
