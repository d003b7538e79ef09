"""What one Flask app has of billhook: its inbox, its handlers and its engine, wired together once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flask import Flask, request

from billhook.clock import Clock
from billhook.dispatch import Handlers, RetrySchedule, Subscribers, connect
from billhook.engines import Cycle, Engine, InlineEngine, Loop, ThreadEngine, WorkerEngine
from billhook.engines.celery import CeleryEngine, find_celery
from billhook.errors import ConfigError, InboxUnavailable, OutOfResources
from billhook.events import EVENT_TYPES
from billhook.inbox import Inbox
from billhook.receiver import Intake
from billhook.receiver.probe import probe_of
from billhook.settings import Settings

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["Assembly"]

logger = logging.getLogger("billhook.inbox")

START_SECONDS = 0.8
"""How long a start waits for a database server: gunicorn listens already, and senders wait with it."""


class Assembly:
    """Held in `app.extensions["billhook"]`; made by Billhook.init_app, never by users."""

    def __init__(self, app: Flask, settings: Settings, clock: Clock) -> None:
        """Check the inbox, if it is there. Raises ConfigError; starts nothing, so a fork may follow."""
        self.app = app
        self.settings = settings
        self.mounts: list[str] = []
        self.source_names: set[str] = set()
        self.handler_groups: list[Handlers] = []
        self.inbox = Inbox(
            settings.inbox_url or f"sqlite:///{Path(app.instance_path) / 'billhook.db'}",
            deadline_seconds=settings.deadline_seconds,
            backlog_limit=settings.backlog_limit,
            schema=settings.inbox_schema,
            own_folder=settings.inbox_url is None,
        )
        try:
            self.inbox.prepare(START_SECONDS)
        except InboxUnavailable as error:
            if not self.inbox.database.may_return:
                raise ConfigError(str(error)) from None
            # Ending here would end gunicorn too, with the processes that work: its schema is checked, and
            # every delivery answered 503, at each first use until it is there.
            logger.error("%s; until it can be used, deliveries are answered 503", error)  # noqa: TRY400
        self.subscribers = Subscribers(app)
        self.cycle = Cycle(
            self.subscribers,
            clock,
            RetrySchedule.of(settings.retry_schedule_seconds),
            sender=app,
            context=app.app_context,
            client=self.client,
        )
        self._clients: dict[int, BillingClient] = {}
        self.engine = self._engine(settings.engine)
        self.intake = Intake(
            self.inbox,
            clock,
            sender=app,
            wake=self.engine.wake,
            max_body_bytes=settings.max_body_bytes,
            deadline_seconds=settings.deadline_seconds,
            known_types=EVENT_TYPES,
        )

    def start(self) -> None:
        """Start in this process what needs threads: first what takes deliveries, then the engine."""
        try:
            self.intake.start()
            self.engine.start()
        except (OutOfResources, RuntimeError, MemoryError) as error:
            # Ending here would end gunicorn too; each of them is started again at its first use.
            logger.error("%s; deliveries are answered 503 meanwhile", error)  # noqa: TRY400 - says it all

    def begin(self) -> None:
        """With each request of the app, whatever it asks for: what is stored is handled from now on.

        But not with a probe: the process that sends one ends at once, and is nobody's to call handlers in.
        """
        if isinstance(self.engine, ThreadEngine) and probe_of(request.environ) is None:
            try:
                self.engine.begin()
            except (RuntimeError, MemoryError, OSError) as error:  # the request is none the worse for it
                logger.error("handling does not begin yet: %s", error)  # noqa: TRY400 - says it all

    def connect(self, groups: Iterable[Handlers]) -> None:
        """Subscribe decorated handlers to their signals. Raises DuplicateHandlerName."""
        for group in groups:
            connect(group.freeze(), self.app)
            self.handler_groups.append(group)
        self.subscribers.check()

    def bind(self) -> None:
        """All of it is set up: what the app has beside Flask may know of it."""
        if isinstance(self.engine, CeleryEngine):
            self.engine.bind()
            self.app.extensions.setdefault("celery", self.engine.celery)

    def client(self) -> BillingClient:
        """The client of the service's API, made when this process first asks. ConfigError, MissingExtra.

        By process id, for connections do not survive a fork. Of two threads that make one at the same time
        one's is kept, and the other's never sent anything.
        """
        made = self._clients.get(os.getpid())
        if made is None:
            from billhook.client import BillingClient  # brings the HTTP library: only who calls need have it

            made = self._clients.setdefault(os.getpid(), BillingClient.from_settings(self.settings))
        return made

    def loop(self, threads: int) -> Loop:
        """The loop of a worker process."""
        return Loop(
            self.inbox,
            self.cycle,
            threads=threads,
            lease_seconds=self.settings.lease_seconds,
            retention_days=self.settings.retention_days,
            key_days=self.settings.key_days,
        )

    def handle_due(self) -> int:
        """Handle all that is due in this thread, whatever the engine; returns the attempts made."""
        inline = InlineEngine(self.inbox, self.cycle, lease_seconds=self.settings.lease_seconds)
        return inline.handle_due()

    def close(self) -> None:
        """End the engine, commit what waits and close the inbox in this process."""
        self.engine.stop()
        self.intake.close()
        self.inbox.close()
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _engine(self, name: str) -> Engine:
        lease_seconds = self.settings.lease_seconds
        days, key_days = self.settings.retention_days, self.settings.key_days
        if name == "thread":
            return ThreadEngine(
                self.inbox, self.cycle, lease_seconds=lease_seconds, retention_days=days, key_days=key_days
            )
        if name == "inline":
            return InlineEngine(self.inbox, self.cycle, lease_seconds=lease_seconds)
        if name == "celery":
            celery = find_celery(self.app.extensions, self.settings.celery_app)
            return CeleryEngine(
                self.inbox,
                self.cycle,
                celery,
                lease_seconds=lease_seconds,
                retention_days=days,
                key_days=key_days,
            )
        return WorkerEngine()
