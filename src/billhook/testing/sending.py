"""Send deliveries to an app under test, signed and through its receiver, or make one for a plain call."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from flask import Flask

from billhook.errors import ConfigError
from billhook.events import EVENT_TYPES, Event, UnknownEvent, sample
from billhook.events.samples import refuse_misspelt
from billhook.handlers import Delivery, Headers
from billhook.posting import AppPoster, sign
from billhook.receiver.blueprint import find_route
from billhook.signing.source import DEFAULT_SOURCE, TYPE_HEADER
from billhook.testing.apps import preparation

if TYPE_CHECKING:
    from billhook.client import BillingClient

_OPTIONS = ("signed", "age_seconds", "key", "source")
"""The options of `deliver`, for which a misspelt field may be meant."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response that the service would get."""

    status: int
    json: Any


def deliver(
    app: Flask,
    event: type[Event] | Event | UnknownEvent | str,
    *,
    signed: bool | str = True,
    age_seconds: float = 0,
    key: str | None = None,
    source: str | None = None,
    **overrides: Any,
) -> Answer:
    """Sign an event, and post it to the app as the service does; return the answer.

    Of a class, or the name of one, it is the sample of `billhook.events.sample`; `overrides` replace fields.
    One that looks like a misspelt field is a TypeError, and one that is like no field adds it. A name that no
    class has gives an event of an unknown type. `signed` is False for none, or a text: the
    secret to sign with. `age_seconds` is the age of the signature, `key` the message id, `source` the
    name of the source; without one it is the default, or the only one.
    """
    made = _event(event, overrides)
    route = find_route(app, source, option="source=")
    body = made.to_json()
    headers = {route.source.type_header or TYPE_HEADER: made.type}
    if signed is not False:
        secret = signed if isinstance(signed, str) else route.source.secrets[0]
        if not isinstance(secret, str):
            raise ConfigError(
                f"source {route.source.name!r} has only public keys: give the private key, signed=KEY"
            )
        now = preparation(app).clock.now() - timedelta(seconds=age_seconds)
        signed_as = (made.type, body, now, key or _new_key())
        headers |= sign(route.source.scheme, secret, *signed_as, type_header=route.source.type_header)
    with AppPoster(app, route.path).send(body, headers) as response:
        return Answer(response.status_code, response.get_json(silent=True))


def delivery_of(
    event: Event | UnknownEvent,
    *,
    handler: str = "handler",
    client: BillingClient | None = None,
    **facts: Any,
) -> Delivery:
    """Return a delivery of an event, for a call of a handler as a plain function.

    It is a new one with each call, unless `key` is among the `facts`, the other fields of Delivery. `client`
    is what `delivery.client` returns.
    """
    now = datetime.now(UTC)
    made: dict[str, Any] = {
        "id": 1,
        "key": _new_key(),
        "source": DEFAULT_SOURCE,
        "event_type": event.type,
        "attempt": 1,
        "received_at": now,
        "signed_at": now,
        "body": event.to_json(),
        "headers": Headers({}),
        "handler": handler,
    }
    make_client: Callable[[], BillingClient] | None = None if client is None else lambda: client
    return Delivery(**{**made, "make_client": make_client, **facts})


def _new_key() -> str:
    return f"msg_{secrets.token_hex(8)}"


def _event(
    event: type[Event] | Event | UnknownEvent | str, overrides: Mapping[str, Any]
) -> Event | UnknownEvent:
    if isinstance(event, str):
        known = EVENT_TYPES.get(event)
        if known is None:
            return UnknownEvent(type=event, data=dict(overrides))
        event = known
    if isinstance(event, UnknownEvent):
        return UnknownEvent(type=event.type, data={**event.data, **overrides})
    refuse_misspelt(event if isinstance(event, type) else type(event), overrides, _OPTIONS)
    if isinstance(event, type):
        return sample(event, **overrides)
    # Construct it rather than copy it, so that the overrides are validated too.
    return type(event)(**{**event.model_dump(exclude_unset=True), **overrides}) if overrides else event
