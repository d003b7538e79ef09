"""BillingClient: the API of the billing service, as methods in the groups of the specification."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import httpx2
from pydantic import SecretStr

from billhook.basics.file_modes import read_token_file
from billhook.basics.printable import HEADER_RULE, fits_header
from billhook.client.operations import OperationGroups
from billhook.client.responses import Redactor, ResponseParser
from billhook.client.retries import RetryPolicy
from billhook.client.session import Session
from billhook.client.transport import Transport, environment_proxy, open_client, parse_base_url
from billhook.clock import Clock, SystemClock
from billhook.errors import ConfigError
from billhook.errors.program import no_variables
from billhook.fields import strict_json
from billhook.settings import Settings

_SYSTEM_CLOCK = SystemClock()
_RETRIES = RetryPolicy()


class BillingClient(OperationGroups):
    """The billing service's API. Source: spec, "Endpoints" and "Authentication".

    >>> with BillingClient("https://billing.example", client_id, token) as client:  # doctest: +SKIP
    ...     client.invoices.get("inv_3007").amount

    Any number of threads may share a client; create it after a fork. It logs in at the first call. Calls
    raise ApiError for failures of the network and of the service; pydantic's ValidationError and RuleBroken,
    before anything is sent, for invalid parameters.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str | SecretStr,
        refresh_token: str | SecretStr,
        *,
        timeout_seconds: float = 10.0,
        retries: RetryPolicy = _RETRIES,
        clock: Clock = _SYSTEM_CLOCK,
        sleep: Callable[[float], object] = time.sleep,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """Create a client without connecting. Raises ConfigError.

        `timeout_seconds` is the longest silence of the service; once connected it is rounded up to whole
        seconds. `retries` limits the duration of a whole call.

        `transport` replaces the network, for tests and for custom TLS settings:
        `httpx2.HTTPTransport(verify=context)`.
        """
        # SecretStr from here on: some tools show the variables of a traceback.
        client_id, refresh_token = (
            secret if isinstance(secret, SecretStr) else SecretStr(secret)
            for secret in (client_id, refresh_token)
        )
        for name, secret in (
            ("the client id (BILLHOOK_API_CLIENT_ID)", client_id),
            ("the refresh token (BILLHOOK_API_REFRESH_TOKEN)", refresh_token),
        ):
            if not fits_header(secret.get_secret_value()):
                raise ConfigError(f"{name} {HEADER_RULE}")
        if not 0 < timeout_seconds <= 86_400:
            raise ConfigError(f"timeout_seconds is {timeout_seconds!r}: it must be above 0 and at most 86400")
        parser = ResponseParser(Redactor(refresh_token, client_id), clock)
        base_url = parse_base_url(base_url)
        http = open_client(transport)
        # A transport of the caller's own takes no proxy from the environment.
        proxy = environment_proxy(base_url) if transport is None else ""
        self._transport = Transport(base_url, client_id, parser, http, proxy)
        super().__init__(
            Session(self._transport, parser, retries, clock, sleep, timeout_seconds, refresh_token)
        )

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        """Create a client from the options `BILLHOOK_API_…`. Raises ConfigError, which names missing options.

        `options` are keywords of the constructor.
        """
        is_set = {
            "BILLHOOK_API_URL": settings.api_url is not None,
            "BILLHOOK_API_CLIENT_ID": settings.api_client_id is not None,
            "BILLHOOK_API_REFRESH_TOKEN (or BILLHOOK_API_REFRESH_TOKEN_FILE)": (
                settings.api_refresh_token is not None or settings.api_refresh_token_file is not None
            ),
        }
        if missing := [name for name, there in is_set.items() if not there]:
            raise ConfigError(
                f"calls to the billing service's API need options: set {', '.join(missing)}{no_variables()}"
            )
        token, path = settings.api_refresh_token or "", settings.api_refresh_token_file
        if path is not None:  # read once, at start: a token that is rotated needs a new client
            token = read_token_file("BILLHOOK_API_REFRESH_TOKEN_FILE", path)
        return cls(str(settings.api_url), str(settings.api_client_id), SecretStr(token), **options)

    def request(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Any:
        """Send a request to a path that this client has no method for; return the decoded JSON of the answer.

        >>> client.request("GET", "/invoices", query={"billingStatus": "Overdue"})  # doctest: +SKIP

        `path` is below the base address: percent-encoded, with a slash in front, with or without a query.
        `method` is GET, POST, PUT, PATCH or DELETE. `body` is encoded as JSON and `query` is percent-encoded.
        Numbers with a fraction are Decimals in both directions: no amount passes through a float. An empty
        answer is None.

        Like every other call it logs in, keeps the deadline and raises ApiError. Under any retry policy, only
        a GET is repeated, and a request that surely had no effect: it got a 429, or was not sent. Raises
        ValueError or TypeError, before anything is sent, for an absolute URL, a path without its slash,
        another method and a body that has no JSON form.
        """
        # httpx would silently replace the query that is in the path.
        if query is not None and "?" in path:
            raise ValueError("the query is given twice: in path and as query")
        raw = b"" if body is None else strict_json.dumps(body)
        return self._session.custom(method, path, query, raw)

    def close(self) -> None:
        """Close the connections; a second time does nothing."""
        self._transport.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # A traceback may show a client that could not be created.
        made = hasattr(self, "_transport")
        return f"<BillingClient {self._transport.base_url}>" if made else "<BillingClient>"
