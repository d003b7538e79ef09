"""Calls of the billing service's API from a command: the client, and mistakes in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from billhook.cli.faults import Fault
from billhook.cli.where import the_settings

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["checked", "open_client"]

_CREDENTIALS = "look at BILLHOOK_API_CLIENT_ID, and at BILLHOOK_API_REFRESH_TOKEN or its _FILE"


@contextmanager
def open_client() -> Iterator[BillingClient]:
    """The client that the BILLHOOK_API_ options describe. ConfigError; Fault where it is not let in."""
    from billhook.client import BillingClient
    from billhook.errors import AuthenticationFailed

    try:
        with checked(), BillingClient.from_settings(the_settings()) as client:
            yield client
    except AuthenticationFailed as error:
        raise Fault(f"{error}: {_CREDENTIALS}") from None


@contextmanager
def checked() -> Iterator[None]:
    """What cannot be sent is a mistake in the arguments: told as click tells them, exit code 2."""
    from pydantic import ValidationError

    from billhook.errors import RuleBroken
    from billhook.wire.reading import in_words

    try:
        yield
    except ValidationError as error:
        raise click.UsageError(in_words(error.errors())) from None
    except (RuleBroken, ValueError) as error:
        raise click.UsageError(str(error)) from None
