"""Where an app takes deliveries: read from its routes, however its blueprints were registered."""

from __future__ import annotations

from typing import NamedTuple

from flask import Flask

from billhook.signing.source import Source

__all__ = ["SOURCE", "Door", "doors_of"]

SOURCE = "billhook_source"
"""The attribute of a view function that names its source."""


class Door(NamedTuple):
    """The path of a source's deliveries."""

    path: str
    source: Source


def doors_of(app: Flask) -> list[Door]:
    """In the order in which they were registered."""
    rules = app.url_map.iter_rules()
    views = ((rule.rule, app.view_functions.get(rule.endpoint)) for rule in rules)
    return [Door(path, getattr(view, SOURCE)) for path, view in views if hasattr(view, SOURCE)]
