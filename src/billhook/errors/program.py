"""Name the program in hints: `billhook …`, or `flask --app shop billhook …` where an app has mounted it.

BILLHOOK_COMMAND replaces either: a wrapper sets it, or who runs the service. It is shown, never run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import click

# Not `serve`, `capture`, `sandbox` and `demo`, which `flask billhook` does not have.
COMMAND = re.compile(
    r"(?:flask --app \S+ )?\bbillhook (?=(?:actions|api|check|db|deliveries|deploy|doctor|events|failures|"
    r"handlers|metrics|notify|options|reconcile|runbook|send|status|subscribe|subscriptions|workers?)\b)"
)
SECRET_MARKS: Final = ("whsec_", "whsk_", "-----BEGIN")
"""A text with one of them may be a secret: only an option for secrets holds it, and no message shows it."""
COMMAND_LENGTH: Final = 200
"""Characters of BILLHOOK_COMMAND."""
_OWN = "billhook"
_programs: Final[WeakKeyDictionary[Any, tuple[str, str]]] = WeakKeyDictionary()
"""The BILLHOOK_COMMAND of each app of this process that uses billhook, and its program without that option.

Of the process, as the command line is: errors come to light in threads that know of no app.
"""


def is_command(text: str) -> bool:
    """Return whether a text may be shown as the beginning of a command line; empty stands for none."""
    return (
        len(text) <= COMMAND_LENGTH
        and text.isprintable()
        and text == text.strip()
        and not any(mark in text for mark in SECRET_MARKS)
    )


def add_app(app: Any, *, standalone: bool, command: str = "") -> None:
    """Note that this process has a Flask app that uses billhook, until `remove_app` or the app's end.

    `command` is its BILLHOOK_COMMAND.
    """
    name = "…" if app.import_name == "__main__" else app.import_name
    _programs[app] = (command, _OWN if standalone else next(_typed(), f"flask --app {name} billhook"))


def remove_app(app: Any) -> None:
    """Forget an app that is closed."""
    _programs.pop(app, None)


def program() -> str:
    """Return the beginning of a command line that works on the same inbox.

    It is BILLHOOK_COMMAND, else that of the running command, else that of this process's app; `billhook` for
    the standalone app.
    """
    chosen = {command for command, _ in _programs.values()}
    if len(chosen) == 1 and "" not in chosen:
        return chosen.pop()
    # Commands need no app, and errors come before the options are read: a wrong value is refused there.
    given = os.environ.get("BILLHOOK_COMMAND", "")
    if given and is_command(given):
        return given
    for typed in _typed():
        return typed
    names = {name for _, name in _programs.values()}
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


def no_variables() -> str:
    """Return what an error about a missing option adds if the environment has no option at all; else "".

    Who types a command in the app's folder is not in the environment of the service.
    """
    if any(name.startswith("BILLHOOK_") for name in os.environ):
        return ""
    return "; no BILLHOOK_ variable is set in this environment: the service's environment has them"


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
