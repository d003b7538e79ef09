"""The billing service beside an app under test: a sandbox in this process, subscribed to its events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

from flask import Flask

from billhook.events import EVENT_TYPES, Event
from billhook.receiver.blueprint import webhook_routes
from billhook.testing.apps import preparation, settle

if TYPE_CHECKING:
    from billhook.client import BillingClient
    from billhook.sandbox import Sandbox

__all__ = ["RunningSandbox", "running_sandbox"]


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
    thread = Thread(target=server.serve_forever, daemon=True)
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
