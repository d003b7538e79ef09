"""Name the program in hints: `billhook …`, or `flask --app shop billhook …` where an app has mounted it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from weakref import finalize

import click

# Not `serve`, `capture`, `sandbox` and `demo`, which `flask billhook` does not have.
COMMAND = re.compile(
    r"(?:flask --app \S+ )?\bbillhook (?=(?:actions|api|check|db|deliveries|doctor|events|failures|handlers|"
    r"metrics|notify|options|reconcile|runbook|send|status|subscribe|workers?)\b)"
)
_OWN = "billhook"
_programs: Final[dict[int, str]] = {}
"""The program of each app of this process that uses billhook, by the app's id().

Of the process, as the command line is: errors come to light in threads that know of no app.
"""


def add_app(app: Any, *, standalone: bool) -> None:
    """Note that this process has a Flask app that uses billhook, until `remove_app` or the app's end."""
    name = "…" if app.import_name == "__main__" else app.import_name
    _programs[id(app)] = _OWN if standalone else next(_typed(), f"flask --app {name} billhook")
    finalize(app, _programs.pop, id(app), None)


def remove_app(app: Any) -> None:
    """Forget an app that is closed."""
    _programs.pop(id(app), None)


def program() -> str:
    """Return the beginning of a command line that works on the same inbox.

    It is that of the running command, else that of this process's app; `billhook` for the standalone app.
    """
    for typed in _typed():
        return typed
    names = set(_programs.values())
    if not names or _OWN in names:
        return _OWN
    return names.pop() if len(names) == 1 else "flask --app … billhook"


def may_receive() -> bool:
    """Return whether this process may be a receiver's: it runs no command of billhook's but `serve`."""
    names, context = set(), click.get_current_context(silent=True)
    while context is not None:
        names.add(context.command.name)
        context = context.parent
    return _OWN not in names or "serve" in names


def _typed() -> Iterator[str]:
    """Yield what was typed, if this thread runs a command of billhook's."""
    context = click.get_current_context(silent=True)
    while context is not None:
        if hasattr(context.obj, "app_import_path"):  # Flask's ScriptInfo: called as `flask billhook …`
            yield _flask_program(context)
        elif context.parent is None and context.command.name == _OWN:
            yield _OWN
        context = context.parent


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


def in_program(text: str) -> str:
    """Return a hint with its commands as the user has to type them: `billhook db upgrade` is a command."""
    name = program()
    if name == _OWN:
        return text
    # Parts of a text may be converted already: an error's, in the text of another error or of a command.
    before = re.escape(name.removesuffix(_OWN))
    return re.sub(f"(?:{before})?{COMMAND.pattern}", lambda _: f"{name} ", text)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of billhook from where billhook itself was installed.

    Source: PEP 610, which has installers keep that in `direct_url.json`; there is none for a package index.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # of no use until a hint is needed

    try:
        noted = distribution(_OWN).read_text("direct_url.json")
    except PackageNotFoundError:
        noted = None
    if noted is None:
        return f"pip install {shlex.quote(f'{_OWN}[{extra}]')}"
    origin = json.loads(noted)
    url = re.sub(r"(?<=://)(?!git@)[^/@]*@", "", origin["url"])  # a hint shows no password
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
    if "vcs_info" in origin:
        how = origin["vcs_info"]
        url = f"{how['vcs']}+{url}@{how.get('requested_revision') or how['commit_id']}"
    return f"pip install {shlex.quote(f'{_OWN}[{extra}] @ {url}')}"
