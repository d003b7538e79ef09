"""What all web pages have in common: layout, charts, highlighting, forms that are safe to send, headers."""

from __future__ import annotations

from billhook.pages.pages import PageLink, Pages, Visitor

__all__ = ["PageLink", "Pages", "Visitor"]
