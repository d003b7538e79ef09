"""What the checks examine: the options, sources, inbox and handlers of an app, or of the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from billhook.doctor.finding import Finding
from billhook.errors import BillhookError, InboxUnavailable, SchemaMismatch
from billhook.extension import ENVIRON, get_state
from billhook.inbox.diagnosis import SampledDelivery, newest_deliveries
from billhook.inbox.overview import read_overview
from billhook.receiver.blueprint import webhook_routes

if TYPE_CHECKING:
    from flask import Flask

    from billhook.handlers import ConnectedHandlers
    from billhook.inbox import Inbox
    from billhook.inbox.figures import Overview, WorkerFigures
    from billhook.settings import Settings
    from billhook.signing.source import Source

SAMPLE = 1_000
"""How many of the newest deliveries are looked at, unless asked for others."""
_SAMPLE_BYTES = 16 * 1024 * 1024


class Setup:
    """The options, sources, inbox and handlers to examine.

    Each part is loaded when a check first asks for it, so that one which cannot be loaded is a finding, and
    the rest is examined all the same.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        app: Flask | None = None,
        sources: Callable[[], Sequence[Source]],
        inbox: Callable[[], Inbox],
        handlers: Callable[[], ConnectedHandlers],
        sample_size: int = SAMPLE,
        gunicorn_file: Path | None = None,
        now: datetime | None = None,
    ) -> None:
        self.settings = settings
        self.environ = environ
        self.app = app
        self.own_app = app is not None and ENVIRON not in app.extensions
        """Whether the handlers run in a Flask app of the user's, or in its workers."""
        self.now = now or datetime.now(UTC)
        self.gunicorn_file = gunicorn_file
        self._sources, self._inbox, self._handlers = sources, inbox, handlers
        self._sample_size = sample_size

    @classmethod
    def of_app(cls, app: Flask, *, sample_size: int = SAMPLE, gunicorn_file: Path | None = None) -> Self:
        """Return the set-up of an app. Raises ConfigError for one without billhook."""
        state = get_state(app)
        return cls(
            state.settings,
            app.extensions.get(ENVIRON, os.environ),
            app=app,
            sources=lambda: list({each.source.name: each.source for each in webhook_routes(app)}.values()),
            inbox=lambda: state.inbox,
            handlers=lambda: state.handlers,
            sample_size=sample_size,
            gunicorn_file=gunicorn_file,
            now=state.dispatcher.clock.now(),
        )

    @cached_property
    def sources(self) -> Sequence[Source]:
        """The senders. Raises ConfigError."""
        return self._sources()

    @cached_property
    def handlers(self) -> ConnectedHandlers:
        """The registered handlers. Raises ConfigError."""
        return self._handlers()

    @cached_property
    def inbox(self) -> Inbox:
        """The inbox. Raises ConfigError."""
        return self._inbox()

    @cached_property
    def unusable(self) -> Finding | None:
        """Why the inbox cannot be used now; None if it can."""
        try:
            path: Path | None = getattr(self.inbox.database, "path", None)
            if path is not None and not path.is_file():
                return missing_inbox(self.inbox.database.display_url)
            self.inbox.check_writable()
        except (InboxUnavailable, SchemaMismatch) as error:
            return unusable_inbox(error)
        except (BillhookError, click.ClickException) as error:
            return misconfigured(error)
        return None

    @cached_property
    def overview(self) -> Overview:
        """The figures of the inbox. Raises InboxUnavailable and SchemaMismatch."""
        return read_overview(self.inbox, self.now)

    @cached_property
    def sample(self) -> Sequence[SampledDelivery]:
        """The newest deliveries; none if the inbox cannot be used."""
        return () if self.unusable else newest_deliveries(self.inbox, self._sample_size, _SAMPLE_BYTES)

    @cached_property
    def workers(self) -> Sequence[WorkerFigures]:
        """The workers that run with handlers: `serve` may have been given those that are missing here."""
        return [] if self.unusable else [one for one in self.overview.workers if one.alive and one.handlers]


def missing_inbox(place: str) -> Finding:
    """Return the finding about an inbox that does not exist."""
    return Finding(
        "warning", "inbox-missing", f"there is no inbox at {place} yet",
        "the first start makes it; if deliveries were stored before, they are elsewhere",
        "start the receiver, or correct BILLHOOK_INBOX_URL; in a Flask app: flask --app …",
    )  # fmt: skip


def unusable_inbox(error: BillhookError) -> Finding:
    """Return the finding about an inbox that cannot be read or written."""
    if isinstance(error, SchemaMismatch) and error.stores:
        return Finding(
            "warning", "inbox", str(error), "its receivers store deliveries, and its workers wait",
            "install the billhook that made the schema, and restart receivers and workers",
        )  # fmt: skip
    return Finding(
        "error", "inbox", str(error), "every delivery is answered 503 until it can be stored",
        "make the database reachable; for its schema run `billhook db upgrade`",
    )  # fmt: skip


def misconfigured(error: Exception) -> Finding:
    """Return the finding about a part that cannot be loaded."""
    return Finding(
        "error", "configuration", str(error), "billhook does not start, or not as you mean it",
        "correct what it names; `billhook options` lists the options",
    )  # fmt: skip
