"""How mistakes reach the user: one line on stderr and an exit code, never a stack trace."""

from __future__ import annotations

import errno
from typing import Any

import click

from billhook.errors import BillhookError, ConfigError

__all__ = ["Fault", "FaultGroup", "SetupFault"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Fault(click.ClickException):
    """What was asked for is sound and did not work: shown as `Error: …`, exit code 1."""


class SetupFault(Fault):
    """Something must be set up or written differently; exit code 2, as with click's own usage errors."""

    exit_code = 2


class FaultGroup(click.Group):
    """Turns billhook's exceptions into faults, under `billhook` and under `flask` alike."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise SetupFault(str(error)) from None
        except BillhookError as error:
            raise Fault(str(error)) from None
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise Fault(f"a write failed: {error.strerror}") from None
