"""Name the program in hints: `billhook …`, or `flask --app shop billhook …` in a Flask app."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import click

from billhook.settings import ENVIRON

__all__ = ["COMMAND", "in_program", "program"]

# Not `serve`, `capture`, `sandbox` and `demo`, which `flask billhook` does not have.
COMMAND = re.compile(
    r"(?:flask --app … )?\bbillhook (?=(?:actions|api|check|db|deliveries|doctor|events|handlers|metrics|"
    r"options|reconcile|send|status|subscribe|worker)\b)"
)


def program(app: Any = None) -> str:
    """Return how the command line begins that works on the same inbox.

    That of the running command, else that of `app`, a Flask app; `billhook` for the standalone one.
    """
    context = click.get_current_context(silent=True)
    # `flask` puts its ScriptInfo on the context; its class is not imported, for `billhook` starts faster so.
    while context is not None and not hasattr(context.obj, "app_import_path"):
        context = context.parent
    if context is not None:
        return _running_program(context)
    extensions = getattr(app, "extensions", None)
    if extensions is None or ENVIRON in extensions:
        return "billhook"
    return f"flask --app {'…' if app.import_name == '__main__' else app.import_name} billhook"


def _running_program(context: click.Context) -> str:
    flask, path = context.find_root().info_name, context.obj.app_import_path
    # A factory: it is a command line of the user's own. No path: `flask` has found app.py or wsgi.py.
    if context.obj.create_app is not None or path in (None, os.environ.get("FLASK_APP")):
        return f"{flask} billhook"
    return f"{flask} --app {shlex.quote(path)} billhook"


def in_program(text: str, app: Any = None) -> str:
    """Return a text with its commands as the user has to type them."""
    name = program(app)
    return text if name == "billhook" else COMMAND.sub(lambda _: f"{name} ", text)
