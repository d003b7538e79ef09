"""The client that a command calls the billing service's API with, and its errors as messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from billhook.cli.context import load_settings
from billhook.cli.errors import CliError

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["as_usage_errors", "open_client", "open_sandbox_client", "sandbox_client"]

_CREDENTIALS = (
    "check BILLHOOK_API_CLIENT_ID, and BILLHOOK_API_REFRESH_TOKEN or BILLHOOK_API_REFRESH_TOKEN_FILE"
)


@contextmanager
def open_client() -> Iterator[BillingClient]:
    """Open the client that the BILLHOOK_API_ options describe.

    Raises ConfigError for options that are missing, CliError if the service refuses the credentials, and
    UsageError for arguments that cannot be sent.
    """
    from billhook.client import BillingClient

    # The messages outside: building the client can fail as well.
    with _messages(), BillingClient.from_settings(load_settings()) as client:
        yield client


@contextmanager
def open_sandbox_client(timeout_seconds: float) -> Iterator[BillingClient]:
    """Open `sandbox_client` for the sandbox that the BILLHOOK_API_ options name. Raises as `open_client`."""
    from billhook.client import BillingClient

    url, client_id, token = BillingClient.credentials(load_settings())
    with (
        _messages(),
        sandbox_client(
            url, client_id.get_secret_value(), token.get_secret_value(), timeout_seconds
        ) as client,
    ):
        yield client


def sandbox_client(url: str, client_id: str, api_token: str, timeout_seconds: float) -> BillingClient:
    """Return a client that sends each request once: a fault that the sandbox injects is to be seen."""
    import httpx2

    from billhook.client import BillingClient, RetryPolicy

    return BillingClient(
        url,
        client_id,
        api_token,
        timeout_seconds=timeout_seconds,
        retries=RetryPolicy(attempts=1, total_seconds=timeout_seconds),
        # A transport of its own, because a proxy from the environment cannot reach a local sandbox.
        transport=httpx2.HTTPTransport(),
    )


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Turn an argument that cannot be sent into click's UsageError: exit code 2."""
    from pydantic import ValidationError

    from billhook.errors import RuleBroken
    from billhook.wire.model import describe_details

    try:
        yield
    except ValidationError as error:
        raise click.UsageError(describe_details(error.errors())) from None
    except (RuleBroken, ValueError) as error:
        raise click.UsageError(str(error)) from None


@contextmanager
def _messages() -> Iterator[None]:
    from billhook.errors import AuthenticationFailed

    try:
        with as_usage_errors():
            yield
    except AuthenticationFailed as error:
        raise CliError(f"{error}: {_CREDENTIALS}") from None
