"""What the checks examine: the options, sources, inbox and handlers of an app, or of the environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from billhook.doctor.finding import Finding, finding_of
from billhook.errors import BillhookError
from billhook.extension import ENVIRON, get_state
from billhook.inbox.reading.searches import newest_deliveries
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.judgement import Judgement, judge
from billhook.inbox.watching.overview import read_overview
from billhook.receiver.blueprint import webhook_routes

if TYPE_CHECKING:
    from flask import Flask

    from billhook.handlers import ConnectedHandlers
    from billhook.inbox import Inbox, StoredDelivery
    from billhook.inbox.running.workers import WorkerFigures
    from billhook.inbox.watching.overview import Overview
    from billhook.settings import Settings
    from billhook.signing.source import Source

SAMPLE = 1_000
"""How many of the newest deliveries are looked at, unless asked for others."""
_SAMPLE_BYTES = 16 * 1024 * 1024


@dataclass
class Setup:
    """The options, sources, inbox and handlers to examine.

    Each part is loaded when a check first asks for it, so that one which cannot be loaded is a finding, and
    the rest is examined all the same.
    """

    settings: Settings
    environ: Mapping[str, str]
    load_sources: Callable[[], Sequence[Source]]
    load_inbox: Callable[[], Inbox]
    load_handlers: Callable[[], ConnectedHandlers]
    app: Flask | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    sample_size: int = SAMPLE
    gunicorn_file: Path | None = None

    @classmethod
    def of_app(cls, app: Flask, **more: Any) -> Self:
        """Return the set-up of an app. Raises ConfigError for one without billhook."""
        state = get_state(app)
        return cls(
            state.settings,
            app.extensions.get(ENVIRON, os.environ),
            lambda: list({each.source.name: each.source for each in webhook_routes(app)}.values()),
            lambda: state.inbox,
            lambda: state.handlers,
            app,
            state.rules.clock.now(),
            **more,
        )

    @property
    def own_app(self) -> bool:
        """Whether the handlers run in a Flask app of the user's, or in its workers."""
        return self.app is not None and ENVIRON not in self.app.extensions

    @cached_property
    def handlers(self) -> ConnectedHandlers:
        """The registered handlers. Raises ConfigError."""
        return self.load_handlers()

    @cached_property
    def inbox(self) -> Inbox:
        """The inbox. Raises ConfigError."""
        return self.load_inbox()

    @cached_property
    def unusable(self) -> Finding | None:
        """Why the inbox cannot be used now; None if it can."""
        try:
            path: Path | None = getattr(self.inbox.database, "path", None)
            if path is not None and not path.parent.is_dir():
                return Finding(
                    "error", "inbox-missing", f"the folder of the inbox {path} does not exist",
                    "no receiver and no worker starts; if deliveries were stored before, they are elsewhere",
                    f"mkdir -p {shlex.quote(str(path.parent))}, or correct BILLHOOK_INBOX_URL",
                )  # fmt: skip
            if self.inbox.is_missing:
                return Finding(
                    "warning", "inbox-missing", f"there is no inbox at {self.inbox.database.display_url} yet",
                    "the first start makes it; if deliveries were stored before, they are elsewhere",
                    "start the receiver, or correct BILLHOOK_INBOX_URL; in a Flask app: flask --app …",
                )  # fmt: skip
            self.inbox.check_writable()
        except (BillhookError, click.ClickException) as error:
            return finding_of(error)
        return None

    @cached_property
    def inbox_now(self) -> datetime:
        """The time that the inbox goes by: its server's, or that of the clock which the app was given."""
        clock = self.inbox.database.clock if self.app is None else get_state(self.app).dispatcher.clock
        return clock.now()

    @cached_property
    def overview(self) -> Overview:
        """The figures of the inbox. Raises InboxUnavailable and SchemaMismatch."""
        return read_overview(self.inbox, self.inbox_now)

    @cached_property
    def judgement(self) -> Judgement:
        """Which conditions hold. Raises InboxUnavailable and SchemaMismatch."""
        settings = self.settings
        facts = Facts(self.inbox, self.inbox_now, settings.engine, settings.notify_file, given=self.overview)
        return judge(facts)

    @cached_property
    def sample(self) -> Sequence[StoredDelivery]:
        """The newest deliveries; none if the inbox cannot be used."""
        return () if self.unusable else newest_deliveries(self.inbox, self.sample_size, _SAMPLE_BYTES)

    @cached_property
    def workers(self) -> Sequence[WorkerFigures]:
        """The workers that run with handlers: `serve` may have been given those that are missing here."""
        return [] if self.unusable else [one for one in self.overview.workers if one.alive and one.handlers]
