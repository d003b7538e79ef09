"""Errors of the command line: one line on stderr and an exit code, never a stack trace."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from billhook.errors import BillhookError, ConfigError

__all__ = ["BillhookGroup", "CliError", "UsageConfigError"]

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class CliError(click.ClickException):
    """A valid command that failed: printed as `Error: …`, exit code 1."""


class UsageConfigError(CliError):
    """A wrong configuration or argument: exit code 2, as for click's own usage errors."""

    exit_code = 2


class BillhookGroup(click.Group):
    """A command group that reports billhook's exceptions as CliError, under `billhook` and under `flask`."""

    def invoke(self, ctx: click.Context) -> Any:
        # On the group, not in `main`: under `flask billhook …` this group is the only part that is ours.
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise UsageConfigError(str(error)) from None
        except BillhookError as error:
            raise CliError(str(error)) from None
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            # A full disk is the user's to mend. Any other OSError may be our mistake: it keeps its trace.
            _discard_unwritten_output()
            raise CliError(f"cannot write: {error.strerror}") from None


def _discard_unwritten_output() -> None:
    """Give up what stdout could not write: Python would try again when it exits, and exit with code 120."""
    try:
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())
