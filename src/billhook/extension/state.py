"""BillhookState: the inbox, dispatcher, engine and client of one Flask app."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from flask import Flask, request

from billhook.basics.concurrency import reset_in_child, startup_context
from billhook.basics.engine_kinds import ENGINES, WORKER, EngineKind, Place
from billhook.clock import Clock, SystemClock
from billhook.engines import Dispatcher, Engine, InlineEngine, Worker
from billhook.engines.dispatcher import handler_limits
from billhook.engines.maintenance import MaintenanceOptions
from billhook.engines.newest_list import NewestList
from billhook.engines.watch import WEB_PATIENCE, Watch
from billhook.errors import (
    ConfigError,
    ForeignFile,
    InboxUnavailable,
    MissingExtra,
    OutOfResources,
    SchemaMismatch,
    UnfitEncoding,
)
from billhook.errors.program import add_app, may_receive, remove_app
from billhook.events import EVENT_TYPES
from billhook.handlers import ConnectedHandlers, Handlers, RetrySchedule, connect
from billhook.inbox import Inbox
from billhook.inbox.storing.probe import unavailable_text
from billhook.logs import fields
from billhook.receiver.delivery_rules import DeliveryRules
from billhook.receiver.exemptions import Exemptions
from billhook.receiver.wsgi import WsgiReceiver, find_probe
from billhook.settings import ENVIRON, Settings

if TYPE_CHECKING:
    from billhook.client import BillingClient
    from billhook.receiver.asgi import AsgiApp

logger = logging.getLogger("billhook.inbox")
engine_logger = logging.getLogger("billhook.engines")

START_SECONDS = 0.8
"""How long a start waits for a database server. Kept short: gunicorn already accepts connections."""
_NO_RESOURCES = (OutOfResources, RuntimeError, MemoryError, OSError)
"""The exceptions of a start when the system has no thread, memory or descriptor left."""


class BillhookState:
    """The state in `app.extensions["billhook"]`; created by Billhook.init_app, never by users."""

    def __init__(self, app: Flask, settings: Settings, clock: Clock) -> None:
        """Open the inbox and check its schema. Raises ConfigError; starts no thread, so a fork may follow."""
        add_app(app, standalone=ENVIRON in app.extensions, command=settings.command)
        self.app = app
        self.settings = settings
        self.mounts: list[str] = []
        self.exemptions = Exemptions(app, rate_limits_apply=settings.rate_limits == "apply")
        self.source_names: set[str] = set()
        self.handler_groups: list[Handlers] = []
        self.inbox = _open_inbox(app, settings)
        self.handlers = ConnectedHandlers(app)
        self.inbox.limits = partial(handler_limits, self.handlers)
        # Of several machines: a clock that the user gives decides itself.
        inbox_clock = self.inbox.database.clock if type(clock) is SystemClock else clock
        self.dispatcher = Dispatcher(
            self.handlers,
            inbox_clock,
            RetrySchedule.of(settings.retry_schedule_seconds),
            jitter=settings.retry_jitter,
            lists=NewestList(self.inbox, self.handlers),
            sender=app,
            context=app.app_context,
            client=self.client,
        )
        self.watch = Watch.of(self.inbox, settings, lambda: self.dispatcher.clock.now())
        self._maintenance = MaintenanceOptions(settings.retention_days, settings.key_days, self.watch)
        self._parents_clients: list[BillingClient | None] = []
        self._client: BillingClient | None = None
        self._making_client = threading.Lock()
        reset_in_child(self._reset_in_child)
        self.engine = self._engine(ENGINES[settings.engine])
        self.starts_on_request = self.engine.kind.place is Place.WEB
        """Whether the engine runs in this process, from its first request on."""
        self.rules = DeliveryRules(
            clock,
            inbox_clock,
            sender=app,
            wake=self.engine.wake if self.engine.is_woken else None,
            count=self.inbox.count,
            known_types=EVENT_TYPES,
            max_body_bytes=settings.max_body_bytes,
            deadline_seconds=settings.deadline_seconds,
            wake_blocks=self.engine.kind.place is Place.REQUEST,
        )
        self.wsgi_receiver = WsgiReceiver(self.rules, self.inbox)

    def start(self) -> None:
        """Start this process's threads: the receiver's, the engine, the watch; also after `close`."""
        add_app(self.app, standalone=ENVIRON in self.app.extensions, command=self.settings.command)
        self.close_at_exit()
        try:
            self.wsgi_receiver.start()
            self.engine.start()
            self.watch.start(WEB_PATIENCE)
        except _NO_RESOURCES as error:
            # An exception here would stop gunicorn too; each thread is started again at its first use.
            text = "could not start receiver threads, deliveries get 503 until they start: %s"
            logger.error(text, error, extra=fields(cause=error))  # noqa: TRY400 - says it all

    def require_schema(self) -> None:
        """Raise SchemaMismatch if the inbox's schema does not fit; a server that is away may still come."""
        with suppress(InboxUnavailable):
            self.inbox.prepare(START_SECONDS)

    def asgi_app(self) -> AsgiApp:
        """Return an ASGI application for the app; see Billhook.asgi_app."""
        from billhook.receiver.asgi import AsgiApp

        return AsgiApp(
            self.app,
            self.rules,
            self.inbox,
            start=self.start,
            close=self.close,
            ensure_engine=self.ensure_engine if self.starts_on_request else None,
        )

    def start_engine_on_request(self) -> None:
        """Start the thread engine with the app's first request, if it does not run yet.

        A probe does not start it: the process that sends one exits right after, and must not call handlers.
        """
        if find_probe(request.environ) is None:
            self.ensure_engine()

    def ensure_engine(self) -> None:
        """Start the thread engine in this process if it does not run; other engines need no start."""
        try:
            self.engine.ensure_started()
        except _NO_RESOURCES as error:  # the request goes on
            text = "engine could not start, retrying with the next request: %s"
            engine_logger.error(text, error, extra=fields(cause=error))  # noqa: TRY400 - says it all

    def engine_disabled(self) -> AbstractContextManager[None]:
        """Start no thread that handles deliveries during the block: they are for the processes that serve."""
        return self.engine.disabled()

    def connect(self, groups: Iterable[Handlers]) -> None:
        """Subscribe decorated handlers to their signals. Raises DuplicateHandlerName."""
        for group in groups:
            connect(group.freeze(), self.app)
            self.handler_groups.append(group)
        self.handlers.check_names()

    def bind_engine(self) -> None:
        """Have the workers of another program call the engine; call it when the setup is complete."""
        self.engine.bind(self.app.extensions)

    def client(self) -> BillingClient:
        """Return this process's API client, created at first use. Raises ConfigError and MissingExtra.

        Each process creates its own: connections do not survive a fork.
        """
        if self._client is None:
            # Imported here: only apps that call the API need the HTTP library, an optional extra.
            from billhook.client import BillingClient

            with self._making_client:
                if self._client is None:  # pragma: no branch - another thread may have been first
                    self._client = BillingClient.from_settings(self.settings)
        return self._client

    def _reset_in_child(self) -> None:
        self._parents_clients.append(self._client)  # its connections belong to the parent
        self._client = None
        self._making_client = threading.Lock()

    def use_clock(self, clock: Clock) -> None:
        """Use another clock from now on: for tests, with the engines `worker` and `inline` alone."""
        self.dispatcher.clock = self.rules.clock = self.rules.inbox_clock = clock

    def worker(self, threads: int, kind: EngineKind = WORKER) -> Worker:
        """Return a new worker, for a worker process; it is listed as of that kind."""
        # Here the app is imported to its end: more may be set than when `init_app` was called.
        self.dispatcher.startup_context = startup_context()
        return Worker(
            self.inbox,
            self.dispatcher,
            threads=threads,
            lease_seconds=self.settings.lease_seconds,
            engine=kind.name,
            maintenance=self._maintenance,
        )

    def handle_due(self) -> int:
        """Handle all due runs in this thread, with any engine; return the number of attempts."""
        inline = InlineEngine(self.inbox, self.dispatcher, lease_seconds=self.settings.lease_seconds)
        return inline.handle_due()

    def close_at_exit(self) -> None:
        """Have `close` called when this process ends, once; also after `close`."""
        atexit.unregister(self.close)
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the engine, commit pending deliveries and close the inbox in this process."""
        self.engine.stop()
        self.dispatcher.lists.stop()
        self.watch.stop()
        self.rules.close()
        self.inbox.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()
        remove_app(self.app)
        atexit.unregister(self.close)  # it would keep the app in memory until the process ends

    def _engine(self, kind: EngineKind) -> Engine:
        # By its name: only the engine that is chosen is imported.
        try:
            engine: type[Engine] = resolve_name(kind.code)
        except ModuleNotFoundError as error:
            if error.name != kind.package:
                raise
            raise MissingExtra(f"BILLHOOK_ENGINE={kind.name}", kind.package) from None
        how = engine.parts(self.settings, self.app.extensions)
        return engine(
            self.inbox,
            self.dispatcher,
            lease_seconds=self.settings.lease_seconds,
            maintenance=self._maintenance,
            **how,
        )


def _open_inbox(app: Flask, settings: Settings) -> Inbox:
    """Return the inbox with its schema checked. Raises ConfigError.

    An app that mounts billhook starts with any schema, and with a server that is away.
    """
    inbox = Inbox(
        settings.inbox_url or f"sqlite:///{Path(app.instance_path) / 'billhook.db'}",
        deadline_seconds=settings.deadline_seconds,
        backlog_limit=settings.backlog_limit,
        schema=settings.inbox_schema,
        pool_mode=settings.inbox_pool_mode,
        own_folder=settings.inbox_url is None,
        known_types=EVENT_TYPES,
        release=settings.release,
    )
    try:
        inbox.prepare(START_SECONDS)
    except InboxUnavailable as error:
        if not inbox.database.may_be_away:
            raise ConfigError(str(error)) from None
        # An exception here would stop gunicorn with all its workers. Instead, the schema is checked again
        # at each use, and deliveries are answered 503 until the database is back.
        logger.error(unavailable_text(), error, extra=fields(cause=error.cause))  # noqa: TRY400
    except SchemaMismatch as error:
        if ENVIRON in app.extensions or isinstance(error, ForeignFile | UnfitEncoding):
            raise  # the standalone app serves nothing else, and another program's file means a wrong option
        # The app's own pages and commands work, its migrations among them; each use checks the schema again.
        if may_receive():  # else the command itself says it
            text = "deliveries get 503 until the inbox's schema fits: %s"
            logger.error(text, error, extra=fields(cause=error))  # noqa: TRY400
    return inbox
