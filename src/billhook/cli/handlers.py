"""`billhook handlers`: who handles what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from billhook.cli.faults import Fault
from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json, handlers_argument, require_all
from billhook.cli.where import users_app

if TYPE_CHECKING:
    from billhook.dispatch import Subscriber, Subscribers

__all__ = ["find_subscribers", "handler_names", "handlers", "refuse_unhandled"]

UNKNOWN = "(unknown types)"


@click.command(short_help="List who handles which event type.")
@handlers_argument
@require_all
@as_json
def handlers(handlers: Sequence[str], require_all: bool, as_json: bool) -> None:
    """List the handlers, the event types of each, and the types that nobody handles.

    HANDLERS are modules or .py files; without any, those of BILLHOOK_HANDLERS. Standalone no secrets are
    needed; under `flask --app` the app is built, with all that it needs.

    \b
    Examples:
      billhook handlers myshop/billing.py
      billhook handlers myshop/billing.py --require-all
      flask --app myshop billhook handlers --json
    """
    subscribers = find_subscribers(handlers)
    _print(subscribers, as_json)
    if not as_json and not handler_names(subscribers):
        click.echo(
            "No handler is registered: name your modules or files, as arguments or in BILLHOOK_HANDLERS"
            if users_app() is None
            else "No handler is registered: give the app's Billhook some, Billhook(handlers=[…])",
            err=True,
        )
    if require_all:
        refuse_unhandled(subscribers)


def refuse_unhandled(subscribers: Subscribers) -> None:
    """Raise Fault if there is an event type that nobody handles; unknown types are none of them."""
    from billhook.events import EVENT_TYPES

    unhandled = [event_type for event_type in EVENT_TYPES if not subscribers.names(event_type)]
    if unhandled:
        raise Fault(
            f"nobody handles {', '.join(unhandled)}: register a handler for each (on_any() takes all of "
            "them), or leave --require-all out"
        )


def _print(subscribers: Subscribers, as_json: bool) -> None:
    from billhook.events import EVENT_TYPES

    by_name: dict[str, tuple[Subscriber, list[str]]] = {}
    unhandled = []
    for event_type in (*EVENT_TYPES, UNKNOWN):
        found = subscribers.of(event_type)
        if not found:
            unhandled.append(event_type)
        for name, subscriber in found.items():
            by_name.setdefault(name, (subscriber, []))[1].append(event_type)
    if as_json:
        print_json({"handlers": [_facts(*entry) for entry in by_name.values()], "unhandled": unhandled})
        return
    every = len(EVENT_TYPES) + 1
    listed = [subscriber for subscriber, _ in by_name.values()]
    columns: dict[str, list[object]] = {
        "handler": list(by_name),
        "event types": ["all" if len(types) == every else "\n".join(types) for _, types in by_name.values()],
        "time-out (s)": [one.timeout_seconds for one in listed],
    }
    if any(one.sources for one in listed):
        columns["sources"] = ["\n".join(one.sources) or "all" for one in listed]
    if any(one.ordered_by for one in listed):
        columns["ordered by"] = [one.ordered_by for one in listed]
    if any(one.identity for one in listed):
        columns["identity"] = [_identity(one) for one in listed]
    print_table("", list(columns), zip(*columns.values(), strict=True), whole=["event types"])
    if unhandled:
        click.echo(f"Stored, and handled by nobody: {', '.join(unhandled)}")


def handler_names(subscribers: Subscribers) -> set[str]:
    """Of all handlers there are, whatever they handle."""
    from billhook.events import EVENT_TYPES

    return {name for event_type in (*EVENT_TYPES, UNKNOWN) for name in subscribers.names(event_type)}


class _Sender:
    """In the place of an app. No object(): signals must notice that it is gone, for its id comes again."""


def find_subscribers(names: Sequence[str] = ()) -> Subscribers:
    """Those of the user's app, or those that the handlers' modules make, without an inbox. ConfigError."""
    from billhook.cli.where import environment, user_code
    from billhook.dispatch import Subscribers, connect
    from billhook.extension import assembly_of
    from billhook.settings import Settings, from_environ
    from billhook.standalone import load_handlers

    app = users_app()
    if app is not None:
        if names:
            raise click.UsageError("the app has its own handlers: leave HANDLERS out")
        return assembly_of(app).subscribers
    settings = Settings.from_mapping(from_environ(environment(names)))
    sender = _Sender()
    with user_code("a module of the handlers"):
        for group in load_handlers(settings.handlers):
            connect(group.freeze(), sender)
    subscribers = Subscribers(sender)
    subscribers.check()
    return subscribers


def _identity(subscriber: Subscriber) -> str:
    if not subscriber.identity:
        return ""
    return "\n".join([*subscriber.identity, f"for {subscriber.identity_window_seconds:g} s"])


def _facts(subscriber: Subscriber, event_types: list[str]) -> dict[str, object]:
    return {
        "name": subscriber.name,
        "aliases": list(subscriber.aliases),
        "event_types": event_types,
        "timeout_seconds": subscriber.timeout_seconds,
        "retry_schedule_seconds": list(subscriber.retry.delays_seconds) if subscriber.retry else None,
        "sources": list(subscriber.sources),
        "ordered_by": subscriber.ordered_by,
        "identity": list(subscriber.identity),
        "identity_window_seconds": subscriber.identity_window_seconds if subscriber.identity else None,
    }
