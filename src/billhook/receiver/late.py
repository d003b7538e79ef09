"""A blueprint that is made when it is registered: only then are the app and its config known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flask import Blueprint, Flask

__all__ = ["LateBlueprint"]

Making = Callable[[Flask, str], AbstractContextManager[Blueprint]]
"""Makes the blueprint for an app and a whole URL prefix; at the block's end it has been registered."""


class LateBlueprint(Blueprint):
    """Stands for one in `register_blueprint`, of an app or of another blueprint; may be registered again."""

    def __init__(self, name: str, url_prefix: str, making: Making) -> None:
        super().__init__(name, __name__, url_prefix=url_prefix)
        self._making = making

    def register(self, app: Flask, options: dict[str, Any]) -> None:  # type: ignore[override]
        """Register in its place what is made for `app`. Flask calls it with prefix and parent."""
        url_prefix = options.get("url_prefix")
        if url_prefix is None:
            url_prefix = self.url_prefix or ""
        with self._making(app, url_prefix) as made:
            made.register(app, {**options, "url_prefix": None})
