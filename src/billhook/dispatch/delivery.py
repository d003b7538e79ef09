"""What a handler learns about the delivery beside its event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from billhook.errors import ConfigError

__all__ = ["Delivery"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery, as handed to one handler for one attempt.

    `key` is the same at every attempt and every replay: use it to make effects idempotent, for a handler
    runs at least once. `attempt` counts from 1. Times are aware UTC; `signed_at` is None for a scheme that
    signs no time. `body` is the exact bytes that were signed, `headers` those of the request.
    """

    id: int
    key: str
    source: str
    event_type: str
    attempt: int
    received_at: datetime
    signed_at: datetime | None
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    make_client: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def client(self) -> Any:
        """The `billhook.client.BillingClient` of this process, for calls to the service's API.

        Made of the BILLHOOK_API_ options when it is first asked for; all handlers and threads share it.
        Raises ConfigError, which names the options that are not set, and MissingExtra.
        """
        if self.make_client is None:
            raise ConfigError("this delivery was made by hand and not by an app, so it has no client")
        return self.make_client()
