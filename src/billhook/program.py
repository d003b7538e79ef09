"""Name the program in hints: `billhook …`, or `flask --app shop billhook …` where an app has mounted it."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import click

from billhook.settings import ENVIRON

# Not `serve`, `capture`, `sandbox` and `demo`, which `flask billhook` does not have.
COMMAND = re.compile(
    r"(?:flask --app \S+ )?\bbillhook (?=(?:actions|api|check|db|deliveries|doctor|events|failures|handlers|"
    r"metrics|notify|options|reconcile|runbook|send|status|subscribe|worker)\b)"
)


def program(app: Any = None) -> str:
    """Return the beginning of a command line that works on the same inbox.

    It is that of the running command, else that of `app`, a Flask app; `billhook` for the standalone app.
    """
    context = click.get_current_context(silent=True)
    while context is not None:
        if hasattr(context.obj, "app_import_path"):  # Flask's ScriptInfo: called as `flask billhook …`
            return _flask_program(context)
        context = context.parent
    extensions = getattr(app, "extensions", None)
    if extensions is None or ENVIRON in extensions:
        return "billhook"
    name = "…" if app.import_name == "__main__" else app.import_name
    return f"flask --app {name} billhook"


def _flask_program(context: click.Context) -> str:
    if context.obj.create_app is not None:  # a command line of the user's own
        return f"{context.find_root().info_name} billhook"
    path = context.obj.app_import_path
    # Without either, `flask` finds app.py or wsgi.py in the current folder, as it did for this command.
    return (
        "flask billhook"
        if path is None or os.environ.get("FLASK_APP") == path
        else f"flask --app {shlex.quote(path)} billhook"
    )


def in_program(text: str, app: Any = None) -> str:
    """Return a hint with its commands as the user has to type them: `billhook db upgrade` is a command."""
    name = program(app)
    # A text may be converted twice, for a log line and at the end of a command.
    return text if name == "billhook" or f"{name} " in text else COMMAND.sub(lambda _: f"{name} ", text)
