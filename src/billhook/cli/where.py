"""What a command works on: the user's Flask app under `flask`, else what the environment describes."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from billhook.cli.faults import SetupFault
from billhook.errors import BillhookError, ConfigError

if TYPE_CHECKING:
    from flask import Flask

    from billhook.inbox import Inbox
    from billhook.settings import Settings

__all__ = [
    "environment",
    "flask_arguments",
    "inbox_of",
    "is_missing",
    "open_inbox",
    "the_app",
    "the_settings",
    "user_code",
    "users_app",
    "worker_environment",
]


def environment(handlers: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment, with `handlers` in the place of BILLHOOK_HANDLERS if any are given."""
    environ = dict(os.environ)
    for name in handlers:
        if "," in name:
            raise ConfigError(f"handlers {name!r}: a module or file cannot have a comma in its name here")
    if handlers:
        environ["BILLHOOK_HANDLERS"] = ",".join(handlers)
    return environ


def worker_environment(handlers: Sequence[str] = ()) -> dict[str, str]:
    """`environment` with a worker for the engine; what it replaces must be a value that there is.

    Raises ConfigError for the celery engine, whose workers are Celery's to start.
    """
    from billhook.extension import settings_of
    from billhook.settings import Settings, from_environ

    environ = environment(handlers)
    app = users_app()
    settings = Settings.from_mapping(from_environ(environ)) if app is None else settings_of(app)
    if settings.engine == "celery":
        raise ConfigError(_celery_instead(standalone=app is None))
    return {**environ, "BILLHOOK_ENGINE": "worker"}


def _celery_instead(*, standalone: bool) -> str:
    how = "`celery -A MODULE:NAME worker`"
    if standalone:
        receiver = "gunicorn 'billhook.standalone:create_app()'"
        how = f"`celery -A billhook.standalone:celery worker`, and the receiver as `{receiver}`"
    return (
        f"BILLHOOK_ENGINE is celery, so handlers run in Celery's workers: start them as {how}; "
        "for billhook's own workers set BILLHOOK_ENGINE=worker"
    )


def users_app() -> Flask | None:
    """The app that `flask --app …` names; None when this is `billhook …`."""
    from flask.cli import ScriptInfo

    info = click.get_current_context().find_object(ScriptInfo)
    if info is None:
        return None
    with user_code("the Flask app"):
        return info.load_app()


def flask_arguments() -> list[str] | None:
    """What stands between `flask` and `billhook` when the same is called again; None without `flask`."""
    from flask.cli import ScriptInfo

    info = click.get_current_context().find_object(ScriptInfo)
    if info is None:
        return None
    if info.create_app is not None:
        raise SetupFault(
            "a command line of your own cannot be started again from here: use "
            "`flask --app … billhook worker --processes …`"
        )
    return [] if info.app_import_path is None else ["--app", info.app_import_path]


def the_app(environ: Mapping[str, str] | None = None) -> Flask:
    """The app to work with; raises ConfigError where it is not set up well."""
    from billhook.standalone import create_app

    app = users_app()
    if app is not None:
        return app
    with user_code("a module of the handlers"):
        return create_app(environment() if environ is None else environ)


def the_settings() -> Settings:
    """The options in force, secrets included, without opening an inbox."""
    from billhook.extension import settings_of
    from billhook.settings import Settings, from_environ

    app = users_app()
    return Settings.from_mapping(from_environ(os.environ)) if app is None else settings_of(app)


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """A mistake in the user's own modules is told with its place, and without the frames that led there."""
    try:
        yield
    except (BillhookError, click.ClickException):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything when imported
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}, line {frame.lineno}"
        if isinstance(error, SyntaxError):
            place = f"{error.filename}, line {error.lineno}"
        told = f"{type(error).__name__}: {error} ({place})"
        raise SetupFault(f"{what} cannot be imported: {told}") from None


def inbox_of(app: Flask) -> Inbox:
    """The inbox of an app."""
    from billhook.extension import assembly_of

    return assembly_of(app).inbox


def is_missing(inbox: Inbox) -> bool:
    """True for a file that nobody has made yet; a database on a server is somebody else's to make."""
    path: Path | None = getattr(inbox.database, "path", None)
    return path is not None and not path.is_file()


def _command() -> str | None:
    """The first word after `billhook`, however that was called."""
    context = click.get_current_context()
    while context.parent is not None and context.parent.parent is not None:
        context = context.parent
    return context.info_name


@contextmanager
def open_inbox(*, missing_ok: bool = False) -> Iterator[Inbox]:
    """The inbox, without the app that fills it: no secrets and no handlers are needed, no file is made."""
    app = users_app()
    if app is not None:
        yield inbox_of(app)
        return
    from billhook.inbox import Inbox

    settings = the_settings()
    url = settings.inbox_url or f"sqlite:///{Path.cwd() / 'billhook.db'}"
    inbox = Inbox(url, schema=settings.inbox_schema)
    if is_missing(inbox) and not missing_ok:
        raise ConfigError(
            f"there is no inbox at {inbox.database.place}: start the receiver (`billhook serve`), or set "
            f"BILLHOOK_INBOX_URL; in a Flask app: flask --app … billhook {_command()}"
        )
    try:
        yield inbox
    finally:
        inbox.close()
