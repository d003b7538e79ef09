"""What a command works on: the user's Flask app under `flask`, otherwise what the environment describes."""

from __future__ import annotations

import os
import pwd
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from flask import Flask
from flask.cli import ScriptInfo

from billhook.basics.engine_kinds import ENGINES, WORKER
from billhook.cli.output import UsageConfigError, say
from billhook.doctor import inbox as doctor
from billhook.errors import BillhookError, ConfigError
from billhook.errors.program import no_variables, program
from billhook.extension import get_settings, get_state
from billhook.handlers import ConnectedHandlers, Handlers, connect
from billhook.inbox import Inbox
from billhook.settings import Settings, from_environ
from billhook.standalone import create_app, load_handlers, refuse_apps

_PACKAGE = str(Path(__file__).parents[1])
LOGIN_ID = Path("/proc/self/loginuid")
"""The id of the user that logged in. Only a process with CAP_AUDIT_CONTROL can change it."""
_NO_LOGIN = 2**32 - 1


def environment(handlers: Sequence[str] = ()) -> dict[str, str]:
    """Return this process's environment, with BILLHOOK_HANDLERS replaced by `handlers` if there are any."""
    environ = dict(os.environ)
    for name in handlers:
        if "," in name:
            raise ConfigError(
                f"the handlers module {name!r} has a comma in its name, which separates modules: rename it"
            )
    # An environment variable, not an argument: gunicorn's and the workers' processes inherit it.
    if handlers:
        environ["BILLHOOK_HANDLERS"] = ",".join(handlers)
    return environ


def worker_environment(handlers: Sequence[str] = ()) -> dict[str, str]:
    """Return `environment` with the engine `worker`.

    Raises ConfigError for a wrong engine, and for one whose workers another program starts.
    """
    environ = environment(handlers)
    kind = ENGINES[load_settings(environ).engine]
    if kind.is_foreign:
        own_app = user_app() is not None
        how = f"`{kind.start_command(own_app=own_app)}`"
        if not own_app:
            receiver = "gunicorn -c python:billhook.gunicorn_conf 'billhook.standalone:create_asgi_app()'"
            how = f"{how}, and the receiver as `{receiver}`"
        raise ConfigError(
            f"BILLHOOK_ENGINE is {kind.name}, so {kind.sentence}: start them as {how}; "
            "for billhook's own workers set BILLHOOK_ENGINE=worker"
        )
    return {**environ, "BILLHOOK_ENGINE": WORKER.name}


def user_app() -> Flask | None:
    """Return the app that `flask --app …` names; None for `billhook …`."""
    # `flask` puts its ScriptInfo on the context, and plain `billhook` does not: this tells them apart.
    info = click.get_current_context().find_object(ScriptInfo)
    if info is None:
        return None
    with reporting_import_errors("the Flask app"):
        return info.load_app()


def _without_app(handlers: Sequence[str]) -> Sequence[str]:
    """Return names of handlers' modules. Raises UsageError if a Flask app has its own handlers."""
    if handlers and user_app() is not None:
        raise click.UsageError("HANDLERS is for `billhook` only: the Flask app has its own handlers")
    return handlers


handlers_argument = click.argument(
    "handlers",
    nargs=-1,
    metavar="[HANDLERS]...",
    callback=lambda context, parameter, names: _without_app(names),
)


def flask_arguments() -> list[str] | None:
    """Return the arguments between `flask` and `billhook`, to start the same again; None without `flask`."""
    info = click.get_current_context().find_object(ScriptInfo)
    if info is None:
        return None
    # A FlaskGroup of the user's own has its factory as an object, which no command line can name.
    if info.create_app is not None:
        raise UsageConfigError(
            "child processes cannot be started from a custom command line: use `flask --app …` for it"
        )
    return [] if info.app_import_path is None else ["--app", info.app_import_path]


def load_app(environ: Mapping[str, str] | None = None) -> Flask:
    """Return the user's app, or a standalone one. Raises ConfigError for a wrong configuration."""
    app = user_app()
    if app is not None:
        return app
    with reporting_import_errors("a module of the handlers"):
        return create_app(environment() if environ is None else environ)


def import_handlers(names: Sequence[str] = (), *, to_run: bool = False) -> list[Handlers]:
    """Import the user's app, or the handlers' modules, with the event types in them; return their Handlers.

    Of an app it returns none: they are connected. Raises ConfigError, with `to_run` also for a module whose
    handlers run in an app. Needs neither secrets nor an inbox.
    """
    environ = environment(_without_app(names))
    if user_app() is not None:
        return []
    names = load_settings(environ).handlers
    with reporting_import_errors("a module of the handlers"):
        groups = load_handlers(names)
        if to_run:
            refuse_apps(names)
        return groups


class _Sender:
    """Replace an app as a sender. Not object(): signals need a weak reference, an id can be reused."""


def load_subscribers(names: Sequence[str] = ()) -> ConnectedHandlers:
    """Return the handlers of the user's app, or of the modules, without an inbox. Raises ConfigError."""
    # Not `create_app`, which would need secrets and create an inbox: handlers are listed before both exist.
    groups = import_handlers(names, to_run=True)
    app = user_app()
    if app is not None:
        return get_state(app).handlers
    sender = _Sender()
    for group in groups:
        connect(group.freeze(), sender)
    connected = ConnectedHandlers(sender)
    # Only now, with all modules imported: two of them may use the same name.
    connected.check_names()
    return connected


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the options in force, with secrets, without opening an inbox."""
    app = user_app()
    return Settings.from_mapping(from_environ(environ)) if app is None else get_settings(app)


@contextmanager
def reporting_import_errors(what: str) -> Iterator[None]:
    """Report an error in the user's modules by its file and line. Raises UsageConfigError."""
    try:
        yield
    except BillhookError as error:
        error.args = (f"{error}{_registered_at(error)}",)
        raise
    except click.ClickException:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything when imported
        # The last frame outside billhook is the user's line. A SyntaxError names the file that it is about.
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
        frame = (own or frames)[-1]
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, SyntaxError):
            text += f" ({frame.filename}, line {frame.lineno})"
        raise UsageConfigError(f"{what} cannot be imported: {text}") from None


def _registered_at(error: BillhookError) -> str:
    """Return the user's line that registers or makes what the error is about; empty for any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [n for n, frame in enumerate(frames) if not frame.filename.startswith((_PACKAGE, "<"))]
    # Not init_app: what is wrong there are options, the inbox or the app, and not the line.
    calls = ("on", "on_any", "on_unknown", "__call__", "__init__", "connect")
    if not own or own[-1] + 1 == len(frames) or frames[own[-1] + 1].name not in calls:
        return ""
    return f" ({frames[own[-1]].filename}, line {frames[own[-1]].lineno})"


def operator() -> str:
    """Return who runs this command, for the record of actions: the person before the account.

    It is who logged in, as the kernel keeps it through sudo and runuser; else the account, with whom
    SUDO_USER names, which any user can set.
    """
    account, person = os.getuid(), _login_id()
    if person is not None and person != account:
        return f"{_user_name(person)} (as {_user_name(account)})"
    name, said = _user_name(account), os.environ.get("SUDO_USER")
    return f"{name} (said to be {said})" if person is None and said and said != name else name


def _login_id() -> int | None:
    """Return the id of the user that logged in; None for what no login started, such as a service."""
    try:
        number = int(LOGIN_ID.read_text(encoding="ascii"))
    except (OSError, ValueError):  # a kernel without auditing has no such file
        return None
    return None if number == _NO_LOGIN else number


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container may have no entry for its user
        return f"user {number}"


@contextmanager
def open_inbox(*, missing_ok: bool = False) -> Iterator[Inbox]:
    """Open the inbox without building an app: needs no secrets or handlers, and creates no file."""
    app = user_app()
    if app is not None:
        # Not closed here: the inbox belongs to the app, which can outlive the command (as in tests).
        yield get_state(app).inbox
        return
    from billhook.events import EVENT_TYPES

    settings = load_settings()
    url = settings.inbox_url or f"sqlite:///{Path.cwd() / 'billhook.db'}"
    inbox = Inbox(
        url, schema=settings.inbox_schema, pool_mode=settings.inbox_pool_mode, known_types=EVENT_TYPES
    )
    # A new empty file would look like an inbox that has lost its deliveries.
    if inbox.is_missing and not missing_ok:
        place = inbox.database.display_url
        if not (folder := Path(place).parent).is_dir():
            raise ConfigError(
                f"the inbox's folder {folder} does not exist: make it, or correct BILLHOOK_INBOX_URL"
            )
        command = " ".join(click.get_current_context().command_path.split()[1:])
        # With BILLHOOK_COMMAND, which the hint would name instead, the command is known.
        mounted = f"; in a Flask app: flask --app … billhook {command}" if program() == "billhook" else ""
        raise ConfigError(
            f"there is no inbox at {place}: start the receiver (`billhook serve`), or "
            f"set BILLHOOK_INBOX_URL{mounted}{no_variables()}"
        )
    try:
        yield inbox
    finally:
        inbox.close()


def say_missing_worker(inbox: Inbox, before: str = "") -> None:
    """Print a hint on stderr, with `before` it, if no worker seems to serve the inbox."""
    own_app = user_app() is not None
    missing = doctor.missing_worker(inbox, load_settings(), own_app=own_app, now=inbox.now())
    if missing is not None:
        say(f"{before}{missing.what}; {missing.remedy}")
