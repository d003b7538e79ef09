"""The page of handlers: each with its types and options, and whether it is paused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from flask import Response, abort, request, url_for

from billhook.clock import format_duration
from billhook.dashboard.context import DashboardContext
from billhook.events import EVENT_TYPES, UnknownEvent
from billhook.handlers import ConnectedHandlers
from billhook.handlers.description import identity_text, limits_text, order_text
from billhook.handlers.handler import Handler
from billhook.inbox.deliveries import handler_names
from billhook.inbox.figures import HandlerFigures
from billhook.inbox.overview import read_overview

UNKNOWN = "unknown types"
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class HandlerRow:
    """A handler in the list; `terms` are its options in words, `loaded` says whether this app has it.

    `figures` are of the last 24 hours; None if it was not called.
    """

    name: str
    event_types: tuple[str, ...]
    terms: tuple[str, ...]
    loaded: bool
    figures: HandlerFigures | None = None
    paused_at: datetime | None = None
    why: str | None = None


def show_handlers(context: DashboardContext) -> Response:
    """Return the page of all handlers, including stored names that this app has not loaded."""
    connected = context.state.handlers
    handled: dict[str, tuple[Handler, list[str]]] = {}
    unhandled = []
    for event_type in (*EVENT_TYPES, UnknownEvent.signal_name):
        shown = UNKNOWN if event_type == UnknownEvent.signal_name else event_type
        found = connected.for_event_type(event_type)
        if not found:
            unhandled.append(shown)
        for one in found:
            handled.setdefault(one.name, (one, []))[1].append(shown)
    paused = {one.name: one for one in context.inbox.paused_handlers()}
    known = {alias for one, _ in handled.values() for alias in (one.name, *one.aliases)}
    others = sorted((set(handler_names(context.inbox)) | set(paused)) - known)
    figures = {one.name: one for one in read_overview(context.inbox, context.now).handlers}
    rows = [
        (name, tuple(types), _terms(one), True, figures.get(name)) for name, (one, types) in handled.items()
    ]
    rows += [(name, (), (), False, figures.get(name)) for name in others]
    return context.pages.render(
        "handlers.html",
        handlers=[
            HandlerRow(*row, paused_at=paused[row[0]].since, why=paused[row[0]].why)
            if row[0] in paused
            else HandlerRow(*row)
            for row in sorted(rows, key=lambda row: row[0])
        ],
        every=len(EVENT_TYPES) + 1,
        unhandled=unhandled,
        now=context.now,
    )


def pause(context: DashboardContext) -> Response:
    """Pause a handler, and return to the list."""
    name = _named(context)
    why = " ".join(request.form.get("why", "").split())[:_LONGEST].replace("\0", "") or None
    with context.recorded("pause", name):
        context.inbox.pause_handler(name, why, context.now)
    return context.pages.redirect(url_for(".handlers"), f"{name} is paused: its deliveries wait.", "warn")


def resume(context: DashboardContext) -> Response:
    """Resume a paused handler, and return to the list."""
    name = _named(context)
    if name not in {one.name for one in context.inbox.paused_handlers()}:
        return context.pages.redirect(url_for(".handlers"), f"{name} was not paused.", "warn")
    with context.recorded("resume", name):
        context.inbox.resume_handler(name)
    return context.pages.redirect(url_for(".handlers"), f"{name} is resumed.")


def _named(context: DashboardContext) -> str:
    """Return the handler that the form names; an unknown one is a bad request."""
    name = request.form.get("handler", "")
    if name not in _known(context.state.handlers) | set(handler_names(context.inbox)) | {
        one.name for one in context.inbox.paused_handlers()
    }:
        abort(400, "There is no handler of that name.")
    return name


def _known(connected: ConnectedHandlers) -> set[str]:
    return {name for one in connected.every() for name in (one.name, *one.aliases)}


def _terms(handler: Handler) -> tuple[str, ...]:
    """Return the options of a handler in words, a line each."""
    terms = []
    if handler.timeout_seconds is not None:
        terms.append(f"time-out {format_duration(handler.timeout_seconds)}")
    terms += limits_text(handler).splitlines()
    if (order := order_text(handler)) is not None:
        terms.append(f"ordered by {order}")
    if handler.identity:
        terms.append("same content: " + ", ".join(identity_text(handler).splitlines()))
    if handler.sources:
        terms.append("sources " + ", ".join(handler.sources))
    if handler.retry is not None:
        delays = ", ".join(map(format_duration, handler.retry.delays_seconds))
        terms.append(f"retries after {delays}" if delays else "no retries")
    if handler.aliases:
        terms.append("formerly " + ", ".join(handler.aliases))
    return tuple(terms)
