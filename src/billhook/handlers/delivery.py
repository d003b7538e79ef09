"""The delivery that a handler receives beside its event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from billhook.errors import ConfigError
from billhook.signing.source import RECONCILE_SOURCE

if TYPE_CHECKING:
    from billhook.client import BillingClient
    from billhook.effects import Transaction


class Headers(Mapping[str, str]):
    """Request headers by name, in any case: `headers["webhook-id"]`; iteration gives `Webhook-Id`."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = _by_lower_name(headers)

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._headers.values())

    def __len__(self) -> int:
        return len(self._headers)

    def __repr__(self) -> str:
        return f"Headers({dict(self)})"


def _by_lower_name(headers: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    # HTTP header names are compared without case, and servers and proxies change the case.
    return {name.lower(): (name, value) for name, value in headers.items()}


class StoredHeaders(Headers):
    """Headers as the inbox stores them, parsed at their first use, because most handlers use none."""

    def __init__(self, text: str) -> None:
        """`text` is JSON, with the names in WSGI's form: webhook_id."""
        self._text = text

    @cached_property
    def _headers(self) -> dict[str, tuple[str, str]]:  # type: ignore[override]
        stored = json.loads(self._text)
        return _by_lower_name({name.replace("_", "-").title(): value for name, value in stored.items()})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery, as passed to one handler for one attempt.

    A handler runs at least once: `once()` says whether its effect is still to be made. `idempotency_key` is
    the same at every attempt and every replay, for calls of other services. `key` is the message id of the
    sender's signature, or a hash of the signed content: unique among the deliveries of one source only.
    `attempt` counts from 1. Times are aware UTC; `signed_at` is None for a scheme that signs no time. `body`
    is the exact bytes that were signed, `headers` are those of the request, by name in any case. `slot` is ""
    except for conflicts: deliveries with the key of another one but another type or other bytes. `handler` is
    the name under which the run is stored, `replays` how often it was replayed after it was finished.
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
    # A function rather than the client, which needs options and the extra `client` that most handlers do not
    # use.
    make_client: Callable[[], BillingClient] | None = field(default=None, repr=False, compare=False)
    slot: str = field(default="", repr=False)
    handler: str = ""
    replays: int = 0

    @property
    def idempotency_key(self) -> str:
        """`source:key`, unique among all deliveries, as no source's name has a colon.

        A conflict that an operator replayed is an event of its own: `source:key,slot`. No key has a comma.
        """
        return f"{self.source}:{self.key}" + (f",{self.slot}" if self.slot else "")

    @property
    def synthetic(self) -> bool:
        """Whether `billhook reconcile --inject` made it, from what the service's API shows.

        Its event was not signed by the sender, and has only the values that the API shows.
        """
        return self.source == RECONCILE_SOURCE

    def __reduce__(self) -> str:
        """Raise TypeError: a delivery belongs to the process and the attempt that called the handler."""
        raise TypeError(
            "a Delivery cannot be pickled or copied to another process: pass its event, or its id and key"
        )

    def once(self, transaction: Transaction) -> bool:
        """Return True the first time that this handler has this delivery, and False ever after.

        The answer is a row of the table `billhook_effect` in your own database, written in your own open
        transaction: commit it together with the effect, and both have happened or neither. `transaction` is a
        SQLAlchemy session (scoped ones too) or connection, or a DB-API connection to SQLite or PostgreSQL. An
        operator replays a finished run on purpose, so the replay counts as a new occurrence.

        >>> if delivery.once(db.session):  # doctest: +SKIP
        ...     db.session.add(Payment(event.invoice_id, event.amount))
        >>> db.session.commit()  # doctest: +SKIP

        Commit when the answer is False as well: the question has locked SQLite's file. Another attempt at the
        same moment waits until this transaction ends. Raises ConfigError for a connection that commits each
        statement by itself, and without the table (see billhook.effects).
        """
        if not self.handler:
            raise ConfigError("this delivery was made by hand, without handler='the.name': once() needs it")
        from billhook import effects  # imports SQLAlchemy, which `import billhook` alone must not

        return effects.record(transaction, self.handler, self.idempotency_key, self.replays)

    @property
    def client(self) -> BillingClient:
        """The API client of this process, for calls to the billing service.

        Made from the options `BILLHOOK_API_…` at its first use, and shared by all handlers and threads.
        Raises ConfigError, which names the options that are not set, and MissingExtra.
        """
        if self.make_client is None:
            raise ConfigError("this delivery was made by hand and not by an app, so it has no client")
        return self.make_client()
