"""The handlers of a history: one of each kind, with options that a seed chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from billhook import Handlers
from billhook.events import CustomerCreated, InvoicePaymentStatusChanged, PingTest
from model.own_types import class_of
from model.records import ANY, UNKNOWN, Handler

PROCESS_WAITS = (3.0, 60.0)
STATUS, PING, CREATED = (each.__name__ for each in (InvoicePaymentStatusChanged, PingTest, CustomerCreated))
KNOWN = (("Acme0",), ("Acme0", "Acme1"), ("Acme1",))
"""The types of the user's own that each release has a class of: what was unknown gets one, and loses it."""
_WAITS = (None, (), (0.0,), (5.0, 30.0), (0.0, 0.0, 10.0))


_PLAIN = ("aliases", "sources", "at_most", "pause_after", "ordered_by", "newest_only", "newest_by")


def catalogue(chance: random.Random) -> list[Sequence[Handler]]:
    """Return the sets of handlers that the releases of a history have."""

    def one(name: str, *types: str, **options: Any) -> Handler:
        return Handler(name, types, chance.choice(_WAITS), **options)

    handlers = [
        one("plain", PING),
        one("every", ANY),
        one("strange", UNKNOWN),
        one("european", PING, CREATED, sources=("eu",)),
        one("ordered", STATUS, ordered_by="invoice_id"),
        one("perhaps", STATUS, ordered_by="invoice_pdf_url"),
        one("newest", STATUS, ordered_by="invoice_id", newest_only=True),
        one("latest", STATUS, ordered_by="invoice_id", newest_only=True, newest_by="paid_at"),
        one(
            "once",
            STATUS,
            identity=("invoice_id", "billing_status"),
            window_seconds=chance.choice((60, 86_400)),
        ),
        one("bounded", PING, at_most=chance.choice((1, 2))),
        one("paced", CREATED, rate=chance.choice(((6, 60.0), (2, 1.0)))),
        one("fragile", PING, STATUS, pause_after=chance.choice((1, 2, 3))),
    ]
    kept = [each for each in handlers if chance.random() < 0.6] or handlers[:1]
    sets = [kept, [each for one in kept for each in _changed(chance, one)], kept[:-1] or kept]
    own = [one("shop", "Acme0", at_most=2), one("late", "Acme1")][: chance.choice((1, 2))]
    return [
        [replace(each, knows=frozenset(known)) for each in (*handlers, *own) if _is_there(each, known)]
        for handlers, known in zip(sets, KNOWN, strict=True)
    ]


def _is_there(handler: Handler, known: Sequence[str]) -> bool:
    """Return whether a release has a handler: that of an own type needs its class."""
    return all(not name.startswith("Acme") or name in known for name in handler.types)


def _changed(chance: random.Random, handler: Handler) -> list[Handler]:
    """Return what becomes of a handler in the next release: renamed, replaced, or with other options."""
    how = chance.random()
    if handler.ordered_by and how > 0.7:
        return [replace(handler, newest_only=not handler.newest_only, newest_by=None)]
    if how < 0.35:
        return [replace(handler, name=f"new_{handler.name}", aliases=(handler.name,))]
    if how < 0.5:
        return [replace(handler, name=f"other_{handler.name}")]
    if how < 0.6:
        return [replace(handler, waits=(1.0,), at_most=1)]
    return [handler]


def registered(handlers: Sequence[Handler], function: Callable[..., None]) -> Handlers:
    """Register a function under each of these handlers."""
    registry = Handlers()
    for each in handlers:

        def handle(event: Any, delivery: Any) -> None:
            function(event, delivery)

        handle.__annotations__ = {}
        options = _options(each)
        if ANY in each.types:
            registry.on_any(**options)(handle)
        elif UNKNOWN in each.types:
            registry.on_unknown(**options)(handle)
        else:
            registry.on(*map(class_of, each.types), **options)(handle)
    return registry


def _options(handler: Handler) -> dict[str, Any]:
    """Return a handler's options as its decorator takes them."""
    options: dict[str, Any] = {"name": handler.name}
    if handler.waits is not None:
        options["retry"] = list(handler.waits)
    if handler.rate is not None:
        number, seconds = handler.rate
        options["rate"] = f"{number}/{'s' if seconds == 1 else 'min'}"
    for name in (*_PLAIN, "identity"):
        if getattr(handler, name):
            options[name] = getattr(handler, name)
    if handler.identity:
        options["identity_window_seconds"] = handler.window_seconds
    return options
