"""Billhook, the Flask extension: read the settings, build the state, register the blueprint."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from importlib.metadata import entry_points
from inspect import isroutine
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from flask import Blueprint, Flask, current_app
from flask.helpers import get_debug_flag

from billhook.basics.callables import describe_kind
from billhook.clock import Clock, SystemClock
from billhook.errors import ConfigError, DuplicateHandlerName, MissingSecret
from billhook.handlers import Handlers
from billhook.settings import ENVIRON, OPTIONS, Settings, from_environ
from billhook.signing import Scheme
from billhook.signing.schemes import SCHEMES, schemes_with
from billhook.signing.source import DEFAULT_SOURCE, RECONCILE_SOURCE, TYPE_HEADER, Source

if TYPE_CHECKING:
    from billhook.extension.state import BillhookState
    from billhook.receiver.asgi import AsgiApp

__all__ = ["ENVIRON", "Billhook", "configured_scheme", "get_settings", "get_state"]

T = TypeVar("T")
_SYSTEM_CLOCK = SystemClock()
READY_SECONDS = 1.0
"""How long /readyz caches a good result: the inbox is written at most once in that time."""
_ALTERNATIVES = (
    ("BILLHOOK_SECRETS", "BILLHOOK_SECRETS_FILE"),
    ("BILLHOOK_API_REFRESH_TOKEN", "BILLHOOK_API_REFRESH_TOKEN_FILE"),
)


class Billhook:
    """Receives the service's webhooks in a Flask app.

    Reads its options (`billhook options` lists them) from the app's config, or else from the environment;
    keeps its state in `app.extensions["billhook"]`. `sources` are senders beside the default one, which is
    configured by BILLHOOK_SIGNATURE and BILLHOOK_SECRETS.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        handlers: Handlers | Iterable[Handlers] = (),
        sources: Source | Iterable[Source] = (),
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        """Check the arguments, and set `app` up if there is one. Raises ConfigError, with what to give."""
        self._handlers = _all_of(Handlers, "handlers", handlers)
        self._sources = _all_of(Source, "sources", sources)
        self._clock = clock
        if len({source.name for source in self._sources}) < len(self._sources):
            raise ConfigError("two sources have the same name: each name is one URL and one set of keys")
        _check_clock(clock)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask, url_prefix: str = "/webhooks/billing", *, host: str | None = None) -> None:
        """Accept deliveries at `POST <url_prefix>` and `POST <url_prefix>/<source.name>`.

        `host` is the one that they are posted to, for an app made with `host_matching=True`, which needs it.

        May be called for several apps, and by several Billhooks for one app, which then share its inbox.
        Raises ConfigError, which says what to change; the app is left unchanged then.
        """
        if not isinstance(app, Flask):
            raise _no_app(app)
        app.register_blueprint(self.blueprint(url_prefix, host=host))

    def blueprint(self, url_prefix: str = "/webhooks/billing", *, host: str | None = None) -> Blueprint:
        """Return the blueprint, to be registered by hand in an app or in another blueprint.

        >>> app.register_blueprint(hooks.blueprint(), url_prefix="/hooks")  # doctest: +SKIP

        The app's config is read when the blueprint is registered; ConfigError is raised then. Its name is
        `billhook`; a second one in the same app is named `billhook_2`.
        """
        from billhook.receiver.blueprint import DeferredBlueprint

        if not isinstance(url_prefix, str):
            raise ConfigError(
                f"url_prefix is {describe_kind(url_prefix)}: give the path that deliveries are posted to, as "
                'url_prefix="/webhooks/billing"'
            )
        return DeferredBlueprint("billhook", url_prefix, partial(self._mounted, host=host))

    @contextmanager
    def _mounted(self, app: Flask, url_prefix: str, *, host: str | None) -> Iterator[Blueprint]:
        """Yield the blueprint to register; after the block, complete the app's setup."""
        # It imports SQLAlchemy, which `import billhook` must not.
        from billhook.extension.state import BillhookState
        from billhook.receiver.blueprint import make_blueprint

        _check_host(app, host)
        settings = get_settings(app)
        sources = self._all_sources(settings)
        state: BillhookState | None = app.extensions.get("billhook")
        known = {source.name for source in sources} | (state.source_names if state else set())
        _check_handlers(state.handler_groups if state else (), self._handlers, known)
        if state is None:
            state = BillhookState(app, settings, self._clock)
        state.connect(self._handlers)
        blueprint = make_blueprint(
            f"billhook_{len(state.mounts) + 1}" if state.mounts else "billhook",
            state.wsgi_receiver,
            sources,
            url_prefix,
            state.exemptions,
            host,
        )
        yield blueprint
        state.exemptions.extend_to(blueprint)
        state.mounts.append(url_prefix)
        state.source_names |= known
        if "billhook" not in app.extensions:
            app.extensions["billhook"] = state
            app.cli.add_command(
                _Commands("billhook", help="Webhook deliveries: handle, look at and replay them.")
            )
            state.bind_engine()
            if state.starts_on_request:  # first, because hooks of the app may reject the request
                app.before_request_funcs.setdefault(None, []).insert(0, state.start_engine_on_request)
            state.close_at_exit()

    def start(self, app: Flask) -> None:
        """Start the engine in this process now, instead of with its first request.

        Call it after any fork: in gunicorn's `post_worker_init`, or when an ASGI server starts the app. In
        the parent of `flask run` with its reloader, which serves no requests, it does nothing.
        """
        state = get_state(app)
        from_the_cli = os.environ.get("FLASK_RUN_FROM_CLI") == "true"
        only_watches = from_the_cli and get_debug_flag() and os.environ.get("WERKZEUG_RUN_MAIN") != "true"
        if not only_watches:
            state.start()

    def health_blueprint(self) -> Blueprint:
        """Return a blueprint with `GET /healthz` and `GET /readyz` for probes, to be registered in an app.

        >>> app.register_blueprint(hooks.health_blueprint(), url_prefix="/internal")  # doctest: +SKIP

        `/readyz` answers 200 while a delivery could be stored, otherwise 503. It leaves nothing in the inbox,
        and asks it at most once a second.
        """
        from billhook.receiver.blueprint import make_health_blueprint

        return make_health_blueprint(lambda: get_state(current_app).inbox.check_writable(READY_SECONDS))

    def asgi_app(self, app: Flask) -> AsgiApp:
        """Return an ASGI 3 application for `app`, which receives deliveries on the event loop.

        Every other path goes to the Flask app, in a thread. The app's hooks and WSGI middleware do not see
        deliveries; their signature is what lets them in. Raises ConfigError for an app without billhook.
        """
        return get_state(app).asgi_app()

    def _all_sources(self, settings: Settings) -> Sequence[Source]:
        named = {source.name for source in self._sources}
        sources = [
            source
            if source.type_header is not None or source.type_field is not None
            else replace(source, type_header=settings.type_header)
            for source in self._sources
        ]
        if DEFAULT_SOURCE in named or (sources and not settings.read_secrets()):
            return sources
        return (default_source(settings), *sources)


class _Commands(click.Group):
    """`billhook …` in the app's own command line (`app.test_cli_runner()`), imported when it is used.

    `flask` finds the same group by its entry point; importing it here would load every command in every app.
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


def get_settings(app: Flask) -> Settings:
    """Return the options of an app: from its config, or else from BILLHOOK_… in the environment.

    Raises ConfigError, also for an unknown name in either.
    """
    config: dict[str, Any] = {key: app.config[key] for key in app.config if key.startswith("BILLHOOK_")}
    environ: Mapping[str, str] = app.extensions.get(ENVIRON, os.environ)
    beside = from_environ(environ)
    for pair in _ALTERNATIVES:
        if any(config.get(key) for key in pair):  # the config chose one of two alternatives
            for key in pair:
                beside.pop(key, None)
    said = {key: value for key, value in config.items() if value is not None or key not in beside}
    return Settings.from_mapping({**beside, **said})


def get_state(app: Flask) -> BillhookState:
    """Return the state of an app. Raises ConfigError for an app without billhook."""
    try:
        return app.extensions["billhook"]  # type: ignore[no-any-return]
    except KeyError:
        raise ConfigError("this Flask app has no billhook: call Billhook(...).init_app(app)") from None
    except AttributeError:
        raise _no_app(app) from None


def _all_of(kind: type[T], name: str, given: T | Iterable[T]) -> tuple[T, ...]:
    """Return an argument's objects as a tuple; one alone is taken too. Raises ConfigError for any other."""
    if isinstance(given, kind):
        return (given,)
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    objects: tuple[Any, ...] = tuple(given) if is_list else (given,)  # type: ignore[arg-type]
    for each in objects:
        if not isinstance(each, kind):
            said = "has" if is_list else "is"
            raise ConfigError(f"{name} {said} {describe_kind(each)}: {_remedy(kind, each)}")
    return objects


def _remedy(kind: type, given: object) -> str:
    if kind is Source:
        return 'give each sender as a Source, sources=[Source("eu", secrets=[…])]'
    if isinstance(given, ModuleType):
        names = [name for name, value in vars(given).items() if isinstance(value, Handlers)]
        module = given.__name__.rpartition(".")[2]
        return f"pass its Handlers, handlers=[{module}.{names[0] if names else 'handlers'}]"
    if isroutine(given):
        return "register it, @handlers.on(…), and pass the Handlers, handlers=[handlers]"
    return "pass the Handlers in which your functions are registered, handlers=[handlers]"


def _no_app(given: object) -> ConfigError:
    remedy = "give the Flask app, hooks.init_app(app)"
    if isinstance(given, Handlers | Sequence) and not isinstance(given, str):
        remedy = "handlers have a name, Billhook(handlers=[handlers])"
    elif isinstance(given, Blueprint):
        remedy = "in a blueprint, register hooks.blueprint()"
    elif isroutine(given):
        remedy = "call it, or call hooks.init_app(app) in it"
    return ConfigError(f"the app is {describe_kind(given)}: {remedy}")


def _check_host(app: Flask, host: str | None) -> None:
    if app.url_map.host_matching and host is None:
        raise ConfigError(
            "this app is made with host_matching=True, so each route belongs to a host: give the one that "
            'deliveries are posted to, init_app(app, host="hooks.example.com")'
        )
    if host is not None and not app.url_map.host_matching:
        raise ConfigError(
            f"host is {host!r}, but this app tells no hosts apart: leave it out, or make the app with "
            "Flask(…, host_matching=True, static_host=…)"
        )


def _check_clock(clock: Clock) -> None:
    try:
        offset = clock.now().utcoffset()
    except (AttributeError, TypeError):
        offset = None
    if offset != timedelta(0):
        raise ConfigError(
            f"clock is {describe_kind(clock)}: its now() must return an aware datetime in UTC, as that of "
            "FrozenClock(at) and SystemClock() in billhook.clock does"
        )


def _check_handlers(groups: Sequence[Handlers], own: Sequence[Handlers], sources: set[str]) -> None:
    """Refuse two handlers of one name among `groups` and `own`, and sources of `own` that are not there."""
    owner: dict[str, object] = {}
    for group in (*groups, *own):
        for _, handler in group.freeze():
            for name in handler.names:
                if owner.setdefault(name, handler) is not handler:
                    raise DuplicateHandlerName(name)
            unknown = sorted(set(handler.sources) - sources - {RECONCILE_SOURCE})
            if unknown and group in own:
                raise ConfigError(
                    f"handler {handler.name!r} names the source {unknown[0]!r}, which is not here: there is "
                    f"{', '.join(sorted(sources))}"
                )


def default_source(settings: Settings) -> Source:
    """Return the source that the options describe. Raises ConfigError."""
    secrets = settings.read_secrets()
    if not secrets:
        raise MissingSecret(DEFAULT_SOURCE, settings.secrets_file)
    header, field = settings.type_header, settings.type_field
    if field is not None and header != TYPE_HEADER:
        raise ConfigError(
            f"BILLHOOK_TYPE_HEADER is {header!r} and BILLHOOK_TYPE_FIELD is {field!r}: the "
            "type is in one of them, unset the other"
        )
    named = (header, None) if field is None else (None, field)
    return Source(DEFAULT_SOURCE, configured_scheme(settings), secrets, settings.tolerance_seconds, *named)


def configured_scheme(settings: Settings) -> Scheme:
    """Return the scheme that BILLHOOK_SIGNATURE and its related options describe. Raises ConfigError."""
    scheme = SCHEMES[settings.signature]
    arguments: dict[str, Any] = {}
    for option in OPTIONS:
        value = getattr(settings, option.attribute)
        if value == option.default:  # then it is that of the scheme, or what its algorithm makes of it
            continue
        if option.attribute in scheme.options:
            arguments[scheme.options[option.attribute]] = value
        elif option.attribute != "replay_protection" and schemes_with(option.attribute):
            what = option.attribute.removeprefix("signature_").replace("_", " ")
            raise ConfigError(f"{settings.signature} has no {what} to choose: unset {option.key}")
    return scheme(**arguments)
