"""The delivery as a handler gets it, beside its event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from billhook.errors import ConfigError

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["Delivery", "Headers"]


class Headers(Mapping[str, str]):
    """Request headers by name, in any case: `headers["webhook-id"]`; iteration gives `Webhook-Id`."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        # HTTP compares header names without their case, and servers and proxies change it.
        self._headers = {name.lower(): (name, value) for name, value in headers.items()}

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._headers.values())

    def __len__(self) -> int:
        return len(self._headers)

    def __repr__(self) -> str:
        return f"Headers({dict(self)})"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery, as passed to one handler for one attempt.

    `idempotency_key` is the same at every attempt and every replay: use it to make effects idempotent, as a
    handler runs at least once. `key` is the message id of the sender's signature, or a hash of the signed
    content: unique among the deliveries of one source only. `attempt` counts from 1. Times are aware UTC;
    `signed_at` is None for a scheme that signs no time. `body` is the exact bytes that were signed, `headers`
    are those of the request, by name in any case. `slot` is "" except for conflicts: deliveries with the key
    of another one but another type or other bytes.
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
    # A function, not the client: it needs options and the extra `client`, which most handlers do not use.
    make_client: Callable[[], BillingClient] | None = field(default=None, repr=False, compare=False)
    slot: str = field(default="", repr=False)

    @property
    def idempotency_key(self) -> str:
        """`source:key`, unique among all deliveries, as no source's name has a colon.

        A conflict that an operator replayed is an event of its own: `source:key,slot`. No key has a comma.
        """
        return f"{self.source}:{self.key}" + (f",{self.slot}" if self.slot else "")

    @property
    def client(self) -> BillingClient:
        """The API client of this process, for calls to the billing service.

        Made from the BILLHOOK_API_ options at its first use, and shared by all handlers and threads.
        Raises ConfigError, which names the options that are not set, and MissingExtra.
        """
        if self.make_client is None:
            raise ConfigError("this delivery was made by hand and not by an app, so it has no client")
        return self.make_client()
