"""The page of handlers: each with its types and options, and whether it is paused."""

from __future__ import annotations

from typing import NamedTuple

from flask import Response, abort, request, url_for

from billhook.clock import format_duration
from billhook.dashboard.context import DashboardContext
from billhook.events import EVENT_TYPES
from billhook.handlers.description import identity_text, limits_text, order_text, types_by_handler
from billhook.handlers.handler import Handler
from billhook.inbox import PausedHandler
from billhook.inbox.deliveries import handler_names
from billhook.inbox.overview import HandlerFigures, read_overview

_LONGEST = 500


class HandlerRow(NamedTuple):
    """A handler in the list; `terms` are its options in words, `loaded` says whether this app has it.

    `figures` are of the last 24 hours; None if it was not called.
    """

    name: str
    event_types: tuple[str, ...]
    terms: tuple[str, ...]
    loaded: bool
    figures: HandlerFigures | None
    paused: PausedHandler | None


def show_handlers(context: DashboardContext) -> Response:
    """Return the page of all handlers, including stored names that this app has not loaded."""
    handled, unhandled = types_by_handler(context.state.handlers, "unknown types")
    paused = {one.name: one for one in context.inbox.paused_handlers()}
    known = {alias for one, _ in handled.values() for alias in (one.name, *one.aliases)}
    others = (set(handler_names(context.inbox)) | set(paused)) - known
    figures = {one.name: one for one in read_overview(context.inbox, context.now).handlers}
    rows = []
    for name in sorted(handled.keys() | others):
        loaded = name in handled
        types = tuple(handled[name][1]) if loaded else ()
        terms = _terms(handled[name][0]) if loaded else ()
        rows.append(HandlerRow(name, types, terms, loaded, figures.get(name), paused.get(name)))
    return context.pages.render(
        "handlers.html", handlers=rows, every=len(EVENT_TYPES) + 1, unhandled=unhandled, now=context.now
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
    known = {alias for one in context.state.handlers.every() for alias in (one.name, *one.aliases)}
    paused = (one.name for one in context.inbox.paused_handlers())
    if name not in known.union(handler_names(context.inbox), paused):
        abort(400, "There is no handler of that name.")
    return name


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
