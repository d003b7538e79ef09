"""The options of a sandbox, and the limits that the specification leaves open and no option changes.

They are in README.md beside this file, "What the specification leaves open".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from billhook.basics.printable import HEADER_RULE, fits_header
from billhook.errors import ConfigError
from billhook.signing import Scheme, StandardWebhooks

MAX_KEY = 255
"""Characters of a name, an alias, a ref or an external id."""
MAX_ALIASES = 100
"""Aliases of a customer; also its counterparts at other providers."""
MAX_PRODUCTS = 1000
"""Products of a contract or of a plan."""
MAX_CONDITIONS = 100
"""Filters of a meter; also values of one filter."""
MAX_AGGREGATED_METERS = 100
"""Meters in one aggregation."""
MAX_GROUPS = 10_000
"""Groups in the response to one aggregation."""
MAX_TIMES = 2**31 - 1
"""The most deliveries that one fault strikes."""
MAX_FAULT_SECONDS = 86_400
"""The longest delay of a fault."""
MAX_FLUSH_SECONDS = 60
"""The longest wait of POST /_sandbox/flush."""
DEFAULT_BODY_BYTES = 1024 * 1024
"""Limit for a body in bytes; batches of events have the specification's limit."""
MAX_LOGIN_BYTES = 16 * 1024
"""Limit for the body of POST /login, which needs no access token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """How a sandbox behaves where the specification leaves it open. Its `repr` holds no secret."""

    database_url: str = "sqlite://"
    """`sqlite:///FILE`, or `sqlite://` for a temporary file."""
    client_id: str = "sandbox"
    """The required value of `x-api-key`: printable ASCII without spaces."""
    # repr=False keeps the token, and the secrets below, out of logs and of pytest's output.
    api_token: str | None = field(default=None, repr=False)
    """The API token to activate; None: the one in the database is kept, else a random one is created."""
    scheme: Scheme = field(default_factory=StandardWebhooks)
    """The signature scheme of deliveries."""
    secrets: Sequence[str | Mapping[str, str]] = field(default=(), repr=False)
    """Signing secrets, newest first: each a text, or {key id: key} where the scheme names its key.
    Empty: one is generated and stored."""
    allow_private: bool = False
    """True to deliver to loopback and private addresses as well."""
    retry_seconds: Sequence[float] = (1, 5, 30, 120, 600, 1800, 3600)
    """Seconds from each failed attempt to the next, before jitter."""
    delivery_timeout_seconds: float = 10
    """Seconds that an attempt may take, from resolving the name to the response's status line."""
    rate_limit: str = "1000/second"
    """Requests beyond it get 429; written as the `limits` library parses it."""
    keep_events: int = 100_000
    """The number of newest events kept in the log, with their deliveries; unsent ones are always kept."""
    approve_after: timedelta = timedelta(days=1)
    """Time from issuing an invoice to its automatic approval."""
    base_url: str | None = None
    """The beginning of links in webhooks. None: the address at which the sandbox is served, if it is."""
    dashboard_url: str | None = None
    """The address of a receiver's dashboard, ending in a slash: pages link to each delivery there."""
    seed: Literal["demo"] | int | None = None
    """`"demo"`: create demo customers, contracts, meters and usage, as `billhook sandbox --seed demo` does.
    A whole number stands for `random_seed`."""
    random_seed: int | None = None
    """Seed of faults and jitter, to make them repeatable."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a client id that no header can carry, and for an unknown seed."""
        # Clients send it in a header: no request could match any other value.
        if not fits_header(self.client_id):
            raise ConfigError(f"the client id {HEADER_RULE}")
        # bool is an int: True would be taken for the random seed 1.
        if isinstance(self.seed, bool) or not (self.seed in (None, "demo") or isinstance(self.seed, int)):
            raise ConfigError(f"seed must be 'demo' or a whole number, not {self.seed!r}")

    @property
    def effective_random_seed(self) -> int | None:
        """The seed of faults and jitter, from `random_seed` or `seed`; None: not repeatable."""
        return self.seed if isinstance(self.seed, int) and self.random_seed is None else self.random_seed
