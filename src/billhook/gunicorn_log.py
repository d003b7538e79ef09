"""Limit the lines that gunicorn logs for requests that are no HTTP: a stranger causes them.

For copies of an earlier gunicorn.conf.py, which import it; billhook.servers.gunicorn_refusals does more.
"""

from __future__ import annotations

import atexit
import logging
import sys
from functools import partial

from billhook.logs import LimitedLog

logger = logging.getLogger("billhook.receiver")

_BEGINNING = "Invalid request from ip="


class InvalidRequestFilter(logging.Filter):
    """Takes these lines from gunicorn's log; one line a second says each cause, without their text."""

    def __init__(self) -> None:
        super().__init__()
        self._log = LimitedLog(logger)
        atexit.register(partial(self._log.flush, all_of_them=True))

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether gunicorn logs a record."""
        if not str(record.msg).startswith(_BEGINNING):
            return True
        kind = sys.exc_info()[0]  # gunicorn logs within its `except`
        cause = "InvalidRequest" if kind is None else kind.__name__
        self._log.log(cause, logging.WARNING, f"request refused by gunicorn: {cause}", cause=cause)
        return False


def limit_invalid_requests() -> None:
    """Add the filter to gunicorn's log, in each of its processes once."""
    log = logging.getLogger("gunicorn.error")
    if not any(isinstance(one, InvalidRequestFilter) for one in log.filters):
        log.addFilter(InvalidRequestFilter())
