"""The pages of the sandbox, for people: what happens in it, and switches for what should happen."""

from billhook.sandbox.pages.app import PAGES_PREFIX, with_pages

__all__ = ["PAGES_PREFIX", "with_pages"]
