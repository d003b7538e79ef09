"""Calls of the billing service's API from a command: the client, and mistakes in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from billhook.cli.where import the_settings

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["checked", "open_client"]


@contextmanager
def open_client() -> Iterator[BillingClient]:
    """The client that the BILLHOOK_API_ options describe. Raises ConfigError."""
    from billhook.client import BillingClient

    with checked(), BillingClient.from_settings(the_settings()) as client, _quiet():
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """stamina warns of each retry in a line that says nothing to who types a command."""
    from stamina.instrumentation import get_on_retry_hooks, set_on_retry_hooks

    hooks = get_on_retry_hooks()
    set_on_retry_hooks(())
    try:
        yield
    finally:
        set_on_retry_hooks(hooks)


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
