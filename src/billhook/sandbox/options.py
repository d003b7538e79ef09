"""What a sandbox can be told when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from billhook.errors import ConfigError
from billhook.signing import Scheme, StandardWebhooks
from billhook.wire.header_value import HEADER_RULE, fits_header

__all__ = ["SandboxOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """How a sandbox behaves where the specification leaves it open. No secret is in its `repr`."""

    database_url: str = "sqlite://"
    """SQLAlchemy's URL: `sqlite:///FILE`, `postgresql+psycopg://…`, or `sqlite://` for a temporary file."""
    client_id: str = "sandbox"
    """What `x-api-key` must be: printable ASCII without spaces."""
    api_token: str | None = field(default=None, repr=False)
    """The first API token; None: a random one, told once. One that exists already is kept."""
    scheme: Scheme = field(default_factory=StandardWebhooks)
    """How deliveries are signed."""
    secrets: Sequence[str | Mapping[str, str]] = field(default=(), repr=False)
    """What they are signed with, newest first: each a text, or {key id: key} where the scheme names its key.
    None: one is made, and kept."""
    allow_private: bool = False
    """Deliver to loopback and private addresses, too?"""
    retry_seconds: Sequence[float] = (1, 5, 30, 120, 600, 1800, 3600)
    """How long after each failed attempt a delivery is tried again, before jitter."""
    delivery_timeout_seconds: float = 10
    """How long a receiver may take to answer, from the name's look-up to the status line."""
    rate_limit: str = "1000/second"
    """How many requests are answered; the others get 429. As the `limits` library writes it."""
    keep_events: int = 100_000
    """How many events are kept in the log, the newest, with their deliveries; none goes unsent."""
    approve_after: timedelta = timedelta(days=1)
    """How long after it was issued an invoice is approved by itself."""
    base_url: str | None = None
    """Where its users reach it: links in what it sends begin so. None: where it is served, if it is."""
    seed: Literal["demo"] | int | None = None
    """`"demo"`: begin with customers, contracts, meters and usage, as `billhook sandbox --seed demo`. A whole
    number stands for `random_seed`."""
    random_seed: int | None = None
    """Makes faults and jitter repeatable."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a client id that nobody could send, and a seed that there is not."""
        if not fits_header(self.client_id):
            raise ConfigError(f"the client id {HEADER_RULE}")
        if isinstance(self.seed, bool) or not (self.seed in (None, "demo") or isinstance(self.seed, int)):
            raise ConfigError(f"there is no seed {self.seed!r}: it is 'demo', or a number as random_seed is")

    @property
    def dice(self) -> int | None:
        """What chance is thrown by; None: by nothing that comes again."""
        return self.seed if isinstance(self.seed, int) and self.random_seed is None else self.random_seed
