"""Send deliveries to an app under test, by itself or from a sandbox of the billing service.

Deliveries are signed and posted through the app's own receiver, or made for a plain call. The sandbox runs
in this process, subscribed to its events.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

from flask import Flask

from billhook.errors import ConfigError
from billhook.events import EVENT_TYPES, Event, UnknownEvent, sample
from billhook.events.samples import refuse_misspelt
from billhook.handlers import Delivery, Headers
from billhook.posting import AppPoster, sign
from billhook.receiver.blueprint import find_route, webhook_routes
from billhook.signing.source import DEFAULT_SOURCE
from billhook.testing.apps import preparation, settle

if TYPE_CHECKING:
    from billhook.client import BillingClient
    from billhook.sandbox import Sandbox

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
    headers = {"X-Webhook-Type": made.type}
    if signed is not False:
        secret = signed if isinstance(signed, str) else route.source.secrets[0]
        if not isinstance(secret, str):
            raise ConfigError(
                f"source {route.source.name!r} has only public keys: give the private key, signed=KEY"
            )
        now = preparation(app).clock.now() - timedelta(seconds=age_seconds)
        headers |= sign(route.source.scheme, secret, made.type, body, now, key or _new_key())
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


class RunningSandbox:
    """A sandbox that sends its webhooks to the app; `client` calls its API, as `delivery.client` does."""

    def __init__(self, app: Flask, sandbox: Sandbox, client: BillingClient) -> None:
        self._app = app
        self.service = sandbox
        self.client = client

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request to the sandbox, as `/_sandbox/customers`; return the decoded JSON."""
        return self.service.call(method, path, body)

    def advance(self, duration: str | timedelta) -> int:
        """Move the service's clock (`P30D`), wait for what it sends, and run the handlers that are due.

        The app's own clock stands still. Returns the number of attempts.
        """
        if isinstance(duration, timedelta):
            duration = f"PT{duration.total_seconds():.0f}S"
        self.call("POST", "/_sandbox/clock", {"advance": duration})
        return self.flush()

    def flush(self) -> int:
        """Wait until the service has sent everything, and run the handlers that are due."""
        self.call("POST", "/_sandbox/flush", {})
        return settle(self._app, 0)


@contextmanager
def running_sandbox(
    app: Flask, subscribe: Iterable[type[Event]] = tuple(EVENT_TYPES.values())
) -> Iterator[RunningSandbox]:
    """Run the billing service in this process, with the app subscribed to these event types.

    It signs as the app's first source does. Needs the extra `sandbox`; raises MissingExtra.
    """
    from werkzeug.serving import make_server

    from billhook.client import BillingClient
    from billhook.sandbox import Sandbox, SandboxOptions

    state = preparation(app).state
    route = webhook_routes(app)[0]
    chosen = SandboxOptions(
        allow_private=True, scheme=route.source.scheme, secrets=tuple(route.source.secrets)
    )
    sandbox = Sandbox(chosen)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # how long its end may take
    thread.start()
    try:
        with (
            sandbox.run() as url,
            BillingClient(url, sandbox.client_id, str(sandbox.api_token)) as client,
        ):
            state.settings = dataclasses.replace(
                state.settings,
                api_url=url,
                api_client_id=sandbox.client_id,
                api_refresh_token=str(sandbox.api_token),
            )
            for event_type in subscribe:
                client.webhooks.subscribe(f"http://127.0.0.1:{server.port}{route.path}", event_type.type)
            yield RunningSandbox(app, sandbox, client)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        sandbox.close()
