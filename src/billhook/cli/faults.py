"""How mistakes reach the user: one line on stderr and an exit code, never a stack trace."""

from __future__ import annotations

from typing import Any

import click

from billhook.errors import BillhookError, ConfigError

__all__ = ["CONFIG_EXIT", "FAILURE_EXIT", "Fault", "FaultGroup"]

CONFIG_EXIT = 2
"""Something must be set up or written differently; click's own usage errors exit with it too."""
FAILURE_EXIT = 1
"""What was asked for is sound and did not work: the storage failed, a delivery was refused."""


class Fault(click.ClickException):
    """A mistake in words, shown as `Error: …`."""

    def __init__(self, message: str, exit_code: int = FAILURE_EXIT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class FaultGroup(click.Group):
    """Turns billhook's exceptions into faults, under `billhook` and under `flask` alike."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise Fault(str(error), CONFIG_EXIT) from None
        except BillhookError as error:
            raise Fault(str(error), FAILURE_EXIT) from None
