"""Billhook: the Flask extension, and the only place where the parts are put together."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from flask import Flask

from billhook.clock import Clock, SystemClock
from billhook.dispatch import Handlers
from billhook.errors import ConfigError, DuplicateHandlerName, MissingSecret
from billhook.settings import Settings, read_secrets_file
from billhook.signing import BodyHMAC, Scheme, StandardWebhooks, TimestampedHMAC, TimestampedRSA
from billhook.signing.source import DEFAULT_SOURCE, Source

if TYPE_CHECKING:
    from billhook.assembly import Assembly

__all__ = ["Billhook", "assembly_of", "scheme_of"]

_SYSTEM_CLOCK = SystemClock()


class Billhook:
    """Receives the service's webhooks in a Flask app.

    Reads from the app's config the keys of `billhook.settings.OPTIONS` (`billhook options` lists them);
    keeps its state in `app.extensions["billhook"]`. `sources` are senders beside the default one, which
    is made of BILLHOOK_SIGNATURE and BILLHOOK_SECRETS when these are set.
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
        from billhook.assembly import Assembly  # brings SQLAlchemy: an app that only imports us need not pay
        from billhook.receiver import make_blueprint

        settings = Settings.from_mapping(app.config)
        sources = self._all_sources(settings)
        assembly: Assembly | None = app.extensions.get("billhook")
        _check_names([*(assembly.handler_groups if assembly else ()), *self._handlers])
        if assembly is None:
            assembly = Assembly(app, settings, self._clock)
        assembly.connect(self._handlers)
        blueprint = make_blueprint(
            f"billhook_{len(assembly.mounts) + 1}" if assembly.mounts else "billhook",
            assembly.intake,
            sources,
            url_prefix,
        )
        app.register_blueprint(blueprint)
        assembly.mounts.append(url_prefix)
        if "billhook" not in app.extensions:
            app.extensions["billhook"] = assembly
            assembly.bind()
            atexit.register(assembly.close)

    def start(self, app: Flask) -> None:
        """Begin to handle what is stored, in this process; else that begins with the first delivery.

        Call it after any fork: in gunicorn's `post_worker_init`.
        """
        assembly_of(app).engine.start()

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


def scheme_of(settings: Settings) -> Scheme:
    """The scheme that BILLHOOK_SIGNATURE and its companions describe. Raises ConfigError."""
    header = settings.signature_header or "X-Webhook-Signature"
    timestamp = settings.timestamp_header or "X-Webhook-Timestamp"
    if settings.signature == "timestamped-hmac":
        return TimestampedHMAC(header=header)
    if settings.signature == "timestamped-rsa":
        return TimestampedRSA(signature_header=header, timestamp_header=timestamp)
    if settings.signature == "body-hmac":
        dedupe_only: Literal["dedupe-only"] | None = "dedupe-only" if settings.replay_protection else None
        return BodyHMAC(header=header, replay_protection=dedupe_only)
    if settings.signature_header or settings.timestamp_header:
        raise ConfigError(
            "standard-webhooks has headers of its own: "
            "unset BILLHOOK_SIGNATURE_HEADER and BILLHOOK_TIMESTAMP_HEADER"
        )
    return StandardWebhooks()
