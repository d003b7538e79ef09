"""Gather settings, app, inbox and sample for `billhook doctor`, and yield the findings about each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from billhook.cli.context import is_file_missing, load_settings, open_inbox, user_app
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import CliError
from billhook.doctor.configuration import (
    foreign_file,
    gunicorn_findings,
    handler_findings,
    is_own,
    option_findings,
    read_gunicorn_file,
    secret_file_findings,
    source_findings,
)
from billhook.doctor.examination import SAMPLE_BYTES, clock_findings, payload_findings
from billhook.doctor.finding import Finding
from billhook.doctor.inbox import inbox_findings, live_workers, unusable_inbox
from billhook.errors import BillhookError, InboxUnavailable, SchemaMismatch

if TYPE_CHECKING:
    from billhook.inbox.diagnosis import SampledDelivery
    from billhook.inbox.figures import WorkerFigures
    from billhook.settings import Settings
    from billhook.signing.source import Source


def examine(gunicorn_file: Path | None, sample_size: int, handlers: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield all findings; `handlers` are modules or files, in place of BILLHOOK_HANDLERS.

    What cannot be loaded is a finding, and the rest is examined all the same.
    """
    found: list[Finding] = []
    with _collecting_errors(found):
        settings = load_settings()
        found += [*option_findings(settings, os.environ), *secret_file_findings(settings)]
        with _collecting_errors(found):
            found += source_findings(_sources(settings))
        sample, working = _examine_inbox(found, settings.engine, sample_size)
        with _collecting_errors(found):
            arrived = Counter(each.event_type for each in sample if each.event_type)
            found += handler_findings(load_subscribers(handlers), arrived, working)
        found += _about_gunicorn(gunicorn_file, settings.deadline_seconds)
        found += [*payload_findings(sample), *clock_findings(sample)]
    # Two parts may stumble over the same mistake, such as an app that cannot be loaded.
    yield from dict.fromkeys(found)


@contextmanager
def _collecting_errors(found: list[Finding]) -> Iterator[None]:
    """Add an error that the block raises to the findings, and go on after the block."""
    try:
        yield
    except (BillhookError, CliError) as error:
        found.append(
            Finding(
                "error",
                "configuration",
                str(error),
                "billhook does not start, or not as you mean it",
                "correct what it names; `billhook options` lists the options",
            )
        )


def _sources(settings: Settings) -> Sequence[Source]:
    """Return the sources of the user's app, or the one that the options describe. Raises ConfigError."""
    from billhook.errors import MissingSecret
    from billhook.extension import configured_scheme
    from billhook.receiver.blueprint import webhook_routes
    from billhook.signing.source import DEFAULT_SOURCE, Source

    app = user_app()
    if app is not None:
        return list({route.source.name: route.source for route in webhook_routes(app)}.values())
    secrets = settings.read_secrets()
    if not secrets:
        raise MissingSecret(DEFAULT_SOURCE, settings.secrets_file)
    return [Source(DEFAULT_SOURCE, configured_scheme(settings), secrets, settings.tolerance_seconds)]


def _examine_inbox(
    found: list[Finding], engine: str, sample_size: int
) -> tuple[Sequence[SampledDelivery], Sequence[WorkerFigures]]:
    """Add what is found about the inbox; return a sample of its deliveries, and the workers with handlers."""
    from billhook.inbox.diagnosis import newest_deliveries

    with _collecting_errors(found), open_inbox(missing_ok=True) as inbox:
        if is_file_missing(inbox):
            found.append(
                Finding(
                    "warning",
                    "inbox-missing",
                    f"there is no inbox at {inbox.database.display_url} yet",
                    "the first start makes it; if deliveries were stored before, they are elsewhere",
                    "start the receiver, or correct BILLHOOK_INBOX_URL; in a Flask app: flask --app …",
                )
            )
            return (), ()
        now = datetime.now(UTC)
        try:
            found += inbox_findings(inbox, engine, own_app=user_app() is not None, now=now)
            return newest_deliveries(inbox, sample_size, SAMPLE_BYTES), live_workers(inbox, now)
        except (InboxUnavailable, SchemaMismatch) as error:
            found.append(unusable_inbox(error))
    return (), ()


def _about_gunicorn(file: Path | None, deadline_seconds: float) -> Iterator[Finding]:
    path = file or Path("gunicorn.conf.py")  # where gunicorn itself looks for it
    if path.is_file():
        # A file that is only found here, not named, must not run code of another user's.
        settings = read_gunicorn_file(path) if file or is_own(path) else foreign_file(path)
        if isinstance(settings, Finding):
            yield settings
        else:
            yield from gunicorn_findings(settings, deadline_seconds)
