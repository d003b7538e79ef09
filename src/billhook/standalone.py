"""The receiver as a complete app: `gunicorn 'billhook.standalone:create_app()'`.

Options come from BILLHOOK_… variables of the environment; handlers from the modules in BILLHOOK_HANDLERS.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from blinker import ANY
from flask import Flask, Response, current_app, request
from werkzeug.exceptions import InternalServerError, NotFound

from billhook.basics.engine_kinds import ENGINES
from billhook.basics.file_modes import read_token_file
from billhook.basics.printable import first_line
from billhook.errors import ConfigError, Discard
from billhook.events import EVENT_TYPES, UnknownEvent
from billhook.extension import ENVIRON, Billhook, get_settings, get_state
from billhook.handlers import Delivery, Handlers
from billhook.logs import LimitedLog, fields, set_up_logging
from billhook.receiver.blueprint import webhook_routes
from billhook.settings import from_environ
from billhook.signals import delivery_accepted, event_signal, handler_ended

if TYPE_CHECKING:
    from billhook.receiver.asgi import AsgiApp

__all__ = ["create_app", "create_asgi_app", "load_handlers"]

logger = logging.getLogger("billhook.standalone")
_misdirected = LimitedLog(logger, interval_seconds=60.0)


def __getattr__(name: str) -> Any:
    """Return what starts the workers of an engine, bound to our app, as an attribute of this module.

    For `celery -A billhook.standalone:celery worker` it is the Celery app of BILLHOOK_CELERY_APP.
    """
    if name in {kind.extension for kind in ENGINES.values() if kind.extension}:
        try:
            return create_app().extensions[name]
        except ConfigError as error:
            # Celery's command line shows no clean error for other exceptions.
            raise SystemExit(f"Error: {error}") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def create_app(environ: Mapping[str, str] | None = None) -> Flask:
    """Return a Flask app with the receiver, `GET /healthz` and `GET /readyz`, and perhaps the dashboard.

    The inbox is ./billhook.db unless BILLHOOK_INBOX_URL says otherwise. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    # Set logging up first: a wrong value of its option is reported below, with the other options.
    set_up_logging(environ.get("BILLHOOK_LOG_FORMAT"))
    app = Flask("billhook", instance_path=str(Path.cwd()), static_folder=None)
    app.extensions[ENVIRON] = environ
    app.config.from_mapping(from_environ(environ))
    settings = get_settings(app)
    if settings.celery_app or settings.rq_queue:
        _add_current_folder_to_path()
    groups = load_handlers(settings.handlers)
    refuse_apps(settings.handlers)
    hooks = Billhook(handlers=groups)
    hooks.init_app(app, url_prefix="/" + settings.url_prefix.strip("/"))
    if settings.dashboard is not None:
        from billhook.dashboard.password_file import add_dashboard

        add_dashboard(app, settings.dashboard)
    app.register_blueprint(hooks.health_blueprint())
    for failure in (MemoryError, InternalServerError):
        app.register_error_handler(failure, _unavailable)
    app.register_error_handler(NotFound, _report_misdirected)
    if os.isatty(2):  # a person at a terminal waits for a confirmation
        delivery_accepted.connect(_log_accepted, sender=app)
        handler_ended.connect(_log_handled, sender=app)
    if settings.metrics_token_file is not None:
        from billhook.metrics import metrics_blueprint

        token = read_token_file("BILLHOOK_METRICS_TOKEN_FILE", settings.metrics_token_file)
        app.register_blueprint(metrics_blueprint(token))
    return app


def create_asgi_app(environ: Mapping[str, str] | None = None) -> AsgiApp:
    """Return the same receiver as an ASGI 3 application, for an event loop. Raises ConfigError."""
    return get_state(create_app(environ)).asgi_app()


def _unavailable(_: Exception) -> Response:
    """Answer with 503 where a health check fails for want of memory, in whichever place."""
    return Response('{"status": "unavailable"}', 503, content_type="application/json")


def _report_misdirected(error: NotFound) -> NotFound:
    """Log a request with a signature's headers for a path of no source: its sender may have a wrong URL.

    The signature is not verified: no source says by which secret.
    """
    routes = webhook_routes(current_app)
    signed_by = [names for one in routes if (names := one.source.scheme.headers)]
    if request.method == "POST" and any(
        all(name in request.headers for name in names) for names in signed_by
    ):
        paths = " and ".join(sorted({one.path for one in routes}))
        text = f"a signed request for {first_line(request.path, 200)} was answered 404: "
        _misdirected.log("misdirected", logging.WARNING, f"{text}deliveries are received at {paths}")
    return error


def _log_accepted(_: Flask, *, delivery_id: int, event_type: str, source: str, key: str) -> None:
    extra = fields(delivery_id=delivery_id, event_type=event_type, source=source, key=key)
    logger.info("delivery %d accepted: %s", delivery_id, event_type or "(type not read yet)", extra=extra)


def _log_handled(
    _: Flask, *, delivery: Delivery, handler: str, error: BaseException | None, duration: float
) -> None:
    # The engine logs a failure and what follows from it, in a terminal or not.
    if error is None or isinstance(error, Discard):
        text = "handler %s succeeded on delivery %d in %.0f ms"
        if error is not None:
            text = "handler %s discarded delivery %d in %.0f ms"
        extra = fields(delivery_id=delivery.id, handler=handler, duration=duration)
        logger.info(text, handler, delivery.id, duration * 1000, extra=extra)


def load_handlers(names: Iterable[str]) -> list[Handlers]:
    """Return every Handlers of the named modules or .py files.

    Raises ConfigError for a module without any that neither connects to an event's signal itself nor declares
    an event type.
    """
    groups: list[Handlers] = []
    for name in names:
        before = _plain_subscribers()
        module = _load(name)
        found = [value for value in vars(module).values() if isinstance(value, Handlers)]
        declares = any(model.__module__ == module.__name__ for model in EVENT_TYPES.values())
        if not (found or declares or _connected_by(module, before)):
            refuse_apps([name])  # of which the handlers are elsewhere
            raise ConfigError(f"{name} has no Handlers: it needs a line such as handlers = Handlers()")
        groups.extend(group for group in found if group not in groups)
    return groups


def refuse_apps(names: Iterable[str]) -> None:
    """Raise ConfigError if one of the modules, or a package that it is in, mounts billhook in a Flask app.

    Outside that app its handlers would be called without what they use of it, and fail at each attempt.
    """
    for name in names:
        parts = _load(name).__name__.split(".")
        packages = [sys.modules[".".join(parts[:number])] for number in range(len(parts), 0, -1)]
        if any(map(_mounts_billhook, packages)):
            app = next(filter(None, map(_flask_name, packages)), "…")
            raise ConfigError(
                f"{name} has billhook in a Flask app, in whose context its handlers run: start the worker as "
                f"`flask --app {app} billhook worker`, and other commands alike; what receives is the app "
                "itself, not `billhook serve`"
            )


def _mounts_billhook(module: ModuleType) -> bool:
    return bool(_factories(module)) or any(
        isinstance(value, Billhook) or (isinstance(value, Flask) and "billhook" in value.extensions)
        for value in vars(module).values()
    )


def _factories(module: ModuleType) -> list[str]:
    """Return the functions of a module that make a Billhook, which only their code says before a call."""
    return [
        name
        for name, value in vars(module).items()
        if isfunction(value) and value.__module__ == module.__name__ and "Billhook" in value.__code__.co_names
    ]


def _flask_name(module: ModuleType) -> str | None:
    """Return how `flask --app` finds the app of a module; None if there is none."""
    apps = [name for name, value in vars(module).items() if isinstance(value, Flask)]
    named = [name for name in ("app", "application", "create_app", "make_app") if hasattr(module, name)]
    if named or len(apps) == 1:
        return module.__name__
    found = [*apps, *_factories(module)]
    return f"{module.__name__}:{found[0]}" if found else None


def _plain_subscribers() -> list[Any]:
    """Return the receivers that are connected to an event's signal for every app."""
    names = [*(model.signal_name for model in EVENT_TYPES.values()), UnknownEvent.signal_name]
    return [receiver for name in names for receiver in event_signal(name).receivers_for(ANY)]


def _connected_by(module: ModuleType, before: list[Any]) -> bool:
    """Return True if importing the module connected any receiver, now or when it was first imported."""
    return any(
        receiver not in before or f"{receiver.__module__}.".startswith(f"{module.__name__}.")
        for receiver in _plain_subscribers()
    )


def _load(name: str) -> ModuleType:
    return _load_file(Path(name)) if name.endswith(".py") else _load_module(name)


def _load_module(name: str) -> ModuleType:
    if name.startswith("."):
        raise ConfigError(
            f"{name!r} is no handlers module: give a name such as myshop.billing, or a .py file"
        )
    _add_current_folder_to_path()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        raise ConfigError(
            f"there is no handlers module {name!r} here: the handlers, given as arguments or in "
            "BILLHOOK_HANDLERS, are modules such as myshop.billing, or .py files"
        ) from None


def _add_current_folder_to_path() -> None:
    """Add the current folder to sys.path, as `python -m` does."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _load_file(path: Path) -> ModuleType:
    """Import a file by its dotted module name, so that its relative imports work."""
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"there is no handlers file {path}")
    folder = path.parent
    parts = [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return _load_module(".".join(parts))
