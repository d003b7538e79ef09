"""Answer 503 where a page fails by a mistake of its own, with one traceback a minute for each place."""

from __future__ import annotations

import logging
from typing import Any

from flask import current_app, request

from billhook.logs import LimitedLog

logger = logging.getLogger("billhook.pages")

INTERVAL_SECONDS = 60.0
RAISE_AGAIN = False
"""Set by billhook's own tests, from which this must hide nothing."""


class FailureLog:
    """Logs the first failure of a place, with its traceback, then one a minute with the number since."""

    def __init__(self) -> None:
        self.log = LimitedLog(logger, INTERVAL_SECONDS)

    def record(self, error: Exception) -> None:
        """Log the failure of the current request, or count it. Its place is the view; there are few."""
        if RAISE_AGAIN:
            raise error
        text = f"{request.endpoint} failed, answered with 503"
        self.log.log(request.endpoint, logging.ERROR, text, error, cause=error)


def handled_by_app(error: Exception) -> Any:
    """Return what the app's own handler of such errors answers; None if it has none but for all of them.

    An app may send a visitor to its login by an exception. A blueprint's handler of Exception comes first.
    """
    handlers = current_app.error_handler_spec[None][None]
    for kind in type(error).__mro__:
        if kind is Exception:
            break
        if kind in handlers:
            return current_app.ensure_sync(handlers[kind])(error)
    return None
