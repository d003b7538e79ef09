"""Billhook: the Flask extension, and the only place where the parts are put together."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import click
from flask import Blueprint, Flask, request
from flask.helpers import get_debug_flag

from billhook.clock import Clock, SystemClock
from billhook.dispatch import Handlers
from billhook.errors import ConfigError, DuplicateHandlerName, MissingSecret
from billhook.settings import Settings, from_environ, read_secrets_file
from billhook.signing import BodyHMAC, Scheme, StandardWebhooks, TimestampedHMAC, TimestampedRSA
from billhook.signing.source import DEFAULT_SOURCE, Source

if TYPE_CHECKING:
    from billhook.assembly import Assembly

__all__ = ["ENVIRON", "Billhook", "assembly_of", "scheme_of", "settings_of"]

_SYSTEM_CLOCK = SystemClock()
ENVIRON = "billhook_environ"
"""In `app.extensions`: the environment to read for an app in the place of the process's own."""
_ALTERNATIVES = (
    ("BILLHOOK_SECRETS", "BILLHOOK_SECRETS_FILE"),
    ("BILLHOOK_API_REFRESH_TOKEN", "BILLHOOK_API_REFRESH_TOKEN_FILE"),
)


class Billhook:
    """Receives the service's webhooks in a Flask app.

    Reads the keys of `billhook.settings.OPTIONS` (`billhook options` lists them) from the app's config, and
    from the environment where that says nothing; keeps its state in `app.extensions["billhook"]`. `sources`
    are senders beside the default one, which is made of BILLHOOK_SIGNATURE and BILLHOOK_SECRETS when these
    are set.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        handlers: Iterable[Handlers] = (),
        sources: Iterable[Source] = (),
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        self._handlers = tuple(handlers)
        self._sources = tuple(sources)
        self._clock = clock
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask, url_prefix: str = "/webhooks/billing") -> None:
        """Take deliveries at `POST <url_prefix>` and `POST <url_prefix>/<source.name>`.

        May be called for several apps, and by several Billhooks for one app, which then share its inbox.
        Raises ConfigError, in words that say what to change; nothing is half set up then.
        """
        app.register_blueprint(self.blueprint(url_prefix))

    def blueprint(self, url_prefix: str = "/webhooks/billing") -> Blueprint:
        """Make the same, to be registered by hand: in an app, or in another blueprint.

        >>> app.register_blueprint(hooks.blueprint(), url_prefix="/hooks")  # doctest: +SKIP

        The app's config is read when it is registered there, and ConfigError raised then. Its name is
        `billhook`; of more than one in an app, the second's is `billhook_2`.
        """
        from billhook.receiver import LateBlueprint

        return LateBlueprint("billhook", url_prefix, self._mounted)

    @contextmanager
    def _mounted(self, app: Flask, url_prefix: str) -> Iterator[Blueprint]:
        """What is to be registered in the block; at its end all that belongs to it is set up."""
        from billhook.assembly import Assembly  # brings SQLAlchemy: an app that only imports us need not pay
        from billhook.receiver import make_blueprint

        settings = settings_of(app)
        sources = self._all_sources(settings)
        assembly: Assembly | None = app.extensions.get("billhook")
        _check_names([*(assembly.handler_groups if assembly else ()), *self._handlers])
        known = {source.name for source in sources} | (assembly.source_names if assembly else set())
        _check_sources(self._handlers, known)
        if assembly is None:
            assembly = Assembly(app, settings, self._clock)
        assembly.connect(self._handlers)
        blueprint = make_blueprint(
            f"billhook_{len(assembly.mounts) + 1}" if assembly.mounts else "billhook",
            assembly.intake,
            sources,
            url_prefix,
        )
        yield blueprint
        _exempt_from_csrf(app, blueprint)
        assembly.mounts.append(url_prefix)
        assembly.source_names |= known
        if "billhook" not in app.extensions:
            app.extensions["billhook"] = assembly
            app.cli.add_command(
                _Commands("billhook", help="Webhook deliveries: handle, look at and replay them.")
            )
            assembly.bind()
            # Before the app's own, one of which may refuse the request.
            app.before_request_funcs.setdefault(None, []).insert(0, assembly.begin)
            atexit.register(assembly.close)

    def start(self, app: Flask) -> None:
        """Begin to handle what is stored, in this process; else that begins with the first request.

        Call it after any fork: in gunicorn's `post_worker_init`, or when an ASGI server starts the app. Where
        `flask run` may be only watching the files for another process, it is left to the first request.
        """
        assembly = assembly_of(app)
        if not _may_only_watch():
            assembly.start()

    def _all_sources(self, settings: Settings) -> Sequence[Source]:
        named = {source.name for source in self._sources}
        if len(named) < len(self._sources):
            raise ConfigError("two sources have the same name: each name is one URL and one set of keys")
        secrets = settings.secrets
        if settings.secrets_file is not None:
            secrets = read_secrets_file(settings.secrets_file)
        if DEFAULT_SOURCE in named or (self._sources and not secrets):
            return self._sources
        if not secrets:
            raise MissingSecret(DEFAULT_SOURCE)
        default = Source(DEFAULT_SOURCE, scheme_of(settings), secrets, settings.tolerance_seconds)
        return (default, *self._sources)


class _Commands(click.Group):
    """`billhook …` of an app's own command line, as `app.test_cli_runner()` has it: loaded when it is used.

    `flask` finds the same group by its entry point; to import it here would bring every command to every app.
    """

    @cached_property
    def _loaded(self) -> click.Group:
        (entry,) = entry_points(group="flask.commands", name="billhook")
        return entry.load()  # type: ignore[no-any-return]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._loaded.list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._loaded.get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        return self._loaded.invoke(ctx)


def _exempt_from_csrf(app: Flask, blueprint: Blueprint) -> None:
    """flask-wtf wants a form's token in each POST: here the signature is what protects."""
    if "csrf" in app.extensions:
        app.extensions["csrf"].exempt(blueprint)
    elif find_spec("flask_wtf") is not None:  # it may be set up later, whose hook then comes after this one

        @app.before_request
        def exempt() -> None:
            here = app.blueprints.get(request.blueprint or "")  # by object: inside another its name is longer
            if here is blueprint and "csrf" in app.extensions:
                app.extensions["csrf"].exempt(blueprint)


def settings_of(app: Flask) -> Settings:
    """The options of an app: its config's and, where that says nothing, BILLHOOK_… of the environment.

    Raises ConfigError, for an unknown name in either too.
    """
    config: dict[str, Any] = {key: app.config[key] for key in app.config if key.startswith("BILLHOOK_")}
    environ: Mapping[str, str] = app.extensions.get(ENVIRON, os.environ)
    beside = from_environ(environ)
    for pair in _ALTERNATIVES:
        if any(config.get(key) for key in pair):  # of two ways to say one thing the config chose one
            for key in pair:
                beside.pop(key, None)
    said = {key: value for key, value in config.items() if value is not None or key not in beside}
    return Settings.from_mapping({**beside, **said})


def _may_only_watch() -> bool:
    """Whether this may be the parent of `flask run` with its reloader: it serves nothing, its child does."""
    from_the_cli = os.environ.get("FLASK_RUN_FROM_CLI") == "true"
    return from_the_cli and get_debug_flag() and os.environ.get("WERKZEUG_RUN_MAIN") != "true"


def assembly_of(app: Flask) -> Assembly:
    """What Billhook built for an app. Raises ConfigError for an app without it."""
    try:
        return app.extensions["billhook"]  # type: ignore[no-any-return]
    except KeyError:
        raise ConfigError("this Flask app has no billhook: call Billhook(...).init_app(app)") from None


def _check_names(groups: Iterable[Handlers]) -> None:
    owner: dict[str, object] = {}
    for group in groups:
        for _, handler in group.freeze():
            for name in (handler.name, *handler.aliases):
                if owner.setdefault(name, handler) is not handler:
                    raise DuplicateHandlerName(name)


def _check_sources(groups: Iterable[Handlers], known: set[str]) -> None:
    for group in groups:
        for _, handler in group.freeze():
            if unknown := sorted(set(handler.sources) - known):
                raise ConfigError(
                    f"handler {handler.name!r} names the source {unknown[0]!r}, which is not here: there is "
                    f"{', '.join(sorted(known))}"
                )


def scheme_of(settings: Settings) -> Scheme:
    """The scheme that BILLHOOK_SIGNATURE and its companions describe. Raises ConfigError."""
    header = settings.signature_header or "X-Webhook-Signature"
    timestamp = settings.timestamp_header or "X-Webhook-Timestamp"
    if settings.signature != "body-hmac" and settings.signature_prefix != "sha256=":
        raise ConfigError(f"{settings.signature} has no prefix to choose: unset BILLHOOK_SIGNATURE_PREFIX")
    if settings.signature == "timestamped-hmac":
        return TimestampedHMAC(header=header)
    if settings.signature == "timestamped-rsa":
        return TimestampedRSA(signature_header=header, timestamp_header=timestamp)
    if settings.signature == "body-hmac":
        dedupe_only: Literal["dedupe-only"] | None = "dedupe-only" if settings.replay_protection else None
        return BodyHMAC(header, settings.signature_prefix, replay_protection=dedupe_only)
    if settings.signature_header or settings.timestamp_header:
        raise ConfigError(
            "standard-webhooks has headers of its own: "
            "unset BILLHOOK_SIGNATURE_HEADER and BILLHOOK_TIMESTAMP_HEADER"
        )
    return StandardWebhooks()
